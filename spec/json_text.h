// JSON as text. The parser and the writer are compiled here alone: they take longer than most files
// that want them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace attest {

// On one line, or indented by so many spaces for each level. Broken UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);

// Whatever walks over a document calls itself for each level; no file of ours needs nearly as many.
inline constexpr int kDeepestJson = 256;

// Where in JSON a list or an object begins that lies within so many others; nothing if none does.
// Parsers survive any number of levels; what walks over their result does not.
std::optional<std::size_t> too_deep_at(std::string_view text, int levels);

// A key that stands twice in one object, of which a parser keeps one; nothing if none does, or if
// it is no JSON.
std::optional<std::string> doubled_key(std::string_view text);

// What of a text some parsers take for JSON and others do not, in words: "has the key \"a\" twice",
// or a byte order mark before it (RFC 8259 has none); nothing if all read it alike.
std::optional<std::string> looseness_of(std::string_view text);

// Throws nlohmann::json::parse_error.
nlohmann::json parse_json(std::string_view text);

// The same, but a discarded value for what is no JSON.
nlohmann::json parse_json_if_any(std::string_view text);

}  // namespace attest
