// The mock GPU: its rules, each broken, and what it counts of both versions' kernels.
#include "impl/vendor/nvidia_grid/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "impl/vendor/device/error.h"
#include "impl/vendor/nvidia_grid/example.h"
#include "impl/vendor/nvidia_grid/figures.h"
#include "impl/vendor/nvidia_grid/grids.h"

namespace attest::vendor::nvidia_grid {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr ScalarType kFp16 = ScalarType::kFloat16;

template <class Call>
std::string fault_of(const Call& call) {
  try {
    call();
  } catch (const device::DeviceError& error) {
    return error.what();
  }
  return "no error of the device";
}

// ---- Rules of the GPU, each broken

// A thread block with 16 KB of shared memory, and a matrix of 64 x 64 to copy.
struct Block {
  std::vector<std::uint16_t> numbers = std::vector<std::uint16_t>(64 * 64);
  Matrix matrix = {numbers.data(), 64, 64, 64};
  ThreadBlock block{a100(), {.threads = 128, .shared_bytes = 16 * 1024}, 0};
  SharedTile tile = block.tile("K", 32, 64);
};

TEST(NvidiaGridGpuTest, ATileThatDoesNotFitTheSharedMemoryIsAnError) {
  Block b;
  EXPECT_THAT(fault_of([&] { b.block.tile("V", 128, 64); }), HasSubstr("does not fit"));
}

TEST(NvidiaGridGpuTest, SquareBlocksWithSplitKDoNotFitTheSharedMemory) {
  BackwardTile square = v2_backward_tile(a100(), 64);
  square.split_k = true;
  Gpu gpu(a100());
  EXPECT_THAT(fault_of([&] { gpu.launch("square", {}, square.resources(), {}); }),
              HasSubstr("too many resources requested"));
}

TEST(NvidiaGridGpuTest, ACopyOfMoreColumnsThanATileHasIsAnError) {
  Block b;
  const Matrix wide = {b.numbers.data(), 32, 128, 128};
  EXPECT_THAT(fault_of([&] { b.block.copy(b.tile, wide, 0, 0); }),
              HasSubstr("128 columns into a tile of 64"));
}

TEST(NvidiaGridGpuTest, ACopyOfRowsThatAreNotThereIsAnIllegalAddress) {
  Block b;
  EXPECT_THAT(fault_of([&] { b.block.copy(b.tile, b.matrix, 64, 2); }),
              HasSubstr("illegal address"));
  EXPECT_THAT(fault_of([&] { b.block.copy(b.tile, b.matrix, -32, -1); }),
              HasSubstr("illegal address"));
}

TEST(NvidiaGridGpuTest, ATileIsNotReadBeforeItsCopyWasWaitedFor) {
  Block b;
  b.block.copy(b.tile, b.matrix, 0, 0);
  b.block.commit();
  EXPECT_THAT(fault_of([&] { b.block.load(b.tile, 0, kFp16); }), HasSubstr("was waited for"));
  b.block.wait(1);  // for all groups but this one
  EXPECT_THAT(fault_of([&] { b.block.load(b.tile, 0, kFp16); }), HasSubstr("was waited for"));
  b.block.wait(0);
  EXPECT_EQ(b.block.load(b.tile, 0, kFp16).rows(), 32);
}

TEST(NvidiaGridGpuTest, ATileIsNotOverwrittenWhileWarpsMayReadIt) {
  Block b;
  b.block.copy(b.tile, b.matrix, 0, 0);
  b.block.commit();
  b.block.wait(0);
  b.block.load(b.tile, 0, kFp16);
  EXPECT_THAT(fault_of([&] { b.block.copy(b.tile, b.matrix, 32, 1); }), HasSubstr("overwritten"));
  b.block.sync();
  EXPECT_NO_THROW(b.block.copy(b.tile, b.matrix, 32, 1));
}

TEST(NvidiaGridGpuTest, AnotherTileThanTheOneThatIsDueIsAnError) {
  Block b;
  b.block.copy(b.tile, b.matrix, 32, 1);
  b.block.commit();
  b.block.wait(0);
  EXPECT_THAT(fault_of([&] { b.block.load(b.tile, 0, kFp16); }),
              HasSubstr("holds tile 1 where tile 0 is due"));
}

TEST(NvidiaGridGpuTest, WhatAWarpStoresIsReadByOthersAfterABarrier) {
  Block b;
  b.block.store(b.tile, Fragment(32, 64), 0, kFp16);
  EXPECT_THAT(fault_of([&] { b.block.load(b.tile, 0, kFp16); }), HasSubstr("barrier"));
  b.block.sync();
  EXPECT_NO_THROW(b.block.load(b.tile, 0, kFp16));
}

// ---- What is counted

TEST(NvidiaGridGpuTest, SmsAreDealtBlocksInTurnAndTakeAsLongAsTheSlowest) {
  Gpu gpu(a100());
  gpu.launch("products", {110, 1, 1}, {.threads = 32, .shared_bytes = 0},
             [](ThreadBlock& block, const Dim3&) {
               block.count_product(
                   64, 64, 64, {.m = 1, .n = 1, .a_in_registers = true, .b_in_registers = true});
             });
  const Launch& launch = gpu.launched("products");
  EXPECT_EQ(launch.elapsed.of_core.size(), 108u);
  EXPECT_EQ(launch.elapsed.longest(), 2 * 64 * 64 * 64 / 1024);  // SMs 0 and 1 have two
  EXPECT_EQ(launch.elapsed.sum(), 110 * 64 * 64 * 64 / 1024);
}

TEST(NvidiaGridGpuTest, FormatsRoundToTheNearestEven) {
  for (const ScalarType type : {kFp16, ScalarType::kBFloat16}) {
    const std::uint16_t infinity = type == kFp16 ? 0x7c00 : 0x7f80;
    for (std::uint16_t bits = 0; bits < infinity; ++bits) {
      const std::uint16_t pair[] = {bits, static_cast<std::uint16_t>(bits + 1)};
      float wide[2];
      widen(type, pair, wide, 2);
      const bool overflows = pair[1] == infinity;
      // What lies half way goes to the even one; beyond the largest there is one step more.
      const double step = overflows ? (type == kFp16 ? 32.0 : 0x1p120)
                                    : static_cast<double>(wide[1]) - static_cast<double>(wide[0]);
      const auto half = static_cast<float>(static_cast<double>(wide[0]) + step / 2);
      const float tries[] = {wide[0], half, -half};
      std::uint16_t narrowed[3];
      narrow(type, tries, narrowed, 3);
      const std::uint16_t even = bits % 2 == 0 ? pair[0] : pair[1];
      ASSERT_EQ(narrowed[0], bits);
      ASSERT_EQ(narrowed[1], even) << bits;
      ASSERT_EQ(narrowed[2], even | 0x8000) << bits;
    }
  }
}

TEST(NvidiaGridGpuTest, TheSecondGridIsTheSameOnEveryGpu) {
  const GridProblem problem = {4, 12, 2048, 2048, 64};
  EXPECT_EQ(v2::forward_grid(a100(), problem), (Dim3{16, 4, 12}));
  EXPECT_EQ(v2::forward_grid(h100(), problem), (Dim3{16, 4, 12}));
  EXPECT_NE(v1::forward_grid(a100(), problem), v1::forward_grid(h100(), problem));
  EXPECT_EQ(v2::forward_grid(h100(), {1, 1, 2048, 2048, 256}), (Dim3{32, 1, 1}));
}

TEST(NvidiaGridGpuTest, TheHeuristicTakesTheFewestSplitsNearTheBest) {
  EXPECT_NEAR(occupancy(a100(), 48 * 2, 1).efficiency, 0.89, 0.005);
  EXPECT_NEAR(occupancy(a100(), 48 * 3, 1).efficiency, 0.67, 0.005);
  EXPECT_EQ(num_splits_heuristic_fwd(48, 108, 3), 2);
  EXPECT_EQ(num_splits_heuristic_fwd(48, 108, 30), 9);  // 432 blocks are 4 whole waves
  EXPECT_EQ(num_splits_heuristic_fwd(108, 108, 30), 1);
}

TEST(NvidiaGridGpuTest, OneSplitLeavesMostSmsIdle) {
  Gpu gpu(a100());
  Example example({.batch = 1, .heads = 2, .seqlen = 512, .head_dim = 32});
  EXPECT_EQ(example.v1_forward(gpu, 1).elapsed.of_core.size(), 2u);
  EXPECT_EQ(example.v1_forward(gpu).elapsed.of_core.size(), 58u);
  EXPECT_EQ(example.v2_forward(gpu).elapsed.of_core.size(), 8u);
}

TEST(NvidiaGridGpuTest, OnlyKeysOutsideTakePartialSumsToGlobalMemory) {
  Gpu gpu(a100());
  Example example({.batch = 1, .heads = 1, .seqlen = 1024, .head_dim = 64});
  const Counters v1 = example.v1_forward(gpu).counters, v2 = example.v2_forward(gpu).counters;
  // Four blocks of 256 keys hand over O and LSE three times.
  EXPECT_EQ(v1.partials_written, 3 * 1024 * (64 + 1) * 4);
  EXPECT_EQ(v1.partials_read, v1.partials_written);
  EXPECT_EQ(v2.partials_written + v2.partials_read, 0);
  EXPECT_EQ(v1.outputs_written, v2.outputs_written);
  EXPECT_LT(v2.global(), v1.global());
}

TEST(NvidiaGridGpuTest, TheSecondVersionTakesLessTimeInBothPasses) {
  Gpu gpu(a100());
  Example example({.batch = 1, .heads = 2, .seqlen = 1024, .head_dim = 64});
  EXPECT_LT(example.v2_forward(gpu).elapsed.longest(), example.v1_forward(gpu).elapsed.longest());
  EXPECT_LT(example.v2_backward(gpu).elapsed.longest(), example.v1_backward(gpu).elapsed.longest());
}

TEST(NvidiaGridGpuTest, SplitKTakesAQuarterOfSharedTrafficAndItsAbsenceNone) {
  Gpu gpu(a100());
  Example example({.batch = 1, .heads = 1, .seqlen = 512, .head_dim = 64});
  const Counters v1 = example.v1_backward(gpu).counters, v2 = example.v2_backward(gpu).counters;
  EXPECT_EQ(v1.shared_of_split_k, v1.scores * 16);  // 8 warps' parts of dQ, written and read
  EXPECT_NEAR(static_cast<double>(v1.shared_of_split_k) / static_cast<double>(v1.shared()), 0.25,
              0.01);
  EXPECT_EQ(v2.shared_of_split_k, 0);
  EXPECT_LT(v2.shared(), v1.shared());
}

TEST(NvidiaGridGpuTest, AsynchronousCopiesSaveTimeAndRegisters) {
  GpuRules turing = a100();
  turing.has_cp_async = false;
  Gpu with(a100()), without(turing);
  Example example({.batch = 1, .heads = 1, .seqlen = 512, .head_dim = 64});
  const Launch fast = example.v2_backward(with), slow = example.v2_backward(without);
  EXPECT_LT(fast.elapsed.longest(), slow.elapsed.longest());
  EXPECT_EQ(fast.counters.staged_in_registers, 0);
  EXPECT_EQ(slow.counters.staged_in_registers, slow.counters.inputs_read - 4 * 512 * 2 * 4);
}

}  // namespace
}  // namespace attest::vendor::nvidia_grid
