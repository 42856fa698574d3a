// The kernel on matrix tiles: its tiles emulated, and the processor's own where it has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "impl/amx/availability.h"
#include "impl/amx/pack.h"
#include "impl/amx/steps.inl"
#include "reference/working.h"
#include "tests/impl/amx_emulation.h"
#include "tests/impl/any_features.h"
#include "tests/impl/any_mask.h"
#include "tests/impl/description_of.h"
#include "tests/impl/fractions.h"
#include "tests/impl/host.h"
#ifdef ATTEST_HAS_AMX
#include "impl/amx/intrinsics.h"
#endif

namespace attest {
namespace {

using impl::BFloat16;
using impl::narrow;
using impl::widen;
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const impl::amx::Steps& emulated_steps() {
  static constexpr auto kSteps = impl::amx::steps_of<TileEmulation>();
  return kSteps;
}

// ---- The emulation -----------------------------------------------------------------------------

using Pairs = std::vector<std::array<float, 2>>;

// c + the products of pairs, as one element of a tile.
float dot(float c, const Pairs& left, const Pairs& right) {
  std::uint16_t a[16][32] = {}, b[16][32] = {};
  float sums[16][16] = {};
  sums[3][5] = c;
  for (std::size_t k = 0; k < left.size(); ++k) {
    for (std::size_t half = 0; half < 2; ++half) {
      a[3][2 * k + half] = narrow<BFloat16>(left[k][half]).bits;
      b[k][2 * 5 + half] = narrow<BFloat16>(right[k][half]).bits;
    }
  }
  TileEmulation::configure();
  TileEmulation::load<0>(sums, sizeof sums[0]);
  TileEmulation::load<4>(a, sizeof a[0]);
  TileEmulation::load<6>(b, sizeof b[0]);
  TileEmulation::multiply<0, 4, 6>();
  TileEmulation::store<0>(sums, sizeof sums[0]);
  TileEmulation::release();
  return sums[3][5];
}

TEST(TileEmulationTest, SubnormalFactorsCountAsZero) {
  // Measured on a processor; exact would be 1.7965.
  EXPECT_EQ(dot(0, {{1, 8e-39f}}, {{1, 1e38f}}), 1);
  EXPECT_EQ(dot(1e-39f, {}, {}), 0);
}

TEST(TileEmulationTest, SubnormalSumsBecomeZero) {
  EXPECT_EQ(dot(0, {{0x1p-70f, 0}}, {{0x1p-70f, 0}}), 0);
  EXPECT_EQ(dot(0, {{0x1p-126f, 0x1p-126f}}, {{1, -0.5f}}), 0x1p-126f);
  EXPECT_EQ(dot(0x1.8p-126f, {{0x1p-126f, 0}}, {{-1, 0}}), 0);
}

TEST(TileEmulationTest, LowAndHighHalvesAreSummedApartAndAddedToTheTileLast) {
  // One after the other, the ones would be lost to the rounding of 2^24 + 1.
  EXPECT_EQ(dot(0, {{0x1p24f, 1}, {0, 1}}, {{1, 1}, {0, 1}}), 0x1p24f + 2);
  EXPECT_EQ(dot(0, {{0x1p24f, 0}, {1, 0}, {1, 0}}, {{1, 0}, {1, 0}, {1, 0}}), 0x1p24f);
  EXPECT_EQ(dot(0x1p24f, {{1, 1}}, {{1, 1}}), 0x1p24f + 2);
}

TEST(TileEmulationTest, TilesAreNotUsedUnconfiguredOrUnset) {
  TileEmulation::release();
  EXPECT_THROW(TileEmulation::zero<0>(), std::logic_error);
  TileEmulation::configure();
  TileEmulation::zero<0>();
  EXPECT_THROW((TileEmulation::multiply<0, 4, 6>()), std::logic_error);
  TileEmulation::release();
}

// ---- Products ----------------------------------------------------------------------------------

// A matrix of a tensor, its rows or its columns side by side.
struct Matrix {
  Matrix(std::int64_t the_rows, std::int64_t the_columns, bool transposed)
      : rows(the_rows), columns(the_columns) {
    row_stride = transposed ? 1 : columns + 3;
    column_stride = transposed ? rows + 3 : 1;
    elements.resize(static_cast<std::size_t>((rows + 3) * (columns + 3)), {0x7fc0});  // NaN
  }
  BFloat16& at(std::int64_t row, std::int64_t column) {
    return elements[static_cast<std::size_t>(row * row_stride + column * column_stride)];
  }
  impl::amx::View view() const {
    return {elements.data(), rows, columns, row_stride, column_stride};
  }

  std::int64_t rows, columns, row_stride, column_stride;
  std::vector<BFloat16> elements;
};

// c = a b, or c + a b, of packed sides.
std::vector<float> multiplied(const impl::amx::Steps& steps, const Matrix& a, const Matrix& b,
                              bool adds, float c) {
  using impl::amx::padded;
  const std::int64_t rows = padded(a.rows), inner = padded(a.columns), columns = padded(b.columns);
  const std::int64_t ahead = impl::amx::kEdge;  // b lies behind other rows
  std::vector<std::uint16_t> left(static_cast<std::size_t>(rows * inner), 0x7fc0);
  std::vector<std::uint16_t> right(static_cast<std::size_t>((ahead + inner) * columns), 0x7fc0);
  std::vector<float> result(static_cast<std::size_t>(rows * columns), c);
  impl::amx::pack_left(a.view(), rows, inner, left.data());
  impl::amx::pack_right(b.view(), ahead, ahead + inner, right.data());
  const impl::amx::Product product = {
      .a = {left.data(), inner},
      .b = impl::amx::Right{right.data(), ahead + inner}.from(ahead, 0),
      .c = result.data(),
      .c_stride = columns,
      .rows = rows,
      .columns = columns,
      .inner = inner,
      .adds = adds};
  steps.enter();
  steps.multiply({&product, 1});
  steps.leave();
  return result;
}

std::int64_t any_size() {
  return *rc::gen::oneOf(rc::gen::just(within<std::int64_t>(1, 12)),
                         rc::gen::just(within<std::int64_t>(14, 19)),
                         rc::gen::just(within<std::int64_t>(30, 67)));
}

RC_GTEST_PROP(ProductTest, OfIntegersIsExactWhateverTheSizesAndTheStrides, ()) {
  const std::int64_t rows = any_size(), inner = any_size(), columns = any_size();
  Matrix a(rows, inner, *rc::gen::arbitrary<bool>()),
      b(inner, columns, *rc::gen::arbitrary<bool>());
  std::mt19937 bits(*rc::gen::arbitrary<unsigned>());
  const auto fill = [&](Matrix& matrix) {
    for (std::int64_t i = 0; i < matrix.rows; ++i) {
      for (std::int64_t j = 0; j < matrix.columns; ++j) {
        matrix.at(i, j) =
            narrow<BFloat16>(static_cast<float>(static_cast<int>(bits() % 255) - 127));
      }
    }
  };
  fill(a);
  fill(b);
  const bool adds = *rc::gen::arbitrary<bool>();
  const auto result = multiplied(emulated_steps(), a, b, adds, 1000);
  const std::int64_t stride = impl::amx::padded(columns);
  for (std::int64_t i = 0; i < impl::amx::padded(rows); ++i) {
    for (std::int64_t j = 0; j < stride; ++j) {
      double exact = adds ? 1000 : 0;
      for (std::int64_t k = 0; i < rows && j < columns && k < inner; ++k) {
        exact += static_cast<double>(widen(a.at(i, k))) * static_cast<double>(widen(b.at(k, j)));
      }
      RC_ASSERT(static_cast<double>(result[static_cast<std::size_t>(i * stride + j)]) == exact);
    }
  }
}

TEST(ProductTest, TheProcessorsTilesGiveTheBitsOfTheEmulation) {
  const std::string missing = impl::amx::missing_for_tiles();
  if (!missing.empty()) GTEST_SKIP() << missing;
#ifdef ATTEST_HAS_AMX
  std::mt19937 bits(1);
  for (int round = 0; round < 200; ++round) {
    Matrix a(40, 70, false), b(70, 50, round % 2 == 1);
    // All exponents, or those near 1; subnormal numbers among them, but no NaN.
    const auto draw = [&] {
      const auto any = static_cast<std::uint16_t>(bits() & 0xffff);
      const auto near = static_cast<std::uint16_t>((any & 0x83ff) | 0x3c00);
      const std::uint16_t drawn = round % 4 < 2 ? near : any;
      return BFloat16{(drawn & 0x7f80) == 0x7f80 ? std::uint16_t{0} : drawn};
    };
    for (Matrix* matrix : {&a, &b}) {
      for (std::int64_t i = 0; i < matrix->rows; ++i) {
        for (std::int64_t j = 0; j < matrix->columns; ++j) matrix->at(i, j) = draw();
      }
    }
    const auto emulated = multiplied(emulated_steps(), a, b, true, 1);
    const auto real = multiplied(impl::amx::tile_steps(), a, b, true, 1);
    for (std::size_t n = 0; n < real.size(); ++n) {
      if (std::isnan(real[n]) && std::isnan(emulated[n])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(real[n]), std::bit_cast<std::uint32_t>(emulated[n]));
    }
  }
#endif
}

TEST(StepsTest, ExpIsWithinOneUlp) {
  double worst = 0;
  for (double x = -104; x <= 43; x += 0x1.23p-10) {
    const float argument = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(argument));
    const float result = impl::amx::exp_of(impl::amx::broadcast(argument))[7];
    const double ulp = std::max(0x1p-149, std::exp2(std::floor(std::log2(exact)) - 23));
    worst = std::max(worst, std::abs(static_cast<double>(result) - exact) / ulp);
  }
  EXPECT_LE(worst, 1);
  EXPECT_GT(worst, 0.5);  // so it has been measured
  EXPECT_EQ(impl::amx::exp_of(impl::amx::broadcast(0))[0], 1);
  EXPECT_EQ(impl::amx::exp_of(impl::amx::broadcast(-std::numeric_limits<float>::infinity()))[0], 0);
  EXPECT_TRUE(std::isnan(
      impl::amx::exp_of(impl::amx::broadcast(std::numeric_limits<float>::quiet_NaN()))[0]));
}

// ---- The kernel --------------------------------------------------------------------------------

const attest_kernel& emulated_kernel() {
  static const attest_kernel& kernel = load_kernel(ATTEST_AMX_EMULATED, "amx_emulated");
  return kernel;
}

// The emulated one, and the real one where it runs.
std::vector<const attest_kernel*> kernels() {
  static const impl::Plugin of_this_processor = [] {
    std::vector<impl::KernelCode> codes;
    std::vector<impl::AbsentKernel> absent;
    impl::amx::offer_tile_kernel("fa2/amx", codes, absent);
    return impl::Plugin(codes, absent);
  }();
  std::vector<const attest_kernel*> result = {&emulated_kernel()};
  const attest_plugin& real = *of_this_processor.table();
  result.insert(result.end(), real.kernels, real.kernels + real.kernel_count);
  return result;
}

// The first element beyond its bound; empty if there is none.
std::string beyond_bound(const char* name, DType dtype, const std::vector<double>& actual,
                         const Expected& expected) {
  for (std::size_t n = 0; n < actual.size(); ++n) {
    const double exact = expected.value[n];
    if (actual[n] == exact || std::isinf(expected.bound[n])) continue;
    if (!std::isnan(actual[n])) {
      const Cell cell = rounding_cell(dtype, actual[n]);
      const long double distance = std::max({cell.low - exact, exact - cell.high, 0.0L});
      if (distance <= expected.bound[n]) continue;
    }
    std::ostringstream text;
    text << name << "[" << n << "] = " << actual[n] << ", exact " << exact << ", bound "
         << expected.bound[n];
    return text.str();
  }
  return "";
}

// Runs a kernel and judges it by what it declares.
std::string judged(const attest_kernel& kernel, const Problem& p, Inputs in) {
  const Outputs actual = run(kernel, p, in);
  in.keep = actual.keep;
  const Arithmetic arithmetic = description_of(kernel).arithmetic.at(DType::bf16);
  const ForwardExpected forward = expect_forward(p, in, arithmetic);
  std::string found = beyond_bound("o", p.dtype, actual.o, forward.o) +
                      beyond_bound("lse", DType::f32, actual.lse, forward.lse);
  if (p.backward && found.empty()) {
    const BackwardExpected backward = expect_backward(p, in, arithmetic);
    found = beyond_bound("dq", p.dtype, actual.dq, backward.dq) +
            beyond_bound("dk", p.dtype, actual.dk, backward.dk) +
            beyond_bound("dv", p.dtype, actual.dv, backward.dv) +
            beyond_bound("dbias", p.dtype, actual.dbias, backward.dbias) +
            beyond_bound("dsink", DType::f32, actual.dsink, backward.dsink);
  }
  return found.empty() ? found : found + " in " + to_string(p);
}

Problem any_problem() {
  Problem p{.dtype = DType::bf16};
  p.batch = within<Index>(1, 3);
  p.key_heads = within<Index>(1, 3);
  p.query_heads = p.key_heads * within<Index>(1, 3);
  // Often around whole squares and blocks.
  const auto length = [] {
    switch (within<int>(0, 8)) {
      case 0:
        return within<Index>(127, 132);
      case 1:
        return within<Index>(255, 260);
      case 2:
      case 3:
        return within<Index>(30, 35);
      default:
        return once_in(24) ? Index(0) : within<Index>(1, 20);
    }
  };
  p.query_len = length();
  p.key_len = length();
  p.head_dim = once_in(6) ? within<Index>(31, 35) : within<Index>(once_in(12) ? 0 : 1, 20);
  p.value_dim = once_in(6) ? within<Index>(31, 35) : within<Index>(once_in(12) ? 0 : 1, 20);
  p.scale = *rc::gen::element(0.25, -0.3, 0.0, 1.0);
  p.backward = *rc::gen::arbitrary<bool>();
  const auto lens = [&](Index whole) {
    std::vector<Index> result;
    for (Index b = 0; b < p.batch; ++b) result.push_back(within<Index>(0, whole + 1));
    return result;
  };
  const bool paged = once_in(6);
  if (once_in(3)) p.query_lens = lens(p.query_len);
  if (paged || once_in(3)) p.key_lens = lens(p.key_len);
  if (paged) add_pages(p);
  add_features(p);
  if (once_in(3)) p.layouts.q = p.layouts.k = Layout::parse("bhds gap=3");
  if (once_in(3)) p.layouts.v = p.layouts.d_o = p.layouts.dk = Layout::parse("sbhd gap=3");
  return p;
}

class TileKernelTest : public ::testing::TestWithParam<const attest_kernel*> {
 protected:
  const attest_kernel& kernel() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(All, TileKernelTest, ::testing::ValuesIn(kernels()),
                         [](const auto& which) {
                           std::string name = which.param->name;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

TEST_P(TileKernelTest, RandomProblemsAreWithinTheBoundsOfWhatItDeclares) {
  EXPECT_TRUE(rc::check([this] {
    const Problem p = any_problem();
    const std::string found = judged(kernel(), p, eighths(p, *rc::gen::arbitrary<unsigned>()));
    if (!found.empty()) RC_FAIL(found);
  }));
}

// Several blocks of queries and of keys, of everything that the kernel computes while it has
// something to compute beside it.
Problem many_blocks() {
  return {.dtype = DType::bf16,
          .query_heads = 2,
          .key_heads = 1,
          .query_len = 200,
          .key_len = 300,
          .head_dim = 40,
          .value_dim = 24,
          .scale = 0.25,
          .mask = Mask::causal(Anchor::bottom_right),
          .backward = true};
}

TEST_P(TileKernelTest, ManyBlocksAreWithinTheBounds) {
  EXPECT_EQ(judged(kernel(), many_blocks(), eighths(many_blocks(), 1)), "");
  Problem full = many_blocks();
  full.mask = Mask::full();
  EXPECT_EQ(judged(kernel(), full, eighths(full, 2)), "");
}

TEST_P(TileKernelTest, AscendingScoresRescaleEveryBlock) {
  Problem p = many_blocks();
  p.mask = Mask::full();
  p.head_dim = 1;
  Inputs in = eighths(p, 3);
  for (double& q : in.q.data) q = 1;
  for (Index j = 0; j < p.key_len; ++j) in.k.at(0, 0, j, 0) = static_cast<double>(j / 8);
  EXPECT_EQ(judged(kernel(), p, in), "");
}

TEST_P(TileKernelTest, AnyNumberOfThreadsGivesTheSameBits) {
  Problem p = many_blocks();
  p.batch = 2;
  p.head_dim = 24;
  const Inputs in = eighths(p, 4);
  EXPECT_TRUE(run(kernel(), p, in, {.threads = 1}) == run(kernel(), p, in, {.threads = 3}));
}

TEST_P(TileKernelTest, SubnormalInputsAreFlushedAsItDeclares) {
  EXPECT_TRUE(description_of(kernel()).arithmetic.at(DType::bf16).flushes_inputs);
  const Problem p{.dtype = DType::bf16, .key_len = 3};
  const Inputs in{.q = {p.q_shape(), {1}},
                  .k = {p.k_shape(), {0, 0, 0}},
                  .v = {p.v_shape(), {0x1p-130, 0x1p-130, 0x1p-130}}};
  EXPECT_EQ(run(kernel(), p, in).o[0], 0);
  EXPECT_EQ(judged(kernel(), p, in), "");
}

TEST_P(TileKernelTest, ScoresThatAreFiniteAfterTheScaleDoNotOverflowBeforeIt) {
  const Problem p{.dtype = DType::bf16, .key_len = 2, .scale = 0x1p-127, .backward = true};
  Inputs in = eighths(p, 5);
  in.q.data = {0x1p64};
  in.k.data = {0x1p64, 0x1.8p64};
  const Outputs out = run(kernel(), p, in);
  EXPECT_NEAR(out.lse[0], 3 + std::log1p(std::exp(-1)), 1e-6);  // of scores 2 and 3
  EXPECT_EQ(judged(kernel(), p, in), "");
}

// Top left, query i sees keys 0 to i.
Problem seen_in_part() {
  Problem p = many_blocks();
  p.mask = Mask::causal(Anchor::top_left);
  p.query_heads = 1;
  p.query_len = 151;
  p.key_len = 158;
  p.head_dim = p.value_dim = 9;
  return p;
}

// Where `values` may differ from `before`; all else must be the same, and that not finite.
void expect_special_exactly(const std::vector<double>& values, const std::vector<double>& before,
                            const Shape& shape, Index begin, Index end, Index channel) {
  for (std::size_t n = 0; n < values.size(); ++n) {
    const auto at = coordinates(shape, static_cast<Index>(n));
    const Index position = at[kPosition];
    if (position >= begin && position < end && (channel < 0 || at[kChannel] == channel)) {
      EXPECT_FALSE(std::isfinite(values[n])) << position << "," << at[kChannel];
    } else {
      EXPECT_EQ(values[n], before[n]) << position << "," << at[kChannel];
    }
  }
}

TEST_P(TileKernelTest, WhatIsNotFiniteReachesThoseThatSeeItAndNobodyElse) {
  const Problem p = seen_in_part();
  const Inputs in = eighths(p, 6);
  const Outputs before = run(kernel(), p, in);
  const Index at = 70, channel = 7, every = -1;
  const auto with = [&](Values Inputs::*tensor, double special) {
    Inputs changed = in;
    (changed.*tensor).at(0, 0, at, channel) = special;
    return run(kernel(), p, changed);
  };
  const Outputs q = with(&Inputs::q, kNaN);
  expect_special_exactly(q.o, before.o, p.o_shape(), at, at + 1, every);
  expect_special_exactly(q.dq, before.dq, p.q_shape(), at, at + 1, every);
  expect_special_exactly(q.dk, before.dk, p.k_shape(), 0, at + 1, every);
  expect_special_exactly(q.dv, before.dv, p.v_shape(), 0, at + 1, every);
  const Outputs v = with(&Inputs::v, kInfinity);
  expect_special_exactly(v.o, before.o, p.o_shape(), at, p.query_len, channel);
  expect_special_exactly(v.dq, before.dq, p.q_shape(), at, p.query_len, every);
  const Outputs d_o = with(&Inputs::d_o, kInfinity);
  expect_special_exactly(d_o.dq, before.dq, p.q_shape(), at, at + 1, every);
  expect_special_exactly(d_o.dk, before.dk, p.k_shape(), 0, at + 1, every);
  expect_special_exactly(d_o.dv, before.dv, p.v_shape(), 0, at + 1, channel);
  const Outputs k = with(&Inputs::k, kNaN);
  expect_special_exactly(k.o, before.o, p.o_shape(), at, p.query_len, every);
  expect_special_exactly(k.dq, before.dq, p.q_shape(), at, p.query_len, every);
}

TEST_P(TileKernelTest, WhatNobodySeesChangesNoBitWhateverItIs) {
  const Problem p = seen_in_part();
  const Inputs in = eighths(p, 7);
  const Outputs before = run(kernel(), p, in);
  Inputs changed = in;
  for (Index j = p.query_len; j < p.key_len; ++j) {
    changed.k.at(0, 0, j, j % 9) = kNaN;
    changed.v.at(0, 0, j, j % 9) = kInfinity;
  }
  EXPECT_TRUE(run(kernel(), p, changed) == before);
}

TEST_P(TileKernelTest, OtherFormatsAreRefusedWithAReason) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
    const HostProblem problem(Problem{.dtype = dtype});
    char reason[100] = "";
    EXPECT_EQ(kernel().supports(&kernel(), problem.get(), reason, sizeof reason), 0);
    EXPECT_THAT(reason, HasSubstr("only bf16"));
    EXPECT_EQ(kernel().workspace(&kernel(), problem.get(), 0, 1), UINT64_MAX);
  }
  EXPECT_EQ(description_of(kernel()).dtypes, std::vector{DType::bf16});
}

TEST_P(TileKernelTest, NoWorkspaceIsLargerThanDeclared) {
  const auto declared = description_of(kernel()).memory;
  ASSERT_TRUE(declared);
  EXPECT_TRUE(rc::check([&] {
    Problem p = {.dtype = DType::bf16,
                 .key_heads = within<Index>(1, 3),
                 .query_len = within<Index>(0, *rc::gen::element<Index>(3, 200, 20000)),
                 .key_len = within<Index>(0, *rc::gen::element<Index>(3, 200, 20000)),
                 .head_dim = within<Index>(0, 300),
                 .value_dim = within<Index>(0, 300),
                 .softcap = *rc::gen::element(0.0, 30.0),
                 .backward = true};
    p.query_heads = p.key_heads * within<Index>(1, 5);
    if (once_in(2)) p.bias_shape = Shape{1, 1, 1, 1};
    const HostProblem problem(p);
    for (const int backward : {0, 1}) {
      for (const int threads : {1, 4}) {
        const auto asked = kernel().workspace(&kernel(), problem.get(), backward, threads);
        RC_ASSERT(static_cast<double>(asked) <= declared->workspace.bytes(p, threads));
      }
    }
  }));
}

// ---- Where there are no tiles ------------------------------------------------------------------

TEST(AvailabilityTest, WhatIsMissingIsSaidInTheOrderInWhichItWouldBeMet) {
  using impl::amx::missing;
  impl::amx::Machine machine;
  EXPECT_THAT(missing(machine), HasSubstr("the processor has no AMX"));
  machine.has_tiles = true;
  EXPECT_THAT(missing(machine), HasSubstr("not AVX512-BF16"));
  machine.has_vectors = true;
  EXPECT_THAT(missing(machine), HasSubstr("operating system"));
  machine.saves_registers = true;
  EXPECT_EQ(missing(machine), "");
  machine.permission_error = EPERM;
  EXPECT_THAT(missing(machine), HasSubstr("ARCH_REQ_XCOMP_PERM"));
  EXPECT_THAT(missing(machine), HasSubstr(std::strerror(EPERM)));
}

TEST(AvailabilityTest, TheKernelIsEitherOfferedOrSaidToBeAbsentAndWhy) {
  std::vector<impl::KernelCode> codes;
  std::vector<impl::AbsentKernel> absent;
  impl::amx::offer_tile_kernel("fa2/amx", codes, absent);
  ASSERT_EQ(codes.size() + absent.size(), 1u);
  EXPECT_EQ(codes.empty(), !impl::amx::missing_for_tiles().empty());
  if (!absent.empty()) {
    EXPECT_EQ(absent[0].name, "fa2/amx");
    EXPECT_EQ(absent[0].why, impl::amx::missing_for_tiles());
  }
}

TEST(AvailabilityTest, APluginListsTheKernelsThatItLacks) {
  const attest_plugin& plugin = load_plugin(ATTEST_AMX_EMULATED);
  ASSERT_EQ(plugin.absent_kernel_count, 1u);
  EXPECT_STREQ(plugin.absent_kernels[0]->name, "amx_emulated/real");
  EXPECT_STREQ(plugin.absent_kernels[0]->why, "tiles are emulated here");
}

}  // namespace
}  // namespace attest
