// Names that somebody misspelt.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

// The least number of insertions, deletions, exchanges, and swaps of neighbours, that turn `a` into
// `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The names most like `wanted`, best first, at most `most`; capitals are no difference.
std::vector<std::string> nearest_names(std::string_view wanted,
                                       const std::vector<std::string>& names, std::size_t most = 3);

// What to say of a name that there is not: "did you mean fa2?" of the few names that are spelt
// nearly so or begin so; where there are none, "there are fa2, naive", or the nearest of many.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace attest
