#include "spec/json_text.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace attest {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<std::size_t> too_deep_at(std::string_view text, int levels) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > levels) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

std::optional<std::string> doubled_key(std::string_view text) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the keys of the objects around
  std::optional<std::string> doubled;
  const auto look = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second && !doubled) {
      doubled = parsed.get<std::string>();
    }
    return true;
  };
  const nlohmann::json parsed = nlohmann::json::parse(text, look, false);
  return parsed.is_discarded() ? std::nullopt : doubled;
}

std::optional<std::string> looseness_of(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    return "begins with a byte order mark (EF BB BF), which is no part of JSON: write UTF-8 "
           "without it";
  }
  const auto key = doubled_key(text);
  if (key) return "has the key \"" + *key + "\" twice";
  return std::nullopt;
}

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json parse_json_if_any(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace attest
