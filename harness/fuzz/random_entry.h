// Random cases, as entries of a case file: whole problems of every feature that a testee declares,
// alone and together, with their inputs, weighted towards edges. Sizes lie about those of tiles,
// lengths are 0 or unequal, rows see no key or few, strides are odd, magnitudes extreme.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spec/description.h"

namespace attest {

// The stem of their ids.
inline constexpr const char* kFuzzStem = "found";

// Entry `number` of those that `seed` stands for: it depends on nothing but these two and on what
// the testee declares. `dtypes` are those to choose from, all of them declared.
nlohmann::json random_entry(const Description& testee, const std::vector<DType>& dtypes,
                            std::uint64_t seed, std::uint64_t number);

}  // namespace attest
