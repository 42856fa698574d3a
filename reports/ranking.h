// Kernels of one task side by side, of what `attest rank` found (spec/rank.schema.json).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace attest {

std::string to_ranking_html(const nlohmann::json& ranking);  // one page, readable offline
std::string to_ranking_text(const nlohmann::json& ranking);  // a row a kernel, the conclusion

// What a kernel that does not conform is blamed on, in a line.
std::string why_not(const nlohmann::json& kernel);

}  // namespace attest
