#include "impl/vendor/ascend/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "impl/vendor/ascend/ascend_api.h"
#include "impl/vendor/ascend/backward.h"
#include "impl/vendor/ascend/forward.h"
#include "impl/vendor/ascend/schedule.h"

namespace attest::vendor::ascend {

namespace {

using Rows = std::vector<Figure>;

const char* const kTest = "tests/impl/vendor/ascend_test.cpp";
const char* const kMechanism = "";  // of a mechanism the text has no number

double share(Cycles part, Cycles of) { return static_cast<double>(part) / static_cast<double>(of); }

Shape scenario1() { return {"BNSD", 1, 12, 6144, 128, true}; }
// One batch element of 24: just what each of 24 cores gets.
Shape scenario2(const char* layout) { return {layout, 1, 5, 9216, 64, false}; }

Tiling of_one_core() {
  Tiling tiling;
  tiling.cores = 1;
  return tiling;
}
// The operator before its second optimisation: a block at a time, cube and vector core in turn.
Tiling serial() {
  Tiling tiling;
  tiling.blocks_at_once = 1;
  tiling.ahead = tiling.next_round = false;
  return tiling;
}

Profile backward_run(const Shape& shape, const Tiling& tiling) {
  return run_backward(plan_of_time(shape, tiling, true));
}

// Scenario 1 as the seed leaves it: asked for by many rows, and the same each time.
const Profile& best_of_scenario1() {
  static const Profile profile = backward_run(scenario1(), Tiling());
  return profile;
}

void operation(Rows& rows) {
  rows.push_back(
      {"FlashAttentionScoreGrad is the backward pass of FlashAttentionScore, for "
       "training",
       kMechanism, "", "ascend_api.h; plugin.cpp; GRAD-1 to GRAD-3"});
  rows.push_back({"forward: dropout of the softmax of the masked, scaled scores, times V",
                  kMechanism, "", "forward.cpp; SOFTMAX-1, MASK-7, DROP-1"});
  rows.push_back({"step 1: P is computed again, and stays in the unified buffer", kMechanism,
                  fmt::format("in {} KB of ubBuffer, with what is beside it",
                              best_of_scenario1().ub_used / kKb),
                  "backward.cpp, recompute_p; softmaxMax and softmaxSum: LSE-1.5"});
  rows.push_back(
      {"step 2: dP = dropout(dY V^T)", kMechanism, "", "backward.cpp, mm1 and sub; DROP-2"});
  rows.push_back({"step 3: dS = P (dP - FlashSoftmaxGrad(dY, attention_in))", kMechanism, "",
                  "backward.cpp, softmax_grad and ds_and_dropped_p; GRAD-1"});
  rows.push_back({"step 4: dQ = dS K, times scale", kMechanism, "",
                  "backward.cpp, products and PostCore; GRAD-1"});
  rows.push_back({"step 5: dK = dS^T Q, times scale", kMechanism, "",
                  "backward.cpp, products and PostCore; GRAD-2"});
  rows.push_back({"step 6: dV = dropout(P)^T dY", kMechanism, "",
                  "backward.cpp, ds_and_dropped_p and products; GRAD-3, DROP-2"});
  rows.push_back({"Atlas A2 training and inference products", kMechanism,
                  fmt::format("{}, {} cores", atlas_a2().name, atlas_a2().cores),
                  "atlas_a2.h; no such device was at hand, and nothing was measured on one"});
}

void scenarios(Rows& rows) {
  const auto blocks = [](const Shape& shape) {
    return blocks_of(block_rows(plan_of_time(shape, of_one_core(), true)));
  };
  rows.push_back({"scenario 1: causal, lower triangle", "B=1 N1=N2=12 S1=S2=6144 D=128",
                  fmt::format("{} blocks of (128,128) of {}", blocks(scenario1()), 12 * 48 * 48),
                  "figures.cpp, time alone; its numbers in no case, for the oracle's time: "
                  "masks and blocks of that kind are in MASK-2's"});
  rows.push_back({"scenario 2: neither atten_mask nor drop_mask", "B=24 N1=N2=5 S1=S2=9216 D=64",
                  fmt::format("{} blocks for each of 24 cores", blocks(scenario2("BSH"))),
                  "figures.cpp, time alone, one batch element: a core's share"});
  rows.push_back({"five are tuned: tiling, core balance, CV pipeline, MTE2, FixPipe", kMechanism,
                  "", "struct Tiling in plan.h, and the layout (MTE2)"});
  rows.push_back({"tools: profile data, and the dotting chart of the CAModel", kMechanism,
                  fmt::format("cube ratio {:.2f} of scenario 1", best_of_scenario1().cube_ratio),
                  "profile.h has the ratios; no chart: the clocks of units are not kept"});
}

void tiling(Rows& rows) {
  AiCore core;
  UbBuffers buffers(core);
  rows.push_back({"InitBuffer of ubBuffer, tmpBuffer, vecClc3", "120 + 30 + 8 = 158 KB",
                  fmt::format("{} KB", core.unified.used() / 1024), "atlas_a2.h, UbBuffers"});
  rows.push_back(
      {"158 KB is less than the unified buffer", "not fully used",
       fmt::format("{} KB of {}", core.unified.used() / 1024, core.unified.bytes() / 1024),
       "atlas_a2.h; a larger block is an error of the device: " + std::string(kTest)});
  // The figures that show 32 and 16 are not in the text; a square of 512 gives both.
  const auto trips = [](int64_t base_m) {
    Tiling tiling = of_one_core();
    tiling.base_m = base_m;
    return backward_run({"BNSD", 1, 1, 512, 128, false}, tiling);
  };
  rows.push_back({"loop trips with basic blocks of (64,128)", "32", std::to_string(trips(64).trips),
                  std::string(kTest) + ", S1 = S2 = 512"});
  rows.push_back({"loop trips with basic blocks of (128,128)", "16",
                  std::to_string(trips(128).trips), std::string(kTest) + ", S1 = S2 = 512"});
  Tiling small;
  small.base_m = 64;
  Tiling small_serial = serial();
  small_serial.base_m = 64;
  rows.push_back(
      {"performance through the larger blocks", "x 2",
       fmt::format("x {:.2f}; before the CV pipeline x {:.2f}",
                   share(backward_run(scenario1(), small).cycles(), best_of_scenario1().cycles()),
                   share(backward_run(scenario1(), small_serial).cycles(),
                         backward_run(scenario1(), serial()).cycles())),
       "kTripHead in atlas_a2.h: half of the trips have half of the heads and fewer loads of K "
       "and V, but as many numbers to compute; twice would need trips that cost nothing but "
       "their heads"});
  const auto used = trips(128).ub_used;
  rows.push_back({"the larger the block that fits, the better", kMechanism,
                  fmt::format("(128,128) takes {} KB of ubBuffer's 120", used / kKb),
                  "backward.cpp; (256,128) does not fit: " + std::string(kTest)});
}

void pipeline(Rows& rows) {
  const Profile one = backward_run(scenario1(), serial());
  Tiling at_once = serial();
  at_once.blocks_at_once = Tiling().blocks_at_once;
  const Profile cached = backward_run(scenario1(), at_once);
  Tiling with_next = at_once;
  with_next.next_round = true;
  const Profile inserted = backward_run(scenario1(), with_next);
  Tiling ping_pong;
  ping_pong.next_round = false;
  const Profile ahead = backward_run(scenario1(), ping_pong);
  const Profile& best = best_of_scenario1();
  const Profile other = backward_run(scenario2("BNSD"), of_one_core());
  rows.push_back(
      {"Cube computation is faster than Vector computation", kMechanism,
       fmt::format("scenario 1: cube {}, vector {} cycles a block; scenario 2: {}, {}",
                   best.cube / best.trips, best.vector / best.trips, other.cube / other.trips,
                   other.vector / other.trips),
       "so in scenario 2; in scenario 1, at D = 128, a block's five products take about as long "
       "as its instructions, each of which takes a cycle for 256 bytes here"});
  rows.push_back({"before: both pipelines have large gaps", kMechanism,
                  fmt::format("cube {:.2f}, vector {:.2f} busy", one.cube_ratio, one.vector_ratio),
                  "figures.cpp, serial(); " + std::string(kTest)});
  rows.push_back(
      {"a matmul computes several basic blocks at once (SetTail: multiples of BaseM, "
       "BaseN), which lie in global memory: fewer CV communications",
       kMechanism, fmt::format("{} -> {} of the longest core", one.handovers, cached.handovers),
       "backward.cpp, launches of 4 blocks; " + std::string(kTest)});
  rows.push_back({"mm3.IterateAll into dkWorkSpaceGm, to be added to what is there", kMechanism, "",
                  "cube.cpp, fix with atomic_add; sums of dq, dk and dv in workspace.h"});
  rows.push_back({"pingpongIdx in the address of mulWorkSpaceGm", kMechanism,
                  fmt::format("x {:.2f}", share(cached.cycles(), ahead.cycles())),
                  "workspace.h; device/queue.h keeps the halves apart. In the seed drop and mul "
                  "have two halves, mm1 and mm2 one; here all have two, so that the cube core can "
                  "be a launch ahead"});
  rows.push_back(
      {"mm1, mm2 and mm3 cached: better parallelism", kMechanism,
       fmt::format("x {:.2f}: cube {:.2f}, vector {:.2f} busy", share(one.cycles(), ahead.cycles()),
                   ahead.cube_ratio, ahead.vector_ratio),
       "figures.cpp; " + std::string(kTest)});
  rows.push_back(
      {"vector work of the next round in the gap before mm2", kMechanism,
       fmt::format("x {:.2f} without the cube core ahead, x {:.2f} with it",
                   share(cached.cycles(), inserted.cycles()), share(ahead.cycles(), best.cycles())),
       "backward.cpp, vector_program. With the cube core ahead the scores are there "
       "in time, and there is no gap left to fill"});
  rows.push_back({"the gain is the CV time that is hidden", kMechanism,
                  fmt::format("{} of {} cycles", one.cycles() - best.cycles(), one.cycles()),
                  "figures.cpp"});
}

// Blocks of 768 rows, 8 rows of blocks a head, as in the seed's picture of S = 6144.
Plan picture(int64_t heads, Dealing dealing) {
  Tiling tiling;
  tiling.base_m = tiling.base_n = 768;
  tiling.dealing = dealing, tiling.cores = 9, tiling.blocks_at_once = 1;
  return plan_of_time({"BNSD", 1, heads, 6144, 128, true}, tiling, true);
}

void balance(Rows& rows) {
  const Plan by_rows = picture(1, Dealing::kByRows), evenly = picture(1, Dealing::kEvenly);
  const auto row_shares = deal_blocks(block_rows(by_rows), by_rows.tiling);
  const auto even_shares = deal_blocks(block_rows(evenly), evenly.tiling);
  rows.push_back({"8 rows of blocks on 9 cores, by rows: ceil(8/9) = 1 a core", "1",
                  std::to_string(row_shares[0].size()), "schedule.cpp, deal_by_rows"});
  rows.push_back(
      {"blocks of the first core", "1", std::to_string(blocks_of(row_shares[0])), kTest});
  rows.push_back(
      {"blocks of the eighth core", "8",
       fmt::format("{}; the ninth has {}", blocks_of(row_shares[7]), blocks_of(row_shares[8])),
       kTest});
  rows.push_back(
      {"blocks to compute", "36", std::to_string(blocks_of(block_rows(by_rows))), kTest});
  rows.push_back({"dealt evenly, each core", "4", std::to_string(blocks_of(even_shares[8])),
                  "schedule.cpp, deal_blocks"});
  rows.push_back({"the longest core, backward", "8 -> 4",
                  fmt::format("{} -> {}", most_blocks(row_shares), most_blocks(even_shares)),
                  std::string(kTest) + "; of kernels that report blocks: SCHED-3"});
  const Plan all_rows = picture(12, Dealing::kByRows), all_even = picture(12, Dealing::kEvenly);
  rows.push_back(
      {"the longest core, forward", "8 -> 4",
       fmt::format("{} -> {} of 12 heads; of one head 8 -> {}",
                   most_blocks(deal_rows(block_rows(all_rows), all_rows.tiling)),
                   most_blocks(deal_rows(block_rows(all_even), all_even.tiling)),
                   most_blocks(deal_rows(block_rows(evenly), evenly.tiling))),
       "schedule.cpp, deal_rows. A row's softmax stays on its core, so that rows are dealt whole: "
       "the heads even them out, one head alone cannot"});
  Tiling by_rows_tiling, even_tiling;
  by_rows_tiling.dealing = Dealing::kByRows;
  by_rows_tiling.cores = even_tiling.cores = 9;
  const auto ratio = [&](auto run, bool is_backward) {
    return share(run(plan_of_time(scenario1(), by_rows_tiling, is_backward)).cycles(),
                 run(plan_of_time(scenario1(), even_tiling, is_backward)).cycles());
  };
  rows.push_back({"performance through even division", "x 2",
                  fmt::format("backward x {:.2f}, forward x {:.2f}", ratio(run_backward, true),
                              ratio(run_forward, false)),
                  "scenario 1 in blocks of (128,128): of the picture's blocks on the diagonal "
                  "little more than half is to be computed, which makes it more than 2; sums are "
                  "cleared and cast by all cores in either case, which makes it less"});
}

void fixpipe(Rows& rows) {
  Tiling off;
  off.aligned_workspace = false;
  const Profile before = backward_run(scenario1(), off);
  const Profile& after = best_of_scenario1();
  const Workspace& w = plan_of_time(scenario1(), off, true).workspace;
  const Workspace& aligned = plan_of_time(scenario1(), Tiling(), true).workspace;
  rows.push_back({"FixPipe's ratio before", "0.81", fmt::format("{:.2f}", before.fixpipe_ratio),
                  "the vector core loads, computes and stores in turn, and its movers pay for the "
                  "addresses too: it is the longest, and FixPipe waits for it. No constant was "
                  "fitted to the ratio"});
  rows.push_back({"many transfers of 128 bytes", kMechanism,
                  fmt::format("{} -> {} bursts", before.bursts, after.bursts),
                  "device/dma.h, misaligned_burst"});
  rows.push_back({"the workspace does not begin at a multiple of 512 bytes", "512",
                  fmt::format("dq at byte {} before, at {} after", w.dq, aligned.dq),
                  "workspace.cpp; which of its terms was misaligned the seed does not say: here "
                  "the flags, 32 bytes for each core"});
  rows.push_back({"ADDR_ALIGN_SIZE, and offsets of (end + 512) / 512 * 512", "512",
                  fmt::format("dk at byte {}, a multiple: {}", aligned.dk,
                              aligned.dk % kAddressAlign == 0 ? "yes" : "no"),
                  "workspace.cpp"});
  rows.push_back({"SYNC_GLOBAL_WORKSPACE_SIZE stands first", kMechanism,
                  fmt::format("{} bytes", kSyncGlobal),
                  "workspace.h; the number is of the operator's public source"});
  rows.push_back(
      {"matmulWorkspaceSize = cubeBaseMN floats for each core, mm1 and mm2 "
       "(INPUT_NUMS 2)",
       kMechanism, fmt::format("{} KB a half", aligned.mm1.slot_bytes / kKb), "workspace.h"});
  rows.push_back(
      {"drop and mul: cubeBaseMN halves, twice, for each core", kMechanism,
       fmt::format("{} KB, twice {}", aligned.mul.core_bytes / kKb, aligned.mul.slot_bytes / kKb),
       "workspace.h"});
  rows.push_back({"FixPipe's time after alignment", "halved",
                  fmt::format("x {:.2f}", share(after.fixpipe, before.fixpipe)),
                  std::string(kTest) + "; kMover's width in atlas_a2.h is chosen for this"});
  rows.push_back({"FixPipe's ratio after", "0.55", fmt::format("{:.2f}", after.fixpipe_ratio),
                  "as before: halved, and the run is shorter too"});
  rows.push_back({"performance through alignment", "+45%",
                  fmt::format("{:+.0f}%", 100 * (share(before.cycles(), after.cycles()) - 1)),
                  std::string(kTest)});
}

void mte2(Rows& rows) {
  // A (128,64) tile of halves, where it begins in the third head.
  const auto tile = [](const char* layout) {
    const Steps steps = steps_of(layout, {24, 5, 9216, 64});
    device::Dma dma("MTE2", kMover);
    count_rows(dma, steps.row(0, 2, 0) * 2, 128, 64 * 2, steps.position * 2);
    return dma.unit().busy;
  };
  const Profile bsh = backward_run(scenario2("BSH"), of_one_core());
  const Profile bnsd = backward_run(scenario2("BNSD"), of_one_core());
  rows.push_back({"MTE2's ratio before, scenario 2", "0.52", fmt::format("{:.2f}", bsh.mte2_ratio),
                  "profile.h; the cube core's MTE2"});
  rows.push_back({"BSH -> BNSD: no address is skipped; the transfer takes", "half",
                  fmt::format("{} -> {} cycles a tile of (128,64)", tile("BSH"), tile("BNSD")),
                  std::string(kTest) + "; layouts are LAYOUT-2 and LAYOUT-4"});
  rows.push_back({"MTE2's ratio after", "half of 0.52", fmt::format("{:.2f}", bnsd.mte2_ratio),
                  "P and dS, a third of what is loaded, lie side by side in either layout"});
  rows.push_back({"performance through BNSD", "+30%",
                  fmt::format("{:+.0f}%", 100 * (share(bsh.cycles(), bnsd.cycles()) - 1)),
                  "not to be had in this model: loads hide behind products, there is one tile "
                  "more in L1, and the vector core is the longest"});
  Tiling one = serial();
  one.cores = 1;
  rows.push_back(
      {"the same before the CV pipeline", "+30%",
       fmt::format("{:+.0f}%", 100 * (share(backward_run(scenario2("BSH"), one).cycles(),
                                            backward_run(scenario2("BNSD"), one).cycles()) -
                                      1)),
       "no stalls between L1 and the cube are modelled, which the seed's chart shows"});
}

}  // namespace

std::vector<Figure> ascend_figures() {
  Rows rows;
  operation(rows);
  scenarios(rows);
  tiling(rows);
  pipeline(rows);
  balance(rows);
  fixpipe(rows);
  mte2(rows);
  return rows;
}

}  // namespace attest::vendor::ascend
