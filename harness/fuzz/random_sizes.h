// The sizes of a random problem: about those of tiles, or of a kind that kernels have paths of
// their own for; and what it costs to judge it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/fuzz/drawing.h"
#include "spec/problem.h"

namespace attest {

// The products of queries and keys, channel by channel, and a few for each element that is made,
// handed over and looked at; and how much of that a random problem may cost.
Index work_of(const Problem& problem);
inline constexpr Index kMostWork = 300'000, kMostWorkOfLarge = 20'000'000;

struct Sizes {
  Index batch = 1, query_heads = 1, key_heads = 1;
  Index query_len = 1, key_len = 1, head_dim = 1, value_dim = 1;
};

// The longest of a list of lengths.
Index longest(const nlohmann::json& lens);

// Those of the problem of an entry; where it gives none, the longest of its lengths.
Sizes sizes_in(const nlohmann::json& problem);

// Puts them into it, but for those that follow from its lengths.
void put_sizes(const Sizes& sizes, nlohmann::json& problem);

Sizes random_sizes(const Description& testee, Dice& dice);

// Up to four of them beyond those at which kernels change hands.
Sizes large_sizes(const Description& testee, Dice& dice);

// One of them changed.
Sizes altered_sizes(const Sizes& sizes, const Description& testee, Dice& dice);

}  // namespace attest
