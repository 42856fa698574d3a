#include "impl/flash.h"

#include <algorithm>

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
