#include "impl/flash.h"

#include <algorithm>
#include <vector>

#include "impl/bias_gradient.h"
#include "impl/flash/backward.h"
#include "impl/flash/backward_evenly.h"
#include "impl/flash/bias_gradient.h"
#include "impl/flash/forward.h"
#include "impl/parallel.h"
#include "impl/sink.h"

namespace attest::impl {

// Balanced, the order of the backward sums depends on the number of workers, and that on how much
// there is to do.
template <Dealing dealing>
ArithmeticDeclaration flash_arithmetic(const std::string& dtype) {
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p_normalised"] = "last";
  declared["tanh_ulp"] = 3;  // functions.inl
  declared["key_block"] = kKeyBlock;
  declared["thread_invariant"] = declared["batch_invariant"] = dealing == Dealing::contiguous;
  return declared;
}

// Blocks are reported as they are computed, those that a mask cuts in pieces.
//
// Balanced, the busiest of T <= 3 workers has no more than 1.15 times the mean, if the mask is full
// or causal and S = Sq = Sk >= 2048. Forward, n = S/96 rows are dealt in pairs that have equally
// much to do. Where they make no whole rounds, a worker may have one row more than the mean, and
// equal rows (full) are then 1 + T/n = 1.14 times the mean; of a triangle it is the shortest rows
// that lack a partner. Backward, every worker has equally many blocks but for one. Those on the
// diagonal of a triangle have half as much to do, and a worker at its long side has fewer of them:
// of the 35 blocks that each of three has at S = 2048, 7 where the mean is 10.
template <Dealing dealing>
ScheduleDeclaration flash_schedule() {
  return {.masks_partial_only = true,
          .imbalance = dealing == Dealing::balanced ? std::optional(1.15) : std::nullopt};
}

// The workspace, as ForwardTiles and BackwardTiles lay it out for each worker: the larger of the
// two in each term, for the widest computing type (f64) and panels (four vectors of 64 bytes).
template <Dealing dealing>
MemoryDeclaration flash_memory() {
  constexpr std::int64_t kWide = 8, kPanel = 256, kLine = 64;
  const auto scores = [](std::int64_t keys) {
    return kQueryBlock * (keys * kWide + kPanel + 2 * kLine);
  };
  const std::int64_t forward =
      scores(kLongKeyBlock) + kQueryBlock * (kPanel + 2 * kWide + kLongKeyBlock) + 9 * kLine;
  const std::int64_t backward = 3 * scores(kKeyBlock) + kQueryBlock * kKeyBlock * (kWide + 1) +
                                (2 * kQueryBlock + 3 * kKeyBlock) * kPanel + 18 * kLine;
  const std::int64_t forward_rows = kLongKeyBlock + 2 * kQueryBlock;
  const std::int64_t backward_rows = 5 * kKeyBlock + 5 * kQueryBlock;
  return {.growth = "linear",
          .workspace = {
              {"per_thread", std::max(forward, backward)},
              {"per_thread_channel", std::max(forward_rows, backward_rows) * kWide + 2 * kPanel},
              {"per_thread_query", kPanel + 2 * kWide},
              {"per_thread_query_channel", kWide},
              {"per_thread_key", 2 * kPanel},
              {"per_thread_key_channel", 2 * kWide}}};
}

std::uint64_t flash_workspace(const Call& call, bool backward, Dealing dealing) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    return backward ? backward_tiles<R>(call, dealing, Arena()).bytes
                    : forward_tiles<R>(call, Arena()).bytes;
  });
}

namespace {

template <class T>
void backward_as(const Call& call, Dealing dealing) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = flash_workspace(call, true, dealing);
  Workers workers(call.workers);
  const auto for_each_unit = [&](std::int64_t units, const auto& work) {
    workers.share_out(units, [&](int number, std::int64_t begin, std::int64_t end) {
      BackwardWorker<R> worker(
          call, number, backward_tiles<R>(call, dealing, Arena(workspace_of(call, number, bytes))));
      for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
    });
  };
  if (dealing == Dealing::contiguous) {
    for_each_unit(p.batch * p.key_heads, [&](BackwardWorker<R>& w, std::int64_t unit) {
      backward_head<T>(w, unit / p.key_heads, unit % p.key_heads);
    });
  } else {
    for (std::int64_t b = 0; b < p.batch && p.key_heads > 0; ++b) {
      const std::vector<BlockRow> rows = key_rows(call, b);
      for (std::int64_t head = 0; head < p.key_heads; ++head) {
        backward_head_evenly<T>(call, workers, b, head, rows);
      }
    }
  }
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kQueryBlock, kKeyBlock);
    for_each_unit(parts.count(), [&](BackwardWorker<R>& w, std::int64_t unit) {
      bias_gradient<T>(w, parts[unit]);
    });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

}  // namespace

void flash_forward(const Call& call, Dealing dealing) {
  with_element_type(call.problem.dtype, [&](auto e) { forward_as<decltype(e)>(call, dealing); });
}

void flash_backward(const Call& call, Dealing dealing) {
  with_element_type(call.problem.dtype, [&](auto e) { backward_as<decltype(e)>(call, dealing); });
}

template ArithmeticDeclaration flash_arithmetic<Dealing::contiguous>(const std::string&);
template ScheduleDeclaration flash_schedule<Dealing::contiguous>();
template MemoryDeclaration flash_memory<Dealing::contiguous>();
template ArithmeticDeclaration flash_arithmetic<Dealing::balanced>(const std::string&);
template ScheduleDeclaration flash_schedule<Dealing::balanced>();
template MemoryDeclaration flash_memory<Dealing::balanced>();

}  // namespace attest::impl
