// The rules of the mock TPU, each broken by a planted fault, and what the model says of the seed's
// figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "impl/vendor/device/error.h"
#include "impl/vendor/device/queue.h"
#include "impl/vendor/splash/axlearn.h"
#include "impl/vendor/splash/figures.h"
#include "impl/vendor/splash/models.h"
#include "impl/vendor/splash/splash_api.h"
#include "tests/impl/vendor/splash_example.h"

namespace attest::vendor::splash {
namespace {

using device::DeviceError;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- Rules of the device, broken

Output<float> attend(const Example& e, HostSetup& setup, const SplashOptions& options = {}) {
  return make_splash_mha(e.masks(), options, setup)(e.q_array(e.q), e.kv_array(e.k),
                                                    e.kv_array(e.v));
}

TEST(SplashDeviceTest, BlocksBeyondVmemAreAnError) {
  const Example e = Example{}.drawn();
  HostSetup setup;
  setup.tpu.vmem_bytes = 1 << 20;
  EXPECT_NO_THROW(attend(e, setup));
  EXPECT_THAT([&] { attend(e, setup, {.block_sizes = tpu_block_sizes(256)}); },
              ThrowsMessage<DeviceError>(HasSubstr("VMEM")));
}

TEST(SplashDeviceTest, TablesBeyondSmemAreAnError) {
  const Example e = Example{}.drawn();
  HostSetup setup;
  setup.tpu.smem_bytes = 2 * 2 * (1 + 1);
  EXPECT_NO_THROW(attend(e, setup));
  EXPECT_THAT([&] { attend(e, setup, {.downcast_smem_data = false}); },
              ThrowsMessage<DeviceError>(HasSubstr("SMEM")));
}

TEST(SplashDeviceTest, AnArrayThatBeginsWithinATileIsAnError) {
  const Example e = Example{}.drawn();
  HostSetup setup;
  const auto kernel = make_splash_mha(e.masks(), {}, setup);
  Array<const float> k = e.kv_array(e.k);
  k.address = 512;
  EXPECT_NO_THROW(kernel(e.q_array(e.q), k, e.kv_array(e.v)));
  k.address = 516;
  EXPECT_THAT([&] { kernel(e.q_array(e.q), k, e.kv_array(e.v)); },
              ThrowsMessage<DeviceError>(HasSubstr("no multiple of")));
}

TEST(SplashDeviceTest, BlocksInTheWrongOrderAreAnError) {
  const Example e = Example{.mask = full_mask({256, 256})}.drawn();
  HostSetup setup;
  auto kernel = make_splash_mha(e.masks(), {}, setup);
  MaskInfo info = *kernel.fwd_mask_info;
  const auto attend_by = [&](std::int32_t first, std::int32_t second) {
    info.data_next.at(0, 0, 0) = first;
    info.data_next.at(0, 0, 1) = second;
    kernel.fwd_mask_info = std::make_shared<MaskInfo>(info);
    return kernel(e.q_array(e.q), e.kv_array(e.k), e.kv_array(e.v));
  };
  EXPECT_NO_THROW(attend_by(0, 1));
  EXPECT_THAT([&] { attend_by(1, 0); }, ThrowsMessage<DeviceError>(HasSubstr("comes after")));
  EXPECT_THAT([&] { attend_by(0, 7); },
              ThrowsMessage<DeviceError>(HasSubstr("beyond their array")));
}

TEST(SplashDeviceTest, AStepThatIsBroughtTooEarlyOverrunsTheQueue) {
  TensorCore core(Tpu(), "TensorCore");
  device::Stages stages;
  device::Queue<int> queue(stages, "grid", 2);
  stages.add([&] {
    queue.reserve(core.dma_in.unit());
    queue.push(core.dma_in.unit(), 0, 0);
    queue.push(core.dma_in.unit(), 1, 0);
  });
  EXPECT_THAT([&] { stages.run(); }, ThrowsMessage<DeviceError>(HasSubstr("overruns")));
}

TEST(SplashDeviceTest, FormatsAndLayoutsThatItDoesNotHaveAreErrors) {
  const Example e = Example{}.drawn();
  HostSetup setup;
  const std::vector<std::int8_t> bytes(e.q.size());
  const Array<const std::int8_t> q{.data = bytes.data(), .heads = 2, .seq = 256, .dim = 128};
  const auto kernel = make_splash_mha(e.masks(), {}, setup);
  EXPECT_THAT([&] { kernel(q, q, q); }, ThrowsMessage<DeviceError>(HasSubstr("format int8")));
  BlockSizes sizes = BlockSizes::get_default();
  sizes.k_layout = QkvLayout::kSeqMinor;
  EXPECT_THAT([&] { make_splash_mha(e.masks(), {.block_sizes = sizes}, setup); },
              ThrowsMessage<DeviceError>(HasSubstr("layout SEQ_MINOR")));
}

TEST(SplashDeviceTest, ShapesThatTheKernelRefusesAreItsErrors) {
  HostSetup setup;
  const Example narrow = Example{.dim = 64}.drawn();
  EXPECT_THROW(attend(narrow, setup), NotImplementedError);
  const Example ragged = Example{.q_len = 200, .mask = causal_mask({200, 256})}.drawn();
  EXPECT_THROW(attend(ragged, setup), ValueError);
  const Example e = Example{}.drawn();
  EXPECT_THROW(attend(e, setup, {.block_sizes = BlockSizes{.block_q = 4, .block_kv = 128}}),
               DeviceError);
  EXPECT_THROW(attend(e, setup, {.block_sizes = BlockSizes{.block_q = 128, .block_kv = 64}}),
               DeviceError);
  const BlockSizes half{.block_q = 128, .block_kv = 128, .block_kv_compute = 64};
  EXPECT_THROW(attend(e, setup, {.block_sizes = half}), ValueError);
  EXPECT_THROW(attend(e, setup, {.head_shards = 2}), NotImplementedError);
  BlockSizes both = BlockSizes::get_default();
  both.use_fused_bwd_kernel = true;
  EXPECT_THROW(attend(e, setup, {.block_sizes = both}), ValueError);
  const auto forward_alone = make_splash_mha(
      e.masks(), {.block_sizes = BlockSizes{.block_q = 128, .block_kv = 128}}, setup);
  const Array<const float> q = e.q_array(e.q), k = e.kv_array(e.k);
  EXPECT_THROW(forward_alone.vjp(
                   Residuals<float>{.q = q, .k = k, .v = k, .out = q, .logsumexp = nullptr}, q),
               ValueError);
  const Example other = Example{.mask = causal_mask({256, 384})}.drawn();
  EXPECT_THROW(attend(other, setup), ValueError);
}

// ---- The seed's figures

TEST(SplashModelTest, SetUpIsCountedAsItIsMade) {
  for (const std::int64_t seq_len : {1024, 2048}) {
    for (const MaskForm form : {MaskForm::kNumpy, MaskForm::kLazy}) {
      const AttentionShape shape{.seq_len = seq_len, .heads = 5, .block_size = 256};
      const HostCount made = setup_counted(shape, form), told = setup_count(shape, form);
      EXPECT_EQ(made.computed, told.computed);
      EXPECT_EQ(made.scanned, told.scanned);
      EXPECT_EQ(made.hashed, told.hashed);
      EXPECT_EQ(made.mask_bytes, told.mask_bytes);
      EXPECT_EQ(made.info_bytes, told.info_bytes);
      EXPECT_EQ(made.temporary_bytes, told.temporary_bytes);
    }
  }
}

TEST(SplashModelTest, AnArrayTakesMemoryOfTheSquareAndAnObjectOfABlock) {
  const auto bytes = [](std::int64_t seq_len, MaskForm form) {
    return setup_count({.seq_len = seq_len, .heads = 16}, form).bytes();
  };
  EXPECT_GE(bytes(32768, MaskForm::kNumpy), std::int64_t{1} << 30);
  EXPECT_LT(bytes(32768, MaskForm::kLazy), 1 << 20);
  EXPECT_LT(bytes(32768, MaskForm::kLazy), 3 * bytes(4096, MaskForm::kLazy));
}

TEST(SplashModelTest, SettingUpAnArrayIsMostlyHashingItForEachHead) {
  const AttentionShape shape{.seq_len = 32768, .heads = 16};
  const HostCount array = setup_count(shape, MaskForm::kNumpy);
  const HostCount object = setup_count(shape, MaskForm::kLazy);
  EXPECT_EQ(array.hashed / array.mask_bytes, 2 * (4 * 16 + 1));
  EXPECT_GT(array.hashed, array.operations() * 9 / 10);
  EXPECT_GT(array.operations(), 10 * object.operations());  // the seed's times: 12.4
  EXPECT_LT(array.operations(), 13 * object.operations());
}

TEST(SplashModelTest, StepsOfBothFormsTakeTheSameTimeWithinTwoPercent) {
  for (const std::int64_t seq_len : {4096, 8192}) {
    const AttentionShape shape{.seq_len = seq_len, .heads = 16, .head_dim = 256};
    const StepTime array = step_time(shape, MaskForm::kNumpy);
    const StepTime object = step_time(shape, MaskForm::kLazy);
    EXPECT_NEAR(double(object.forward + object.backward) / double(array.forward + array.backward),
                1, 0.02);
  }
}

TEST(SplashModelTest, AWindowOfOneInEightRunsThreeBlocksOfARow) {
  const MaskFootprint window =
      mask_footprint(benchmark_shape(kBenchmarkModels[0]), MaskForm::kLazy);
  EXPECT_EQ(window.blocks, 256);
  EXPECT_EQ(window.blocks_run, 1 + 2 + 14 * 3);
  EXPECT_EQ(window.blocks_partly, 16 + 14);
  EXPECT_EQ(window.partial_blocks, 2 * 512 * 512);  // on the diagonal, and where the window begins
}

TEST(SplashModelTest, BackwardOfAModelTakesFourTimesTheForwardPass) {
  for (const BenchmarkModel& model : kBenchmarkModels) {
    const StepTime time = step_time(benchmark_shape(model), MaskForm::kLazy);
    EXPECT_NEAR(double(time.backward) / double(time.forward), 4.2, 0.2) << model.name;
  }
}

TEST(SplashFigureTest, EveryRowSaysWhereOrWhyNot) {
  const std::vector<Figure> figures = splash_figures();
  EXPECT_GE(figures.size(), 40u);
  for (const Figure& figure : figures) {
    EXPECT_FALSE(figure.seed.empty());
    EXPECT_FALSE(figure.where.empty()) << figure.seed;
  }
}

}  // namespace
}  // namespace attest::vendor::splash
