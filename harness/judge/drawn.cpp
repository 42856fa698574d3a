#include "harness/judge/drawn.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "harness/judge/schedule.h"

namespace attest {

std::vector<bool> elements_that_count(const Problem& p, const Inputs& in) {
  std::vector<bool> counts;
  for (Position at = {}; at.batch < p.batch; ++at.batch) {
    for (at.head = 0; at.head < p.query_heads; ++at.head) {
      for (at.query = 0; at.query < p.query_len; ++at.query) {
        for (at.key = 0; at.key < p.key_len; ++at.key) {
          counts.push_back(sees(p, in, at));
        }
      }
    }
  }
  return counts;
}

KeepRates keep_rates(const Dropout& dropout, double quantum) {
  const double rate = 1 - dropout.probability;
  return {std::max(0.0, rate - quantum), std::min(1.0, rate + quantum)};
}

KeepRates agreement(const Dropout& dropout, double quantum) {
  const auto of_rate = [](double r) { return r * r + (1 - r) * (1 - r); };
  const KeepRates allowed = keep_rates(dropout, quantum);
  const double a = of_rate(allowed.lowest), b = of_rate(allowed.highest);
  const bool even = allowed.lowest <= 0.5 && allowed.highest >= 0.5;
  return {even ? 0.5 : std::min(a, b), std::max(a, b)};
}

bool tells_draws(const Problem& problem, const Inputs& inputs, double quantum) {
  const std::vector<bool> counts = elements_that_count(problem, inputs);
  const auto count = static_cast<double>(std::count(counts.begin(), counts.end(), true));
  return kOtherDraws * std::pow(agreement(problem.dropout, quantum).highest, count) < kSeedChance;
}

bool same_bits(const Problem& problem, const Inputs& inputs, const Keep& a, const Keep& b) {
  const std::vector<bool> counts = elements_that_count(problem, inputs);
  for (std::size_t n = 0; n < counts.size(); ++n) {
    if (counts[n] && a.kept[n] != b.kept[n]) return false;
  }
  return true;
}

}  // namespace attest
