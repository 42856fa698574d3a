// Random cases, as entries of a case file: whole problems of every feature that a testee declares,
// alone and together, with their inputs, weighted towards edges and towards what faults of real
// kernels needed. Sizes lie about those of tiles, lengths are 0 or unequal, rows see no key or few,
// strides are odd, magnitudes extreme.
//
// Not every combination is a case: whoever asks reads the entry, and asks again where it is none.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/fuzz/dice.h"
#include "spec/description.h"
#include "spec/problem.h"

namespace attest {

// What entries are drawn for.
struct Scope {
  const Description& testee;
  const std::vector<DType>& dtypes;  // to choose from, all of them declared
  bool finite = false;               // no NaN and no infinity among the inputs
};

// One that is drawn afresh, without a name, a "because" and "bits".
nlohmann::json random_entry(const Scope& scope, Dice& dice);

// Likewise, with several sizes beyond those at which kernels take another path: long rows, wide or
// many heads, several tiles of a batch. As costly as kMostWorkOfLarge (random_sizes.h).
nlohmann::json large_entry(const Scope& scope, Dice& dice);

// One that is made of an entry by a few changes: other sizes, other numbers, features more or
// fewer, some of them those of `other`.
nlohmann::json altered_entry(const Scope& scope, const nlohmann::json& entry,
                             const nlohmann::json& other, Dice& dice);

}  // namespace attest
