#include "harness/drawn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/arena.h"
#include "harness/schedule.h"

namespace attest {
namespace {

// How likely a case may fail a testee that draws as it should: shared out among its tests.
constexpr double kRateChance = 0.5e-9, kHeadChance = 0.25e-9, kSeedChance = 0.25e-9;

// Which elements count, in the order of the mask.
std::vector<bool> elements_that_count(const Problem& p, const Inputs& in) {
  std::vector<bool> counts;
  for (Position at = {}; at.batch < p.batch; ++at.batch) {
    for (at.head = 0; at.head < p.query_heads; ++at.head) {
      for (at.query = 0; at.query < p.query_len; ++at.query) {
        for (at.key = 0; at.key < p.key_len; ++at.key) {
          counts.push_back(visible(p, at) && !bias_hides(p, in, at));
        }
      }
    }
  }
  return counts;
}

// The rates of keeping that a testee may have.
struct Rates {
  double lowest, highest;
};
Rates rates(const Dropout& dropout, double quantum) {
  const double rate = 1 - dropout.probability;
  return {std::max(0.0, rate - quantum), std::min(1.0, rate + quantum)};
}

// How likely two elements drawn independently are equal, at most.
double agreement(const Dropout& dropout, double quantum) {
  const auto of_rate = [](double r) { return r * r + (1 - r) * (1 - r); };
  const Rates allowed = rates(dropout, quantum);
  return std::max(of_rate(allowed.lowest), of_rate(allowed.highest));
}

std::optional<Finding> difference(const Keep& first, const Keep& second) {
  const auto at = [&](std::size_t element) {
    const auto c = coordinates(first.shape, static_cast<Index>(element));
    return fmt::format("[{},{},{},{}]", c[0], c[1], c[2], c[3]);
  };
  // Bits are written by the byte: a byte whose bits are the poison in both was not.
  constexpr std::size_t kByte = 8;
  const auto row = static_cast<std::size_t>(first.shape[3]);
  std::optional<std::size_t> poisoned;
  for (std::size_t begin = 0; begin < first.kept.size(); begin += row) {
    for (std::size_t byte = 0; byte < row; byte += kByte) {
      bool same = true, poison = true;
      for (std::size_t j = byte; j < std::min(byte + kByte, row); ++j) {
        const bool a = first.kept[begin + j] != 0, b = second.kept[begin + j] != 0;
        const auto key = static_cast<Index>(j);
        same = same && a == b;
        poison = poison && a == Exchange::keep_poison(Placement::end_flush, key) &&
                 b == Exchange::keep_poison(Placement::start_flush, key);
      }
      if (same) continue;
      if (!poison) {
        return failure(
            "nondeterministic",
            fmt::format("equal calls drew different keep-masks, first at {}", at(begin + byte)),
            "DROP-3");
      }
      if (!poisoned) poisoned = begin + byte;
    }
  }
  if (!poisoned) return std::nullopt;
  return failure("unwritten", fmt::format("keep{} was never written", at(*poisoned)));
}

// ---- Rates -------------------------------------------------------------------------------------

struct Tally {
  double count = 0, kept = 0;
  void add(bool keeps) {
    ++count;
    kept += keeps;
  }
};

// Chernoff's bound of how likely it is that a share as far from `rate` as this, or farther on the
// same side, is kept of so many elements.
double tail(const Tally& tally, double rate) {
  const double share = tally.kept / tally.count;
  const auto term = [](double x, double y) { return x == 0 ? 0 : x * (std::log(x) - std::log(y)); };
  return std::exp(-tally.count * (term(share, rate) + term(1 - share, 1 - rate)));
}

std::optional<Finding> rate_defect(const Dropout& dropout, double quantum, const Tally& tally,
                                   const std::string& where, double chance) {
  if (tally.count == 0) return std::nullopt;
  const Rates allowed = rates(dropout, quantum);
  const double share = tally.kept / tally.count;
  const double nearest = std::clamp(share, allowed.lowest, allowed.highest);
  if (share == nearest || tail(tally, nearest) >= chance / 2) return std::nullopt;  // of two sides
  return failure(
      "statistical",
      fmt::format("kept {} of {} visible elements{}, where dropout of {} keeps {:.1f}", tally.kept,
                  tally.count, where, dropout.probability, tally.count * (1 - dropout.probability)),
      "DROP-3");
}

std::optional<Finding> rate_defect(const Problem& p, double quantum, const Keep& keep,
                                   const std::vector<bool>& counts) {
  const auto batches = static_cast<std::size_t>(p.batch);
  const auto heads = static_cast<std::size_t>(p.query_heads);
  Tally whole;
  std::vector<Tally> of_batch(batches), of_head(heads);
  for (std::size_t n = 0; n < counts.size(); ++n) {
    if (!counts[n]) continue;
    const auto place = coordinates(keep.shape, static_cast<Index>(n));
    for (Tally* tally : {&whole, &of_batch[static_cast<std::size_t>(place[kBatch])],
                         &of_head[static_cast<std::size_t>(place[kHead])]}) {
      tally->add(keep.kept[n] != 0);
    }
  }
  const double chance = kRateChance / static_cast<double>(1 + batches + heads);
  if (auto found = rate_defect(p.dropout, quantum, whole, "", chance)) return found;
  for (std::size_t h = 0; h < heads; ++h) {
    const auto where = fmt::format(" of head {}", h);
    if (auto found = rate_defect(p.dropout, quantum, of_head[h], where, chance)) return found;
  }
  for (std::size_t b = 0; b < batches; ++b) {
    const auto where = fmt::format(" of batch element {}", b);
    if (auto found = rate_defect(p.dropout, quantum, of_batch[b], where, chance)) return found;
  }
  return std::nullopt;
}

// ---- Equal bits --------------------------------------------------------------------------------

// How many elements count in both of two heads that begin there, if all of them are equal; else 0.
std::size_t equal_elements(const Keep& keep, const std::vector<bool>& counts, std::size_t a,
                           std::size_t b, std::size_t size) {
  std::size_t equal = 0;
  for (std::size_t n = 0; n < size; ++n) {
    if (!counts[a + n] || !counts[b + n]) continue;
    if (keep.kept[a + n] != keep.kept[b + n]) return 0;
    ++equal;
  }
  return equal;
}

// Of all batch elements each head is compared with each other one.
std::optional<Finding> equal_heads(const Problem& p, double quantum, const Keep& keep,
                                   const std::vector<bool>& counts) {
  const auto heads = static_cast<std::size_t>(p.query_heads);
  const std::size_t planes = static_cast<std::size_t>(p.batch) * heads;
  if (planes < 2) return std::nullopt;
  const std::size_t size = counts.size() / planes;
  const double pairs = static_cast<double>(planes) * static_cast<double>(planes - 1) / 2;
  const double agree = agreement(p.dropout, quantum);
  for (std::size_t a = 0; a < planes; ++a) {
    for (std::size_t b = a + 1; b < planes; ++b) {
      const std::size_t equal = equal_elements(keep, counts, a * size, b * size, size);
      if (pairs * std::pow(agree, static_cast<double>(equal)) >= kHeadChance) continue;
      return failure(
          "statistical",
          fmt::format("head {} of batch element {} and head {} of batch element {} have the same "
                      "bits in all {} elements that are visible in both",
                      a % heads, a / heads, b % heads, b / heads, equal),
          "DROP-3");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> keep_defect(const Problem& problem, const Inputs& inputs, double quantum,
                                   const Keep& first, const Keep& second) {
  if (auto found = difference(first, second)) return found;
  const std::vector<bool> counts = elements_that_count(problem, inputs);
  if (auto found = rate_defect(problem, quantum, first, counts)) return found;
  return equal_heads(problem, quantum, first, counts);
}

bool tells_seeds(const Problem& problem, const Inputs& inputs, double quantum) {
  const std::vector<bool> counts = elements_that_count(problem, inputs);
  const auto count = static_cast<double>(std::count(counts.begin(), counts.end(), true));
  return std::pow(agreement(problem.dropout, quantum), count) < kSeedChance;
}

bool same_bits(const Problem& problem, const Inputs& inputs, const Keep& a, const Keep& b) {
  const std::vector<bool> counts = elements_that_count(problem, inputs);
  for (std::size_t n = 0; n < counts.size(); ++n) {
    if (counts[n] && a.kept[n] != b.kept[n]) return false;
  }
  return true;
}

}  // namespace attest
