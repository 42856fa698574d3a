#include "harness/judge/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/process/wire.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

std::string describe(const Block& b) {
  return fmt::format("block (worker {}, batch {}, head {}, queries {}..{}, keys {}..{})", b.worker,
                     b.batch, b.head, b.query_begin, b.query_end, b.key_begin, b.key_end);
}

Finding broken(const char* clause, const std::string& message) {
  return failure("schedule", message, clause);
}

// Numbers at the corners of a grid of queries and keys. They count pairs, and blocks, of which
// there are fewer than 2^32, and on the way to that they may be below 0, which is the same modulo
// 2^32.
class Grid {
 public:
  using Count = std::uint32_t;
  Grid(Index queries, Index keys)
      : width_(keys + 1), cells_(static_cast<std::size_t>((queries + 1) * (keys + 1))) {}

  Count& at(Index query, Index key) {
    return cells_[static_cast<std::size_t>(query * width_ + key)];
  }
  // Of a grid of sums over all that lies before: the sum over a block.
  Count sum(const Block& b) {
    return at(b.query_end, b.key_end) - at(b.query_begin, b.key_end) -
           at(b.query_end, b.key_begin) + at(b.query_begin, b.key_begin);
  }

 private:
  Index width_;
  std::vector<Count> cells_;
};

}  // namespace

// The score matrix of one batch element and head. Each block costs the same, however large it is.
class Plane {
 public:
  Plane(const Problem& p, const Inputs& in, Index b, Index h)
      : problem_(p), inputs_(in), batch_(b), head_(h), allowed_(p.query_len, p.key_len) {
    for (Index i = 0; i < p.query_len; ++i) {
      Grid::Count of_row = 0;
      for (Index j = 0; j < p.key_len; ++j) {
        of_row += visible(p, {.batch = b, .head = h, .query = i, .key = j});
        allowed_.at(i + 1, j + 1) = allowed_.at(i, j + 1) + of_row;
      }
    }
  }

  // Of one pass.
  std::optional<Finding> defect(const std::vector<const Block*>& blocks, bool masks_partial_only) {
    Grid steps(problem_.query_len, problem_.key_len);
    for (const Block* block : blocks) {
      const Index pairs =
          (block->query_end - block->query_begin) * (block->key_end - block->key_begin);
      const Index allowed = allowed_.sum(*block);
      if (allowed == 0) {
        return broken("SCHED-1", fmt::format("{} has no visible pair", describe(*block)));
      }
      const bool partial = allowed < pairs;
      if (masks_partial_only && block->masked != partial) {
        return broken("SCHED-2",
                      fmt::format("{} is reported as {}, and {}", describe(*block),
                                  block->masked ? "masked" : "not masked",
                                  partial ? "some of its pairs are hidden" : "none is hidden"));
      }
      ++steps.at(block->query_begin, block->key_begin);
      --steps.at(block->query_end, block->key_begin);
      --steps.at(block->query_begin, block->key_end);
      ++steps.at(block->query_end, block->key_end);
    }
    return miscounted(steps, blocks);
  }

 private:
  // Adds steps up to counts, and looks for a visible pair that lies in no block or in several.
  std::optional<Finding> miscounted(Grid& counts, const std::vector<const Block*>& blocks) {
    for (Index i = 0; i < problem_.query_len; ++i) {
      Grid::Count count = 0;
      for (Index j = 0; j < problem_.key_len; ++j) {
        if (i > 0) counts.at(i, j) += counts.at(i - 1, j);
        count += counts.at(i, j);
        if (count == 1) continue;
        const Position position = {.batch = batch_, .head = head_, .query = i, .key = j};
        if (!sees(problem_, inputs_, position)) continue;
        const std::string pair = fmt::format(
            "the visible pair of query {} and key {}, batch {}, "
            "head {}",
            i, j, batch_, head_);
        if (count == 0) return broken("SCHED-1", pair + " lies in no block");
        std::string where;
        for (const Block* b : blocks) {
          const bool holds =
              b->query_begin <= i && i < b->query_end && b->key_begin <= j && j < b->key_end;
          if (holds) where += (where.empty() ? "" : ", ") + describe(*b);
          if (where.size() > 300) break;
        }
        return broken("SCHED-1", fmt::format("{} lies in {} blocks: {}", pair, count, where));
      }
    }
    return std::nullopt;
  }

  const Problem& problem_;
  const Inputs& inputs_;
  Index batch_, head_;
  Grid allowed_;  // sums of the pairs that mask and lengths allow
};

Planes::Planes(const Problem& problem, const Inputs& inputs) : problem_(problem), inputs_(inputs) {}

Planes::~Planes() = default;

Plane& Planes::at(Index batch, Index head) {
  constexpr Index kMostKept = Index(1) << 24;  // pairs
  const std::pair place(batch, head);
  if (const auto known = planes_.find(place); known != planes_.end()) return *known->second;
  const Index kept = problem_.query_len * problem_.key_len * Index(planes_.size());
  if (kept > kMostKept) planes_.clear();
  return *(planes_[place] = std::make_unique<Plane>(problem_, inputs_, batch, head));
}

namespace {

std::optional<Finding> misplaced(const Problem& p, const Block& b, bool backward, int threads) {
  const auto range = [](Index begin, Index end, Index size) {
    return 0 <= begin && begin <= end && end <= size;
  };
  const auto below = [](Index number, Index size) { return 0 <= number && number < size; };
  if (!below(b.worker, threads)) {
    return broken("SCHED-1",
                  fmt::format("{} is of a worker beyond the {} of the call", describe(b), threads));
  }
  if (!below(b.batch, p.batch) || !below(b.head, p.query_heads) ||
      !range(b.query_begin, b.query_end, p.query_len) ||
      !range(b.key_begin, b.key_end, p.key_len)) {
    return broken("SCHED-1", fmt::format("{} lies beyond the sizes", describe(b)));
  }
  if (b.pass < 0 || (b.pass > 0) != backward) {
    return broken("SCHED-1", fmt::format("{} is reported as of pass {} by a {} call", describe(b),
                                         b.pass, backward ? "backward" : "forward"));
  }
  return std::nullopt;
}

// Pairs of each worker.
std::vector<double> shares_of(const std::vector<Block>& blocks, int threads) {
  std::vector<double> pairs(static_cast<std::size_t>(threads));
  for (const Block& b : blocks) {
    pairs[static_cast<std::size_t>(b.worker)] += static_cast<double>(b.query_end - b.query_begin) *
                                                 static_cast<double>(b.key_end - b.key_begin);
  }
  return pairs;
}

// The largest of so many shares, those not listed 0, in means of all; 1 if there is nothing to
// share.
double imbalance_of(const std::vector<double>& shares, int count) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  return all > 0 ? *std::max_element(shares.begin(), shares.end()) * count / all : 1;
}

std::optional<Finding> imbalanced(const std::vector<Block>& blocks, double declared, int threads) {
  const std::vector<double> pairs = shares_of(blocks, threads);
  const double all = std::accumulate(pairs.begin(), pairs.end(), 0.0);
  const auto busiest = std::max_element(pairs.begin(), pairs.end());
  if (*busiest * threads <= declared * all) return std::nullopt;
  return broken("SCHED-3",
                fmt::format("worker {} of {} has {} of {} pairs: {:.4g} times the mean, declared "
                            "{:.4g}",
                            busiest - pairs.begin(), threads, *busiest, all,
                            *busiest * threads / all, declared));
}

// Whether threads computed long enough to tell, and no less evenly than workers are said to have,
// within what a processor's speed and other work on it make of equal shares.
bool computes_so(const std::vector<double>& seconds, double imbalance, int threads) {
  constexpr double kEnoughSeconds = 1e-3, kUneven = 1.5;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) >= kEnoughSeconds &&
         imbalance_of(seconds, threads) <= kUneven * imbalance;
}

}  // namespace

std::vector<Block> blocks_from_json(const nlohmann::json& list) {
  const auto malformed = [] {
    return InputError("", fmt::format("\"blocks\" is a list of at most {} lists of {} whole "
                                      "numbers",
                                      kMostBlocks, kBlockNumbers));
  };
  if (!list.is_array() || list.size() > kMostBlocks) throw malformed();
  std::vector<Block> blocks;
  for (const auto& numbers : list) {
    if (!numbers.is_array() || numbers.size() != kBlockNumbers) throw malformed();
    std::array<Index, kBlockNumbers> n{};
    for (std::size_t i = 0; i < n.size(); ++i) {
      if (!numbers[i].is_number_integer()) throw malformed();
      n[i] = numbers[i].get<Index>();
    }
    blocks.push_back({.worker = n[0],
                      .batch = n[1],
                      .head = n[2],
                      .query_begin = n[3],
                      .query_end = n[4],
                      .key_begin = n[5],
                      .key_end = n[6],
                      .masked = n[7] != 0,
                      .pass = n[8]});
  }
  return blocks;
}

std::optional<Finding> schedule_defect(Planes& planes, const ScheduleDeclaration& declared,
                                       const std::vector<Block>& blocks, bool backward,
                                       int threads) {
  const Problem& p = planes.problem();
  // A backward call has at least one pass, whatever it reports.
  std::set<Index> passes = {backward ? 1 : 0};
  std::map<std::array<Index, 3>, std::vector<const Block*>> parts;
  for (const Block& block : blocks) {
    if (auto finding = misplaced(p, block, backward, threads)) return finding;
    passes.insert(block.pass);
    parts[{block.batch, block.head, block.pass}].push_back(&block);
  }
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (const Index pass : passes) {
        auto finding = planes.at(b, h).defect(parts[{b, h, pass}], declared.masks_partial_only);
        if (!finding) continue;
        if (pass > 0) finding->message += fmt::format(" (pass {} of the backward call)", pass);
        return finding;
      }
    }
  }
  if (declared.imbalance) return imbalanced(blocks, *declared.imbalance, threads);
  return std::nullopt;
}

ScheduleEvidence schedule_evidence(const std::vector<Block>& blocks, bool backward, int threads,
                                   const std::vector<double>& traced_seconds,
                                   const std::vector<double>& untraced_seconds) {
  ScheduleEvidence evidence = {.pass = backward ? "backward" : "forward",
                               .threads = threads,
                               .blocks = static_cast<Index>(blocks.size()),
                               .masked = std::count_if(blocks.begin(), blocks.end(),
                                                       [](const Block& b) { return b.masked; }),
                               .imbalance = imbalance_of(shares_of(blocks, threads), threads)};
  const bool both = computes_so(traced_seconds, evidence.imbalance, threads) &&
                    computes_so(untraced_seconds, evidence.imbalance, threads);
  evidence.seen = threads == 1 || both;  // one has nobody to share with
  return evidence;
}

}  // namespace attest
