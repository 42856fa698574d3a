#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/checks.h"
#include "harness/judge/drawn.h"
#include "harness/process/arena.h"

namespace attest {
namespace {

// A bit for each element of a mask, 64 neighbours of a row to a word.
class BitRows {
 public:
  template <class IsSet>
  BitRows(const Shape& shape, const IsSet& is_set)
      : words_((shape[3] + 63) / 64),
        // Two words more than a row has, of which none is set, for what lies beyond it.
        bits_(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * (words_ + 2))) {
    std::size_t element = 0;
    for (Index row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
      for (Index j = 0; j < shape[3]; ++j, ++element) {
        if (is_set(element)) word(row, j / 64) |= std::uint64_t{1} << j % 64;
      }
    }
  }

  Index words() const { return words_; }
  // The elements from the j-th on, of which no more than 64 lie beyond the row.
  std::uint64_t from(Index row, Index j) const {
    const std::uint64_t* const first = &bits_[at(row, j / 64)];
    return j % 64 == 0 ? *first : *first >> j % 64 | first[1] << (64 - j % 64);
  }

 private:
  std::size_t at(Index row, Index n) const {
    return static_cast<std::size_t>(row * (words_ + 2) + n);
  }
  std::uint64_t& word(Index row, Index n) { return bits_[at(row, n)]; }

  Index words_;
  std::vector<std::uint64_t> bits_;
};

// What a testee drew, and which elements of it count.
struct Draws {
  Draws(const Keep& keep, const std::vector<bool>& elements)
      : counts(keep.shape, [&](std::size_t n) { return elements[n]; }),
        kept(keep.shape, [&](std::size_t n) { return keep.kept[n] != 0; }) {}

  BitRows counts, kept;
};

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
            "DROP-3.4");
      }
      if (!poisoned) poisoned = begin + byte;
    }
  }
  if (!poisoned) return std::nullopt;
  return failure("unwritten", fmt::format("keep{} was never written", at(*poisoned)));
}

// ---- KeepRates ---------------------------------------------------------------------------------

struct Tally {
  double count = 0, kept = 0;
  // The elements of a word that count.
  void add(std::uint64_t counts, std::uint64_t keeps) {
    count += std::popcount(counts);
    kept += std::popcount(counts & keeps);
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
  const KeepRates allowed = keep_rates(dropout, quantum);
  const double share = tally.kept / tally.count;
  const double nearest = std::clamp(share, allowed.lowest, allowed.highest);
  if (share == nearest || tail(tally, nearest) >= chance / 2) return std::nullopt;  // of two sides
  return failure(
      "statistical",
      fmt::format("kept {} of {} visible elements{}, where dropout of {} keeps {:.1f}", tally.kept,
                  tally.count, where, dropout.probability, tally.count * (1 - dropout.probability)),
      "DROP-3.6");
}

std::optional<Finding> rate_defect(const Problem& p, double quantum, const Draws& draws) {
  const auto batches = static_cast<std::size_t>(p.batch);
  const auto heads = static_cast<std::size_t>(p.query_heads);
  Tally whole;
  std::vector<Tally> of_batch(batches), of_head(heads);
  for (Index row = 0; row < p.batch * p.query_heads * p.query_len; ++row) {
    const auto plane = static_cast<std::size_t>(row / p.query_len);
    for (Index j = 0; j < p.key_len; j += 64) {
      for (Tally* tally : {&whole, &of_batch[plane / heads], &of_head[plane % heads]}) {
        tally->add(draws.counts.from(row, j), draws.kept.from(row, j));
      }
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

// ---- Independence ------------------------------------------------------------------------------

// A head of a batch element, and how far its element lies from its partner: elements of two heads,
// or of one, that are compared in pairs.
struct Pairing {
  Index first, second;  // planes of the mask: heads, batch elements outermost
  Index rows, keys;     // from the first's element to the second's; keys are not negative
};

// Those that are compared: in one plane the nearest 64 of the same row and of the same column, in
// two the same place and the nearest 8.
std::vector<Pairing> pairings(const Problem& p) {
  constexpr Index kWithin = 64, kBetween = 8;
  std::vector<Pairing> all;
  const Index planes = p.batch * p.query_heads;
  for (Index a = 0; a < planes; ++a) {
    for (Index d = 1; d <= std::min(kWithin, p.key_len - 1); ++d) all.push_back({a, a, 0, d});
    for (Index d = 1; d <= std::min(kWithin, p.query_len - 1); ++d) all.push_back({a, a, d, 0});
    for (Index b = a + 1; b < planes; ++b) {
      all.push_back({a, b, 0, 0});
      for (Index d = 1; d <= kBetween; ++d) {
        for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
          if (d < p.key_len) all.push_back({one, other, 0, d});
          if (d < p.query_len) all.push_back({one, other, d, 0});
        }
      }
    }
  }
  return all;
}

// How many of the pairs whose elements both count are equal. Of one plane only every other stretch
// of elements begins a pair, so that none is in two and all pairs are independent.
Tally agreements(const Problem& p, const Draws& draws, const Pairing& pairing) {
  const bool one_plane = pairing.first == pairing.second;
  std::vector<std::uint64_t> begins(static_cast<std::size_t>(draws.counts.words()));
  for (Index j = 0; j < p.key_len; ++j) {
    if (one_plane && pairing.keys > 0 && j / pairing.keys % 2 != 0) continue;
    begins[static_cast<std::size_t>(j / 64)] |= std::uint64_t{1} << j % 64;
  }
  Tally tally;
  for (Index i = 0; i < p.query_len - pairing.rows; ++i) {
    if (one_plane && pairing.rows > 0 && i / pairing.rows % 2 != 0) continue;
    const Index a = pairing.first * p.query_len + i;
    const Index b = pairing.second * p.query_len + i + pairing.rows;
    for (Index j = 0; j < p.key_len; j += 64) {
      const Index partner = j + pairing.keys;
      tally.add(begins[static_cast<std::size_t>(j / 64)] & draws.counts.from(a, j) &
                    draws.counts.from(b, partner),
                ~(draws.kept.from(a, j) ^ draws.kept.from(b, partner)));
    }
  }
  return tally;
}

std::optional<Finding> dependence(const Problem& p, double quantum, const Draws& draws) {
  const std::vector<Pairing> all = pairings(p);
  const KeepRates agree = agreement(p.dropout, quantum);
  const double chance = kPairChance / static_cast<double>(all.size());
  for (const Pairing& pairing : all) {
    const Tally tally = agreements(p, draws, pairing);
    if (tally.count == 0) continue;
    const double share = tally.kept / tally.count;
    const double nearest = std::clamp(share, agree.lowest, agree.highest);
    if (share == nearest || tail(tally, nearest) >= chance / 2) continue;  // of two sides
    return failure(
        "statistical",
        fmt::format("elements of head {} of batch element {} and those {} rows and {} keys further "
                    "in head {} of batch element {} are equal in {} of {} visible pairs, where "
                    "independent ones are in {:.1f}",
                    pairing.first % p.query_heads, pairing.first / p.query_heads, pairing.rows,
                    pairing.keys, pairing.second % p.query_heads, pairing.second / p.query_heads,
                    tally.kept, tally.count, tally.count * nearest),
        "DROP-3.7");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> check_keep(const Problem& problem, const Inputs& inputs, double quantum,
                                  const Keep& first, const Keep& second) {
  if (auto found = difference(first, second)) return found;
  const Draws draws(first, elements_that_count(problem, inputs));
  if (auto found = rate_defect(problem, quantum, draws)) return found;
  return dependence(problem, quantum, draws);
}

}  // namespace attest
