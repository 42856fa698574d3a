#include "impl/vendor/nvidia_grid/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "impl/vendor/device/error.h"
#include "impl/vendor/nvidia_grid/example.h"
#include "impl/vendor/nvidia_grid/grids.h"

namespace attest::vendor::nvidia_grid {
namespace {

// One problem for all that has to be run: two heads, 1024 rows and keys.
constexpr ExampleSizes kRun = {.batch = 1, .heads = 2, .seqlen = 1024, .head_dim = 64};

constexpr const char* kTests = "tests/impl/vendor/nvidia_grid_gpu_test.cpp";

std::string test(const char* claim) { return fmt::format("{}: {}", kTests, claim); }

std::string text(const Dim3& grid) { return fmt::format("({}, {}, {})", grid.x, grid.y, grid.z); }

GridProblem of_heads(std::int64_t batch, std::int64_t heads, std::int64_t seqlen,
                     std::int64_t head_dim) {
  return {batch, heads, seqlen, seqlen, head_dim};
}

double per_score(std::int64_t bytes, const Launch& launch) {
  return static_cast<double>(bytes) / static_cast<double>(launch.counters.scores);
}

std::int64_t partials(const Launch& launch) {
  return launch.counters.partials_read + launch.counters.partials_written;
}

// How many rows each thread block of a forward launch was told to have computed.
std::string rows_of_blocks(const GpuRules& rules, std::int64_t head_dim, bool is_v1) {
  Gpu gpu(rules);
  std::set<std::pair<std::int64_t, std::int64_t>> rows;  // begin, end
  gpu.profiler = [&](const TileOfScores& tile) { rows.insert({tile.query_begin, tile.query_end}); };
  Example example({.batch = 1, .heads = 1, .seqlen = 512, .head_dim = head_dim});
  if (!is_v1) {
    example.v2_forward(gpu);
    return fmt::format("{}", rows.begin()->second - rows.begin()->first);
  }
  constexpr std::int64_t kSplits = 4;
  example.v1_forward(gpu, kSplits);
  std::map<std::int64_t, std::int64_t> of_split;
  for (const auto& [begin, end] : rows) of_split[begin / 16 % kSplits] += end - begin;
  return fmt::format("{} of 512 in each of {} splits", of_split.begin()->second, of_split.size());
}

std::string tile_of(const BackwardTile& tile) {
  return fmt::format("{} x {}", tile.rows, tile.keys);
}

// What the launches of one problem came to.
struct Runs {
  Launch v1_forward, v1_forward_alone, v1_backward, v2_forward, v2_backward;
};

Runs run_all(const GpuRules& rules, std::int64_t head_dim) {
  ExampleSizes sizes = kRun;
  sizes.head_dim = head_dim;
  Example example(sizes);
  Gpu gpu(rules);
  return {example.v1_forward(gpu), example.v1_forward(gpu, 1), example.v1_backward(gpu),
          example.v2_forward(gpu), example.v2_backward(gpu)};
}

std::vector<Figure> figures_of_grids() {
  const GpuRules a = a100(), h = h100();
  const GridProblem twelve = of_heads(4, 12, 2048, 64);
  const auto busy = [&](std::int64_t blocks, int per_sm) {
    return 100 * occupancy(a, blocks, per_sm).efficiency;
  };
  return {
      {"v1: dim3 grid(b, h, num_splits), batch 4, 12 heads, 2048 rows", "(b, h, num_splits)",
       fmt::format("{} on {} SMs, {} on {}", text(v1::forward_grid(a, twelve)), a.sms,
                   text(v1::forward_grid(h, twelve)), h.sms),
       "grids.cpp, v1::forward_grid; forward_v1.cpp, run_fmha_fwd"},
      {"num_splits is computed from batch_size and head_num, for the number of SMs", "",
       fmt::format("1 head: {}, 48 heads: {}, 512 heads: {} on {} SMs; {}, {}, {} on {}",
                   v1::forward_splits(a, of_heads(1, 1, 2048, 64)),
                   v1::forward_splits(a, of_heads(1, 48, 2048, 64)),
                   v1::forward_splits(a, of_heads(1, 512, 2048, 64)), a.sms,
                   v1::forward_splits(h, of_heads(1, 1, 2048, 64)),
                   v1::forward_splits(h, of_heads(1, 48, 2048, 64)),
                   v1::forward_splits(h, of_heads(1, 512, 2048, 64)), h.sms),
       "grids.cpp, num_splits_heuristic_fwd"},
      {"v2: num_m_block = ceil(seqlen_q / kBlockM), dim3 grid(num_m_block, b, h)",
       "(num_m_block, b, h)", text(v2::forward_grid(a, twelve)),
       "grids.cpp, v2::forward_grid; forward_v2.cpp, run_mha_fwd"},
      {"v2's grid has nothing to do with the number of SMs", "",
       fmt::format("{} on {} SMs, {} on {}", text(v2::forward_grid(a, twelve)), a.sms,
                   text(v2::forward_grid(h, twelve)), h.sms),
       test("TheSecondGridIsTheSameOnEveryGpu")},
      {"the original release had no parallelism along the sequence: (b, h), of 8192 rows, 8 heads",
       "none",
       fmt::format("busy places in all waves: {:.0f}% of (b, h), {:.0f}% of v1's grid, {:.0f}% of "
                   "v2's, on {} SMs that hold 2 blocks each",
                   busy(8, 2), busy(v1::forward_grid(a, of_heads(1, 8, 8192, 64)).blocks(), 2),
                   busy(v2::forward_grid(a, of_heads(1, 8, 8192, 64)).blocks(), 2), a.sms),
       test("OneSplitLeavesMostSmsIdle")},
      {"v1 finds the best efficiency for the number of SMs: 48 heads on 108 SMs, one block each",
       "2 splits .89, 3 splits .67 (a comment in the release)",
       fmt::format("2 splits {:.2f}, 3 splits {:.2f}; it takes {}", occupancy(a, 96, 1).efficiency,
                   occupancy(a, 144, 1).efficiency, num_splits_heuristic_fwd(48, a.sms, 30)),
       test("TheHeuristicTakesTheFewestSplitsNearTheBest")},
      {"occupancy of both grids, batch 4, 12 heads, 2048 rows, 108 and 132 SMs, two blocks each",
       "",
       fmt::format("v1 {:.0f}% and {:.0f}%, v2 {:.0f}% and {:.0f}%",
                   100 * occupancy(a, v1::forward_grid(a, twelve).blocks(), 2).efficiency,
                   100 * occupancy(h, v1::forward_grid(h, twelve).blocks(), 2).efficiency,
                   100 * occupancy(a, v2::forward_grid(a, twelve).blocks(), 2).efficiency,
                   100 * occupancy(h, v2::forward_grid(h, twelve).blocks(), 2).efficiency),
       "gpu_rules.cpp, occupancy"},
      {"the same 48 heads on 132 SMs", "",
       fmt::format("2 splits {:.2f}, 3 splits {:.2f}; it takes {}", occupancy(h, 96, 1).efficiency,
                   occupancy(h, 144, 1).efficiency, num_splits_heuristic_fwd(48, h.sms, 30)),
       test("TheHeuristicTakesTheFewestSplitsNearTheBest")},
  };
}

std::vector<Figure> figures_of_rows(const Runs& runs) {
  return {
      {"v1: each thread block takes care of (seqlen_q / num_splits) rows", "seqlen_q / num_splits",
       rows_of_blocks(a100(), 64, true), "forward_v1.cpp, split: each num_splits-th strip of 16"},
      {"v2: each thread block will take care of 128 rows", "128", rows_of_blocks(a100(), 64, false),
       "tiles.cpp, v2_forward_tile"},
      {"v2: sometimes 64 rows for large head dimension (256 channels, 132 SMs)", "64",
       rows_of_blocks(h100(), 256, false), "tiles.cpp, v2_forward_tile"},
      {"v2 is simpler and works better", "",
       fmt::format("cycles of the forward pass, {} SMs: v1 {}, v2 {}", a100().sms,
                   runs.v1_forward.elapsed.longest(), runs.v2_forward.elapsed.longest()),
       test("TheSecondVersionTakesLessTimeInBothPasses")},
      {"each iteration of v2's outer loop runs on another SM, in parallel", "",
       fmt::format("{} thread blocks on {} SMs", runs.v2_forward.grid.blocks(),
                   runs.v2_forward.elapsed.of_core.size()),
       "gpu.cpp, Gpu::launch"},
  };
}

std::vector<Figure> figures_of_loops(const Runs& runs) {
  const Counters &v1 = runs.v1_forward.counters, &alone = runs.v1_forward_alone.counters;
  const Counters& v2 = runs.v2_forward.counters;
  return {
      {"with Q outside a row's reduction is completed on the same SM", "",
       fmt::format("{} bytes of partial sums in global memory", partials(runs.v2_forward)),
       test("OnlyKeysOutsideTakePartialSumsToGlobalMemory")},
      {"with K and V outside the row reduction has to communicate through global memory", "",
       fmt::format("{} bytes of O and LSE written and read again, beside {} of O and LSE that are "
                   "whole",
                   partials(runs.v1_forward), v1.outputs_written),
       "forward_v1.cpp, strip: o_tmp and LSE; " +
           test("OnlyKeysOutsideTakePartialSumsToGlobalMemory")},
      {"the exchanged loops reduce a lot of reading and writing HBM", "",
       fmt::format(
           "asked of global memory, bytes for each score: v1 {:.2f} in one split, {:.2f} in "
           "{}, v2 {:.2f}",
           per_score(alone.global(), runs.v1_forward_alone),
           per_score(v1.global(), runs.v1_forward), runs.v1_forward.grid.z,
           per_score(v2.global(), runs.v2_forward)),
       test("OnlyKeysOutsideTakePartialSumsToGlobalMemory")},
      {"\"I think it's the same, no matter which way you go\"", "the same",
       fmt::format("bytes: K and V outside, in one split, {} of inputs and {} of partial sums; Q "
                   "outside {} and {}",
                   alone.inputs_read, partials(runs.v1_forward_alone), v2.inputs_read,
                   partials(runs.v2_forward)),
       "inputs_read of thread_block.h, of both forward passes"},
      {"the work-partitioning between warps: v1's share a row's keys, v2's have rows", "",
       fmt::format("forward, shared memory for O, maxima and sums of all warps, bytes for each "
                   "score: v1 {:.2f}, v2 {:.2f}",
                   per_score(v1.shared_of_split_k, runs.v1_forward),
                   per_score(v2.shared_of_split_k, runs.v2_forward)),
       "tiles.cpp, ForwardTile::of_output"},
  };
}

// Whether v2's square blocks could have had v1's split-K: what they would take of shared memory.
std::string split_square() {
  BackwardTile square = v2_backward_tile(a100(), 64);
  square.split_k = true;
  const std::size_t bytes = square.resources().shared_bytes;
  try {
    Gpu(a100()).launch("split 128 x 128", {1, 1, 1}, square.resources(),
                       [](ThreadBlock&, const Dim3&) {});
  } catch (const device::DeviceError& error) {
    return fmt::format("{} bytes: {}", bytes, error.what());
  }
  return fmt::format("{} bytes: it fits", bytes);
}

std::vector<Figure> figures_of_backward(const Runs& runs, const Runs& wide) {
  const Counters &v1 = runs.v1_backward.counters, &v2 = runs.v2_backward.counters;
  const BackwardTile strip = v1_backward_tile(64, 1024);
  const auto shared = [](const Launch& launch) {
    return per_score(launch.counters.shared(), launch);
  };
  GpuRules without = a100();
  without.has_cp_async = false;
  Gpu old(without);
  const Launch staged = Example(kRun).v2_backward(old);
  return {
      {"backward: both are parallel along seqlen_k, the inner loop is along seqlen_q", "",
       fmt::format("grids v1 {}, v2 {}", text(runs.v1_backward.grid), text(runs.v2_backward.grid)),
       "backward_v1.cpp, backward_v2.cpp: key_block"},
      {"v2 still has a greater improvement in the backward pass", "",
       fmt::format("cycles, 64 channels: v1 {}, v2 {}; 128 channels: v1 {}, v2 {}",
                   runs.v1_backward.elapsed.longest(), runs.v2_backward.elapsed.longest(),
                   wide.v1_backward.elapsed.longest(), wide.v2_backward.elapsed.longest()),
       test("TheSecondVersionTakesLessTimeInBothPasses")},
      {"not using split-k: less shared memory is needed", "",
       fmt::format("of {} bytes of a 16 x 256 block {} are for the warps' parts of dQ; of a 128 x "
                   "128 block {}",
                   strip.resources().shared_bytes, strip.split_k_bytes(),
                   v2_backward_tile(a100(), 64).split_k_bytes()),
       "tiles.cpp, BackwardTile::resources"},
      {"not using split-k: less shared memory read/write", "",
       fmt::format("bytes for each score, 64 channels: v1 {:.1f}, {:.1f} of them split-K, v2 "
                   "{:.1f}; 128 channels: {:.1f}, {:.1f} and {:.1f}",
                   shared(runs.v1_backward), per_score(v1.shared_of_split_k, runs.v1_backward),
                   shared(runs.v2_backward), shared(wide.v1_backward),
                   per_score(wide.v1_backward.counters.shared_of_split_k, wide.v1_backward),
                   shared(wide.v2_backward)),
       test("SplitKTakesAQuarterOfSharedTrafficAndItsAbsenceNone")},
      {"better work partitioning between warps allows square blocks: 128 x 128 with split-K", "",
       split_square(), test("SquareBlocksWithSplitKDoNotFitTheSharedMemory")},
      {"square blocks in v2", "128 x 128 or 64 x 128",
       fmt::format("64 channels {}, 128 channels {}", tile_of(v2_backward_tile(a100(), 64)),
                   tile_of(v2_backward_tile(a100(), 128))),
       "tiles.cpp, v2_backward_tile"},
      {"instead of (the text has v2 here too, and means v1)", "16 x 128 or 16 x 256",
       fmt::format("128 channels {}, 64 channels {}", tile_of(v1_backward_tile(128, 1024)),
                   tile_of(strip)),
       "tiles.cpp, v1_backward_tile"},
      {"cp.async of Ampere: copies beside the products, and past the registers", "",
       fmt::format("v2 backward: {} cycles with it, {} without, and {} bytes through registers in "
                   "place of {}",
                   runs.v2_backward.elapsed.longest(), staged.elapsed.longest(),
                   staged.counters.staged_in_registers, v2.staged_in_registers),
       "thread_block.cpp, commit and wait; " + test("AsynchronousCopiesSaveTimeAndRegisters")},
  };
}

std::vector<Figure> figures_not_here() {
  return {
      {"paper reproduced on an A10 by v1.0.7 and v2.0.7", "", "",
       "no A10: it has tiles of its own, less shared memory and other rates; the seed gives no "
       "time. "
       "v1 is 1.0.7's interface; v2's masks are aligned to the bottom right, as since 2.1"},
      {"fmha_fwd_launch_template.h, line 86 and lines 27, 28", "", "",
       "grids.cpp; v2's file is called flash_fwd_launch_template.h in its release"},
  };
}

}  // namespace

std::vector<Figure> nvidia_grid_figures() {
  const Runs runs = run_all(a100(), 64), wide = run_all(a100(), 128);
  std::vector<Figure> all;
  for (const std::vector<Figure>& part :
       {figures_of_grids(), figures_of_rows(runs), figures_of_loops(runs),
        figures_of_backward(runs, wide), figures_not_here()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace attest::vendor::nvidia_grid
