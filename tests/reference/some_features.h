// Features for a small random problem: all, some or none of those that bear on its bounds.
#pragma once

#include <random>
#include <vector>

#include "spec/problem.h"

namespace attest {

// A softcap and a probability of dropping are of those given.
inline void add_some_features(Problem& problem, std::mt19937_64& random,
                              const std::vector<double>& softcaps,
                              const std::vector<double>& probabilities) {
  const auto maybe = [&] { return random() % 3 == 0; };
  const auto one_or = [&](Index whole) { return random() % 2 == 0 ? 1 : whole; };
  if (maybe()) return;
  if (maybe()) problem.softcap = softcaps[random() % softcaps.size()];
  if (maybe()) {
    problem.bias_shape =
        Shape{1, one_or(problem.query_heads), one_or(problem.query_len), one_or(problem.key_len)};
  }
  if (maybe()) problem.slopes_shape = Shape{1, problem.query_heads, 1, 1};
  problem.sink = maybe();
  problem.d_lse = maybe();
  if (maybe()) {
    problem.dropout = {.mode = Dropout::Mode::given,
                       .probability = probabilities[random() % probabilities.size()]};
  }
}

}  // namespace attest
