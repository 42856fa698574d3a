// JSON as text. The parser and the writer are compiled here alone: they take longer than most files
// that want them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace attest {

// On one line, or indented by so many spaces for each level. Broken UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);

// Throws nlohmann::json::parse_error.
nlohmann::json parse_json(std::string_view text);

// The same, but a discarded value for what is no JSON.
nlohmann::json parse_json_if_any(std::string_view text);

}  // namespace attest
