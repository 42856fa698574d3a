// From an entry of a case file that shows a fault to a simpler one that shows it too: features off,
// sizes and lists smaller, numbers plainer, text shorter.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace attest {

// The entries that are one step simpler, the largest steps first. Some may be no case at all.
std::vector<nlohmann::json> simpler(const nlohmann::json& entry);

// The entry at which no step leads to one that `fails` any more, or at which `fails` was asked so
// many times.
nlohmann::json shrink(nlohmann::json entry, int most_tries,
                      const std::function<bool(const nlohmann::json&)>& fails);

}  // namespace attest
