// The input classes: what the numbers of Q, K, V and dO are like, and what that makes visible.
#pragma once

#include <span>
#include <string_view>

#include "cases/random_source.h"

namespace attest {

// An element that is to get its number.
struct Element {
  const RandomSource& source;
  const Problem& problem;
  Coordinates at;
  ElementRandom random;

  Index key_head() const { return at[kHead] / problem.group_size(); }  // of an element of Q
};

using Make = double (*)(Element&);

// Of deviation 1. Those of a row may be made side by side, by normal_row().
double normal(Element& e);

// |scale|, or 1 where the scale is 0 and no amplitude can make up for it.
double reach(const Problem& p);

struct Recipe {
  std::string_view name;
  std::string_view about;  // what it makes visible
  Make q, k, v, d_o;
  bool generic = false;  // so random that roundings are as good as independent (NUM-3)
};

std::span<const Recipe> recipes();

// Throws InputError if there is no class of the name that the case gives.
const Recipe& recipe_of(const Case& test_case);

}  // namespace attest
