#include "spec/json_text.h"

#include <nlohmann/json.hpp>

namespace attest {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json parse_json_if_any(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace attest
