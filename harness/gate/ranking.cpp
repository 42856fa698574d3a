#include "harness/gate/ranking.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "spec/contains.h"

namespace attest {
namespace {

Compared compared_of(const Speed& speed) { return {speed.problem, speed.shape, speed.pass}; }

bool is_ranked(const GateResult* result) {
  return result && result->conforms() && result->whole && mean_ratio(result->speeds);
}

std::vector<Compared> compared_of(const std::vector<const GateResult*>& results) {
  std::vector<Compared> compared;
  bool any = false;
  for (const GateResult* result : results) {
    if (!is_ranked(result)) continue;
    std::vector<Compared> own;
    for (const Speed& speed : result->speeds) {
      if (speed.ratio) own.push_back(compared_of(speed));
    }
    if (!any) compared = own;
    any = true;
    std::erase_if(compared, [&](const Compared& each) { return !contains(own, each); });
  }
  return compared;
}

bool is_above(const Interval& a, const Interval& b) {
  return a.is_sure() && b.is_sure() && a.least > b.most;
}

// By what they are listed: those with a speed, those that conform, those left open, the others.
int group_of(const GateResult* result, const Ranked& ranked) {
  if (ranked.speed) return 0;
  if (!result) return 4;
  if (!result->conforms()) return 3;
  return result->whole ? 1 : 2;
}

}  // namespace

std::optional<Interval> mean_ratio(const std::vector<Speed>& speeds) {
  std::vector<double> sums;  // of logarithms, by call
  double count = 0;
  for (const Speed& speed : speeds) {
    if (speed.ratios.empty()) continue;
    if (count++ == 0) sums.resize(speed.ratios.size());
    // The last round may have ended before all of them had their call.
    sums.resize(std::min(sums.size(), speed.ratios.size()));
    for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += std::log(speed.ratios[at]);
  }
  if (count == 0) return std::nullopt;
  for (double& sum : sums) sum = std::exp(sum / count);
  return interval_of(sums);
}

Ranking ranking_of(const std::vector<const GateResult*>& results) {
  Ranking ranking = {.compared = compared_of(results)};
  for (std::size_t n = 0; n < results.size(); ++n) {
    Ranked ranked = {.kernel = n};
    if (is_ranked(results[n])) {
      std::vector<Speed> speeds;
      for (const Speed& speed : results[n]->speeds) {
        if (!contains(ranking.compared, compared_of(speed))) continue;
        speeds.push_back(speed);
        if (speed.memory && (!ranked.memory || speed.memory->most > ranked.memory->most)) {
          ranked.memory = speed.memory;
        }
      }
      ranked.speed = mean_ratio(speeds);
    }
    ranking.kernels.push_back(ranked);
  }
  for (Ranked& each : ranking.kernels) {
    if (!each.speed) continue;
    each.place =
        1 + std::count_if(ranking.kernels.begin(), ranking.kernels.end(), [&](const Ranked& other) {
          return other.speed && is_above(*other.speed, *each.speed);
        });
  }
  std::stable_sort(
      ranking.kernels.begin(), ranking.kernels.end(), [&](const Ranked& a, const Ranked& b) {
        const auto key = [&](const Ranked& each) {
          return std::tuple(group_of(results[each.kernel], each), each.place.value_or(0),
                            each.speed ? -each.speed->median : 0.0);
        };
        return key(a) < key(b);
      });
  return ranking;
}

}  // namespace attest
