// The mock of the Triton tutorial's fused attention: its numbers against plain loops, what its
// users must know of it, and that each rule of its device is an error, never a wrong number.
#include <attest/kernel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "impl/vendor/triton/attn_fwd.h"
#include "impl/vendor/triton/autotune.h"
#include "impl/vendor/triton/bench.h"
#include "impl/vendor/triton/figures.h"
#include "impl/vendor/triton/line_by_line.h"
#include "impl/vendor/triton/triton_api.h"
#include "tests/impl/vendor/triton_nearest.h"
#include "tests/impl/vendor/triton_plain.h"
#include "tests/impl/vendor/triton_plugin_call.h"
#include "tests/impl/vendor/triton_ring_program.h"

namespace attest::vendor::triton {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// ---- Formats ------------------------------------------------------------------------------------

// All midpoints with the floats on both sides of them, and every 65521st float.
template <class T>
void expect_rounded_to_nearest(const Nearest& nearest) {
  const auto check = [&](float x) {
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(x))));
    } else {
      EXPECT_EQ(T(x).bits, nearest.code(x)) << x;
    }
  };
  for (std::size_t n = 0; n + 1 < nearest.values().size(); ++n) {
    const auto middle = static_cast<float>((nearest.values()[n] + nearest.values()[n + 1]) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e6f)}) {
      check(x);
      check(-x);
    }
  }
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 65521) {
    check(detail::float_of(static_cast<std::uint32_t>(bits)));
  }
}

TEST(TritonFloatsTest, EveryCodeOfFp8IsTheNumberThatItsFieldsSay) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const double right = number_of(code, 2);
    const float value = fp8_of_code(code);
    if (std::isnan(right)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(static_cast<float>(f8e5m2(value)))) << code;
      continue;
    }
    EXPECT_EQ(value, right) << code;
    EXPECT_EQ(std::signbit(value), std::signbit(right)) << code;
    EXPECT_EQ(f8e5m2(value).bits, code);
  }
}

TEST(TritonFloatsTest, EveryF16RoundsToTheNearestFp8TiesToEven) {
  const Nearest nearest(2);
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const double exact = number_of(code, 10);
    const f8e5m2 rounded(f16_of_code(code));
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded))) << code;
    } else {
      EXPECT_EQ(rounded.bits, nearest.code(exact)) << exact;
    }
  }
}

TEST(TritonFloatsTest, FloatsRoundToTheNearestFp8TiesToEven) {
  expect_rounded_to_nearest<f8e5m2>(Nearest(2));
}

TEST(TritonFloatsTest, FloatsRoundToTheNearestF16TiesToEven) {
  expect_rounded_to_nearest<f16>(Nearest(10));
}

TEST(TritonFloatsTest, AFloatDoesNotReachFp8ByWayOfF16) {
  const float x = 1.125f + 0x1p-20f;  // just above a midpoint, which f16 takes for it
  EXPECT_EQ(f8e5m2(x), 1.25f);
  EXPECT_EQ(f8e5m2(f16(x)), 1.0f);
}

TEST(TritonFloatsTest, WeightsInAFloatAreRoundedAsF16Is) {
  for (std::uint32_t bits = 0; bits < 0x40000000u; bits += 4099) {
    const float x = detail::float_of(bits);
    EXPECT_EQ(rounded_to_f16(x), static_cast<float>(f16(x))) << x;
  }
}

TEST(TritonFloatsTest, Bf16IsTheUpperHalfRoundedToEven) {
  EXPECT_EQ(bf16(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(bf16(1.0f + 0x1.8p-7f), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::nanf("")))));
}

// ---- The loop of the example --------------------------------------------------------------------

TEST(TritonTest, TheLoopOfTheExampleIsASoftmax) {
  const Example e;
  for (std::int64_t row = 0; row < e.s.N; ++row) {
    for (std::int64_t c = 0; c < e.s.d; ++c) {
      double sum = 0, of_values = 0;
      for (std::int64_t key = 0; key < e.s.N; ++key) {
        sum += std::exp(e.score(row, key));
        of_values += std::exp(e.score(row, key)) * e.V(key, c);
      }
      // torch.allclose: 1e-8 and 1e-5 of what is right.
      EXPECT_NEAR(e.trace.O(row, c), of_values / sum, 1e-8 + 1e-5 * of_values / sum);
    }
  }
}

TEST(TritonTest, EachVisitLeavesTheSumsOfTheKeysSoFar) {
  const Example e;
  ASSERT_EQ(e.trace.visits.size(), 8u);
  for (const Visit& visit : e.trace.visits) {
    const std::int64_t keys = visit.block_start_Bc + e.s.Bc;
    for (std::int64_t row = 0; row < e.s.Br; ++row) {
      double top = -1, sum = 0;
      for (std::int64_t key = 0; key < keys; ++key) {
        top = std::max(top, e.score(visit.block_start_Br + row, key));
      }
      for (std::int64_t key = 0; key < keys; ++key) {
        sum += std::exp(e.score(visit.block_start_Br + row, key) - top);
      }
      const auto place = static_cast<std::size_t>(row);
      EXPECT_NEAR(visit.mi[place], top, 1e-6);
      EXPECT_NEAR(visit.li[place], sum, 1e-5);
    }
  }
}

TEST(TritonTest, TheTraceShowsEachStepOfTheAlgorithm) {
  const std::string text = to_text(Example().trace);
  for (const char* line :
       {"3, 4   load Q[12:16]", "6, 7   load K[8:16], V[8:16]", "12, 14 O[0] ="}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// ---- The operator -------------------------------------------------------------------------------

TEST(TritonTest, OIsASoftmaxAndMItsSumInBase2ForEachHeadDim) {
  for (const std::int64_t D : {16, 32, 64, 128}) {
    const Inputs in({2, 2, 256, D});
    const double scale = 1.3 / std::sqrt(D);
    expect_plain(in.q, in.k, in.v, attention(in.q, in.k, in.v, true, scale), scale);
  }
}

TEST(TritonTest, EveryConfigOfTheSweepIsRight) {
  const Gpu gpu(a100());
  const Inputs in({1, 1, 256, 32});
  for (const Config& config : configs(gpu, 32, Dtype::float16)) {
    expect_plain(in.q, in.k, in.v, forward(gpu, config, in.q, in.k, in.v, true, 0.2), 0.2);
  }
}

// Two keys that row 1 sees, with weights 1 and w, and of the values 0 and 1.
TEST(TritonTest, PIsAnF16WhenItMeetsV) {
  const Tensor q = Tensor::zeros({1, 1, 128, 16}, Dtype::float16), k = q.empty_like(),
               v = q.empty_like();
  q.set(16, 1), k.set(0, 1), v.set(16, 1);
  for (double below = 0.1; below < 9; below += 0.01) {
    const float w = std::exp2(0 - static_cast<float>(below) * 1.44269504f);
    const float right = f16(static_cast<float>(f16(w)) / (1 + w));
    EXPECT_EQ(attention(q, k, v, true, below).o.get(16), right) << below;
  }
}

TEST(TritonTest, TheRunningMaximumNeverFalls) {
  const Inputs in({1, 1, 512, 16});
  Tensor q = in.q.empty_like(), k = in.q.empty_like();
  for (std::int64_t m = 0; m < 512; ++m) q.set(m * 16, 30);
  k.set(0, 30);  // key 0 has 900, all others 0, in later blocks of keys too
  const Tensor o = attention(q, k, in.v, true, 1).o;
  for (std::int64_t n = 0; n < o.elements(); ++n) ASSERT_EQ(o.get(n), in.v.get(n % 16)) << n;
}

TEST(TritonTest, WithoutCausalItIsCausalAllTheSame) {
  const Inputs in({1, 1, 256, 16});
  const Attended without = attention(in.q, in.k, in.v, false, 0.25);
  expect_plain(in.q, in.k, in.v, without, 0.25);
  EXPECT_FALSE(without.ctx.causal);
}

TEST(TritonTest, AllThreeMayBeInterleavedAlike) {
  const Inputs in({2, 3, 128, 16});
  const Interleaved q(in.q), k(in.k), v(in.v);
  const Attended attended = attention(q.view, k.view, v.view, true, 0.25);
  EXPECT_EQ(attended.o.stride(1), 16);  // empty_like keeps the order of the axes
  expect_plain(in.q, in.k, in.v, attended, 0.25);
}

TEST(TritonTest, KeysAloneInterleavedAreAnIllegalAccess) {
  const Inputs in({2, 3, 128, 16});
  const Interleaved k(in.k);
  EXPECT_THAT([&] { attention(in.q, k.view, in.v, true, 0.25); },
              ThrowsMessage<device::DeviceError>(HasSubstr("illegal memory access")));
}

TEST(TritonTest, KeysAreReadByTheStridesOfQ) {
  const Inputs in({2, 1, 128, 16});
  const Tensor all = normal_tensor({4, 1, 128, 16}, 4);  // of which K is every other element
  const Tensor k = Tensor::from_blob(all.data(), in.k.shape(), {2 * 2048, 2048, 16, 1}, all.dtype(),
                                     all.elements());
  const Tensor read =
      Tensor::from_blob(all.data(), in.k.shape(), {2048, 2048, 16, 1}, all.dtype(), all.elements());
  const Attended attended = attention(in.q, k, in.v, true, 0.25);
  expect_plain(in.q, read, in.v, attended, 0.25);
}

TEST(TritonTest, OIsOfTheFormatOfQ) {
  const Inputs in({1, 1, 128, 16});
  const Tensor q = in.q.to(Dtype::float8_e5m2), k = in.k.to(Dtype::float8_e5m2);
  const Attended eight = attention(q, k, in.v, true, 0.25);
  const Attended wide = attention(q.to(Dtype::float16), k.to(Dtype::float16), in.v, true, 0.25);
  ASSERT_EQ(eight.o.dtype(), Dtype::float8_e5m2);
  for (std::int64_t n = 0; n < eight.o.elements(); ++n) {
    // The same scores. O of f16 is a rounding nearer, so that fp8 of it may be the neighbour.
    EXPECT_NEAR(eight.o.get(n), wide.o.get(n), 0.126 * std::abs(wide.o.get(n)) + 1e-5);
  }
  for (std::int64_t n = 0; n < 128; ++n) EXPECT_EQ(eight.ctx.M.get(n), wide.ctx.M.get(n));
}

TEST(TritonTest, Fp8MovesOByAFifthOnTheNumbersOfTheBenchmark) {
  const Fp8Effect effect = fp8_effect(256, 64);
  EXPECT_LT(effect.f16, 5e-4);
  EXPECT_GT(effect.fp8, 0.15);
  EXPECT_GT(effect.fp8_and_o, effect.fp8);
}

// ---- What fails, and stays so -------------------------------------------------------------------

TEST(TritonTest, AHiddenKeyFarAboveTheVisibleOneHasAllTheWeight) {
  EXPECT_EQ(weight_of_hidden_key(600000), 0);
  EXPECT_EQ(weight_of_hidden_key(700000), 1);  // 1e6 ln 2 is 693147
}

TEST(TritonTest, NanOfAHiddenKeySpoilsRowsThatDoNotSeeIt) {
  Inputs in({1, 1, 256, 16});
  in.v.set(100 * 16, std::nanf(""));
  const Attended attended = attention(in.q, in.k, in.v, true, 0.25);
  EXPECT_TRUE(std::isnan(attended.o.get(70 * 16)));  // by 0 times NaN, in its block of keys
  EXPECT_FALSE(std::isnan(attended.o.get(70 * 16 + 1)));
  EXPECT_FALSE(std::isnan(attended.ctx.M.get(70)));
}

TEST(TritonTest, AScaleBelow0Overflows) {
  const Inputs in({1, 1, 256, 64});
  const Tensor o = attention(in.q, in.k, in.v, true, -1).o;
  EXPECT_FALSE(std::isfinite(o.get(o.elements() - 1)));
}

// ---- Rules of the device ------------------------------------------------------------------------

const Config kConfig = {.BLOCK_M = 128, .BLOCK_N = 64, .num_stages = 4, .num_warps = 4};

void launch_meta(const GpuRules& rules, const Config& config, const Sizes& shape,
                 Dtype qk = Dtype::float16, Dtype v = Dtype::float16) {
  const Tensor q = Tensor::meta(shape, qk);
  forward(Gpu(rules), config, q, q, Tensor::meta(shape, v), true, 1);
}

TEST(TritonTest, StagesBeyondTheSharedMemoryAreOutOfResource) {
  const Config deep = {128, 64, 7, 8};
  for (const GpuRules& rules : {a100(), h100()}) {
    EXPECT_NO_THROW(launch_meta(rules, deep, {1, 1, 256, 64}));
    const auto launched = [&] { launch_meta(rules, deep, {1, 1, 256, 128}); };
    EXPECT_THAT(launched,
                ThrowsMessage<device::DeviceError>(HasSubstr("out of resource: shared memory")));
  }
}

TEST(TritonTest, SharedMemoryIsEnforcedToTheByte) {
  GpuRules rules = a100();
  rules.shared_bytes = shared_bytes(kConfig, 64, Dtype::float16, Dtype::float16);
  EXPECT_NO_THROW(launch_meta(rules, kConfig, {1, 1, 256, 64}));
  rules.shared_bytes -= 1;
  EXPECT_THROW(launch_meta(rules, kConfig, {1, 1, 256, 64}), device::DeviceError);
  device::Memory shared("shared memory", 100);
  device::Dma dma("copies", rules.loads);
  device::Stages stages;
  EXPECT_THAT([&] { Ring(stages, shared, dma, "k", 2, 51); },
              ThrowsMessage<device::DeviceError>(HasSubstr("k of 102 bytes does not fit")));
}

TEST(TritonTest, ATileLargerThanItsPlaceIsAnError) {
  device::Memory shared("shared memory", 1000);
  device::Dma dma("copies", a100().loads);
  device::Stages stages;
  Ring ring(stages, shared, dma, "k", 2, 64);
  const std::vector<std::uint8_t> numbers(128);
  const Rows rows = {.data = numbers.data(),
                     .address = 0,
                     .rows = 2,
                     .channels = 32,
                     .itemsize = 2,
                     .row_stride = 64,
                     .channel_stride = 2};
  EXPECT_THAT([&] { ring.load(0, rows); },
              ThrowsMessage<device::DeviceError>(HasSubstr("2 x 32 is larger than its place")));
}

TEST(TritonTest, ALengthThatIsNoMultipleOfABlockIsAnIllegalAccess) {
  for (const std::int64_t N_CTX : {1, 64, 127, 129, 200}) {
    const auto launched = [N_CTX] { launch_meta(a100(), kConfig, {2, 1, N_CTX, 64}); };
    EXPECT_THAT(launched, ThrowsMessage<device::DeviceError>(HasSubstr("illegal memory access")))
        << N_CTX;
  }
}

TEST(TritonTest, AGridThatIsEmptyOrTooWideIsNoLaunch) {
  for (const Sizes& shape : {Sizes{0, 1, 128, 64}, Sizes{1, 1, 0, 64}, Sizes{256, 256, 128, 64}}) {
    EXPECT_THAT([&] { launch_meta(a100(), kConfig, shape); },
                ThrowsMessage<device::DeviceError>(HasSubstr("invalid configuration")));
  }
  EXPECT_NO_THROW(launch_meta(a100(), kConfig, {255, 257, 128, 64}));
}

TEST(TritonTest, TheWrapperAssertsTheHeadDims) {
  EXPECT_THROW(launch_meta(a100(), kConfig, {1, 1, 128, 48}), AssertionError);
  const Tensor q = Tensor::meta({1, 1, 128, 64}, Dtype::float16);
  const Tensor v = Tensor::meta({1, 1, 128, 32}, Dtype::float16);
  EXPECT_THROW(attention(q, q, v, true, 1), AssertionError);
}

TEST(TritonTest, TheCompilerRefusesAnyVButF16) {
  for (const Dtype v : {Dtype::bfloat16, Dtype::float32, Dtype::float8_e5m2}) {
    const auto launched = [v] { launch_meta(a100(), kConfig, {1, 1, 128, 64}, v, v); };
    EXPECT_THAT(launched, ThrowsMessage<CompilationError>(HasSubstr("one type: fp16")));
  }
}

TEST(TritonTest, TheCompilerRefusesQAndKOfTwoFormats) {
  const Sizes shape = {1, 1, 128, 64};
  const Tensor q = Tensor::meta(shape, Dtype::float8_e5m2), k = Tensor::meta(shape, Dtype::float16);
  EXPECT_THAT([&] { attention(q, k, k, true, 1); },
              ThrowsMessage<CompilationError>(HasSubstr("fp8e5 and fp16")));
}

TEST(TritonTest, TheCompilerRefusesBlocksThatNoTileHas) {
  for (const Config& config : {Config{96, 32, 2, 4}, Config{128, 8, 2, 4}, Config{64, 128, 2, 4},
                               Config{128, 64, 0, 4}, Config{128, 64, 2, 3}}) {
    EXPECT_THROW(launch_meta(a100(), config, {1, 1, 384, 64}), CompilationError);
  }
}

TEST(TritonTest, AFormatThatTheDeviceLacksIsRefused) {
  EXPECT_THAT([] { Gpu(a100()).device().check_format("fp8e4m3"); },
              ThrowsMessage<device::DeviceError>(HasSubstr("no format fp8e4m3")));
}

TEST(TritonTest, ACopyIntoABufferInUseIsAnError) {
  const auto three_of_two = [](Ring& ring, device::Unit&, const Rows& rows) {
    for (int n = 0; n < 3; ++n) ring.load(n, rows);
  };
  EXPECT_THAT([&] { run_ring(three_of_two); },
              ThrowsMessage<device::DeviceError>(HasSubstr("tile 2 overruns the queue of 2")));
}

TEST(TritonTest, ATileThatNoCopyWasIssuedForIsAnError) {
  EXPECT_THROW(run_ring([](Ring& ring, device::Unit& warps, const Rows&) { ring.wait(warps, 0); }),
               device::DeviceError);
}

TEST(TritonTest, ATileOutOfOrderIsAnError) {
  const auto second_first = [](Ring& ring, device::Unit& warps, const Rows& rows) {
    for (int n = 0; n < 2; ++n) ring.load(n, rows);
    ring.wait(warps, 1);
  };
  EXPECT_THAT([&] { run_ring(second_first); },
              ThrowsMessage<device::DeviceError>(HasSubstr("tile 0 comes where tile 1 is due")));
}

TEST(TritonTest, AMisalignedRowIsCopiedInSmallBurstsAndNoError) {
  const auto cycles = [](std::int64_t address) {
    device::Dma dma("copies", a100().loads);
    std::vector<std::uint8_t> to(128);
    copy_rows(dma, to.data(), {nullptr, address, 1, 128, 1, 128, 1});
    return dma.unit().now;
  };
  EXPECT_EQ(cycles(0), 2);
  EXPECT_EQ(cycles(2), 32);
}

TEST(TritonTest, StagesHideLoads) {
  const auto cycles = [](std::int64_t num_stages) {
    const Tensor q = Tensor::meta({1, 1, 1024, 64}, Dtype::float16);
    const Config config = {128, 64, num_stages, 4};
    return forward(Gpu(a100()), config, q, q, q, true, 1).ctx.elapsed.longest();
  };
  EXPECT_GT(cycles(1), cycles(2));
  EXPECT_GE(cycles(2), cycles(4));
}

TEST(TritonTest, ATimedLaunchIsAsLongAsOneThatComputes) {
  const Inputs in({2, 3, 256, 32});
  const Attended computed = attention(in.q, in.k, in.v, true, 1);
  const Tensor q = Tensor::meta({2, 3, 256, 32}, Dtype::float16);
  const Attended timed_alone = attention(q, q, q, true, 1);
  EXPECT_EQ(computed.ctx.elapsed.of_core, timed_alone.ctx.elapsed.of_core);
  EXPECT_EQ(computed.ctx.programs_flops, timed_alone.ctx.programs_flops);
}

// ---- Figures ------------------------------------------------------------------------------------

TEST(TritonTest, TheWrapperChoosesAsTheTextHasIt) {
  EXPECT_EQ(config_for(64, 8), (Config{128, 64, 4, 4}));
  EXPECT_EQ(config_for(128, 8), (Config{128, 32, 3, 4}));
  EXPECT_EQ(config_for(32, 9), (Config{128, 64, 3, 8}));
  EXPECT_EQ(config_for(64, 9), (Config{128, 64, 7, 8}));
  EXPECT_EQ(config_for(128, 9), (Config{128, 32, 7, 8}));
}

TEST(TritonTest, TheBenchmarkCountsTwoProductsHalfOfThemIfCausal) {
  Bench bench;
  bench.N_CTX = 1024;
  EXPECT_EQ(total_flops(bench, "fwd"), 2.0 * 2 * 4 * 48 * 1024 * 1024 * 64 * 0.5);
  EXPECT_EQ(total_flops(bench, "bwd"), 2.5 * total_flops(bench, "fwd"));
  EXPECT_DOUBLE_EQ(tflops(2e12, 2), 1000);
}

TEST(TritonTest, WhatTheMaskHidesIsComputedAllTheSame) {
  for (const Cited& row : cited()) {
    Bench bench;
    bench.N_CTX = row.N_CTX;
    const Timed t = timed(Gpu(a100()), bench, Dtype::float16);
    EXPECT_DOUBLE_EQ(t.flops_made, 1 + 128.0 / static_cast<double>(row.N_CTX));
    EXPECT_EQ(t.programs, row.N_CTX / 128 * 192);
  }
}

TEST(TritonTest, TheSweepIsNeverSlowerThanTheChoiceOfTheText) {
  const Gpu gpu(a100());
  for (const std::int64_t Lk : {16, 32, 64, 128}) {
    const Tensor q = Tensor::meta({1, gpu.rules().sms, 2048, Lk}, Dtype::float16);
    const Config of_text = config_for(Lk, 8);
    EXPECT_LE(autotune(gpu, 2048, Lk, Dtype::float16).cycles,
              forward(gpu, of_text, q, q, q, true, 1).ctx.elapsed.longest());
  }
}

TEST(TritonTest, QueriesDealtToWarpsExchangeNothing) {
  EXPECT_EQ(shared_bytes_exchanged(kConfig, 64, WarpsShare::queries), 0);
  EXPECT_EQ(shared_bytes_exchanged(kConfig, 64, WarpsShare::keys), 4 * 128 * 64 * 4);
}

TEST(TritonTest, EveryRowOfTheFiguresSaysWhereItIsOrWhyItIsNot) {
  for (const Figure& figure : triton_figures()) {
    EXPECT_FALSE(figure.seed.empty());
    EXPECT_FALSE(figure.where.empty()) << figure.seed;
  }
}

// ---- The plug-in --------------------------------------------------------------------------------

TEST(TritonTest, BothKernelsOfThePluginHandOverOAndMAsTheyAre) {
  for (const char* name : {"triton", "triton/raw"}) {
    PluginCall call;
    ASSERT_EQ(call.run(name), ATTEST_OK) << call.message;
    for (std::int64_t n = 0; n < 512; ++n) {
      const std::int64_t z = n / 256, h = n / 128 % 2, i = n % 128;
      const Row row = plain_row(call.in.q, call.in.k, call.in.v, 0.3, z, h, i);
      ASSERT_NEAR(call.lse[static_cast<std::size_t>(n)] * kLn2, row.lse, 2e-5) << n;
      for (std::int64_t c = 0; c < 32; ++c) {
        ASSERT_NEAR(call.o.at(z, h, i, c), row.o[static_cast<std::size_t>(c)], 4e-3) << n;
      }
    }
  }
}

TEST(TritonTest, OnlyOneOfTheKernelsSaysThatMIsInBase2) {
  const auto says = [](const char* name) {
    const attest_kernel* const kernel = kernel_named(name);
    return std::string(kernel->describe(kernel));
  };
  EXPECT_THAT(says("triton"), HasSubstr(R"("lse":{"base": 2})"));
  EXPECT_THAT(says("triton/raw"), ::testing::Not(HasSubstr(R"("base")")));
}

TEST(TritonTest, ThePluginRefusesWhatTheOperatorHasNoArgumentFor) {
  PluginCall window;
  window.mask.left = 5;
  EXPECT_EQ(window.run("triton"), ATTEST_ERROR);
  EXPECT_THAT(window.message, HasSubstr("only mask is causal"));

  PluginCall capped;
  capped.problem.softcap = 30;
  EXPECT_EQ(capped.run("triton"), ATTEST_ERROR);
  EXPECT_THAT(capped.message, HasSubstr("no lengths, pages, softcap"));

  PluginCall brain;
  for (attest_tensor* t : {&brain.inputs.q, &brain.inputs.k, &brain.inputs.v}) {
    t->dtype = ATTEST_BF16;
  }
  EXPECT_EQ(brain.run("triton"), ATTEST_ERROR);
  EXPECT_THAT(brain.message, HasSubstr("both operands have one type: fp16 and bf16"));
}

}  // namespace
}  // namespace attest::vendor::triton
