// What both passes on matrix tiles stand on: the sizes of blocks, and a worker.
#pragma once

#include <cstdint>

#include "impl/amx/steps.h"
#include "impl/elements.h"
#include "impl/parallel.h"
#include "impl/plugin.h"
#include "impl/tile.h"
#include "impl/worker.h"

namespace attest::impl::amx {

using T = BFloat16;

// Forward, a worker has some query blocks of O in the second-level cache, and takes strips of them
// through one key block after the other: small enough that a strip's scores stay in the first-level
// cache while a row is worked on, and large enough that sums are long. Backward, sums run over
// queries as well as over keys.
constexpr std::int64_t kQueryBlock = 128, kStrip = kEdge, kKeyBlock = 256;
constexpr std::int64_t kGradientBlock = 128;  // of queries, and of keys
// Between rows: whatever is not a power of two, lest all rows share a few lines of the cache.
constexpr std::int64_t kScoreStride = kKeyBlock + 16, kWeightStride = kKeyBlock + 32;
constexpr std::int64_t kGradientStride = kGradientBlock + 16;
constexpr std::int64_t kNarrowStride = kGradientBlock + 32;

inline std::int64_t whole_blocks(std::int64_t queries) {
  return blocks_of(queries, kGradientBlock) * kGradientBlock;
}

// The thread may use the machine's tiles as long as this lives.
class TileUse {
 public:
  explicit TileUse(const Steps& steps) : steps_(steps) { steps.enter(); }
  ~TileUse() { steps_.leave(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  const Steps& steps_;
};

template <class Tiles>
struct Worker : WorkerState {
  Worker(const Call& the_call, const Steps& the_steps, int the_number, std::uint64_t bytes)
      : WorkerState(the_call, the_number),
        problem(call.problem),
        steps(the_steps),
        tile(problem, Arena(workspace_of(call, number, bytes))) {}

  // Whether scores are final as soon as they are scaled.
  bool scores_are_plain() const {
    return problem.softcap == 0 && !problem.has_bias && !problem.has_alibi;
  }
  bool drops() const { return problem.dropout != ATTEST_DROPOUT_NONE; }

  const attest_problem& problem;
  const Steps& steps;
  Tiles tile;
};

}  // namespace attest::impl::amx
