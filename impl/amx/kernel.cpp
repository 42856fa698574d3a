// What is declared, and both passes: forward.cpp and backward.cpp have what one worker does.
#include "impl/amx/kernel.h"

#include <algorithm>

#include "impl/amx/backward.h"
#include "impl/amx/forward.h"
#include "impl/sink.h"

namespace attest::impl::amx {

// ---- The declaration ---------------------------------------------------------------------------

// Tiles take subnormal numbers as 0, and so they do with the sums that they keep.
ArithmeticDeclaration tile_arithmetic(const std::string& dtype) {
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p"] = declared["ds"] = dtype;
  declared["p_normalised"] = "last";
  declared["key_block"] = kKeyBlock;
  declared["subnormal_inputs"] = declared["subnormal_outputs"] = "flushed";
  declared["thread_invariant"] = declared["batch_invariant"] = true;
  return declared;
}

ScheduleDeclaration tile_schedule() { return {.masks_partial_only = true}; }

// The workspace, as ForwardTiles and BackwardTiles lay it out for each worker: of both, for each
// kind of memory, the larger. A padded size is at most kEdge larger, whole blocks at most one
// block.
MemoryDeclaration tile_memory() {
  constexpr std::int64_t kBits = sizeof(Bits), kFloat = sizeof(float), kLine = 64;
  // Bytes for `rows` rows of padded channels.
  struct Rows {
    std::int64_t bytes;
    std::int64_t fixed() const { return bytes * kEdge; }
    std::int64_t per_channel() const { return bytes; }
  };
  const Rows forward = {2 * kEdge * kBits + kKeyBlock * kBits + kQueryBlock * (kBits + kFloat)};
  const Rows backward = {kGradientBlock * (4 * kBits + 3 * kFloat + 3 * kBits)};
  const std::int64_t forward_fixed =
      forward.fixed() + kQueryBlock * (16 + 2) * kFloat +
      2 * kStrip * (kScoreStride * kFloat + kWeightStride * kBits + kKeyBlock) + 16 * kLine;
  const std::int64_t backward_fixed =
      backward.fixed() +
      kGradientBlock * (2 * kFloat + kGradientStride * kFloat + kGradientBlock * 8) +
      2 * kGradientBlock *
          (2 * kGradientStride * kFloat + kNarrowStride * kBits +
           kGradientBlock * (2 * kBits + 1)) +
      32 * kLine;
  const std::int64_t query_bytes = 4 * kBits + kFloat, key_bytes = 2 * kFloat;
  return {
      .growth = "linear",
      .workspace = {{"per_thread", std::max(forward_fixed, backward_fixed)},
                    {"per_thread_channel", std::max(forward.per_channel(), backward.per_channel())},
                    {"per_thread_query", query_bytes * kEdge + 2 * kFloat},
                    {"per_thread_query_channel", query_bytes},
                    {"per_thread_key", key_bytes * kEdge},
                    {"per_thread_key_channel", key_bytes}}};
}

std::uint64_t tile_workspace(const Call& call, bool backward) {
  return backward ? BackwardTiles(call.problem, Arena()).bytes
                  : ForwardTiles(call.problem, Arena()).bytes;
}

// ---- Both passes -------------------------------------------------------------------------------

// Neighbouring query blocks forward, whole key heads backward: no bit depends on how many workers
// there are.
void tile_forward(const Call& call, const Steps& steps) {
  const attest_problem& p = call.problem;
  const std::int64_t blocks = blocks_of(p.query_len, kQueryBlock);
  const std::uint64_t bytes = tile_workspace(call, false);
  share_out(p.batch * p.query_heads * blocks, call.workers,
            [&](int number, std::int64_t begin, std::int64_t end) {
              ForwardWorker worker(call, steps, number, bytes);
              const TileUse use(steps);
              for (std::int64_t n = begin; n < end; ++n) {
                const std::int64_t head = n / blocks;
                forward_block(worker, head / p.query_heads, head % p.query_heads,
                              n % blocks * kQueryBlock);
              }
            });
}

void tile_backward(const Call& call, const Steps& steps) {
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = tile_workspace(call, true);
  const auto for_each_unit = [&](std::int64_t units, const auto& work) {
    share_out(units, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
      BackwardWorker worker(call, steps, number, bytes);
      const TileUse use(steps);
      for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
    });
  };
  for_each_unit(p.batch * p.key_heads, [&](BackwardWorker& w, std::int64_t unit) {
    backward_head(w, unit / p.key_heads, unit % p.key_heads);
  });
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kGradientBlock, kGradientBlock);
    for_each_unit(parts.count(),
                  [&](BackwardWorker& w, std::int64_t unit) { bias_gradient(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

}  // namespace attest::impl::amx
