// The bundled kernels, as a host meets them: all of them, through their shared libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "spec/profile.h"
#include "tests/impl/any_features.h"
#include "tests/impl/any_mask.h"
#include "tests/impl/description_of.h"
#include "tests/impl/expected.h"
#include "tests/impl/fractions.h"
#include "tests/impl/host.h"

namespace attest {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const attest_kernel& naive() {
  static const attest_kernel& kernel = load_kernel(ATTEST_NAIVE, "naive");
  return kernel;
}

const attest_kernel& textbook() {
  static const attest_kernel& kernel = load_kernel(ATTEST_NAIVE, "naive/textbook");
  return kernel;
}

const attest_kernel& fa2() {
  static const attest_kernel& kernel = load_kernel(ATTEST_FA2, "fa2");
  return kernel;
}

const attest_kernel& causal_balanced() {
  static const attest_kernel& kernel = load_kernel(ATTEST_CAUSAL_BALANCED, "causal_balanced");
  return kernel;
}

const attest_kernel& fa1_split_kv() {
  static const attest_kernel& kernel = load_kernel(ATTEST_FA1_SPLIT_KV, "fa1_split_kv");
  return kernel;
}

const attest_kernel& lazy_mask() {
  static const attest_kernel& kernel = load_kernel(ATTEST_LAZY_MASK, "lazy_mask");
  return kernel;
}

const attest_kernel& dense_mask() {
  static const attest_kernel& kernel = load_kernel(ATTEST_LAZY_MASK, "lazy_mask/dense");
  return kernel;
}

// Whether what it computes depends on the threads that it is given.
bool splits_by_threads(const attest_kernel& kernel) {
  return &kernel == &fa1_split_kv() || &kernel == &causal_balanced();
}

// Empty if all is within tolerance.
std::string difference(const char* name, const std::vector<double>& actual,
                       const Expected& expected) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected.value[i]) continue;  // infinities too
    // A result of NaN fails, because the comparison is false.
    if (std::abs(actual[i] - expected.value[i]) <= expected.bound[i]) continue;
    return std::string(name) + "[" + std::to_string(i) + "] = " + std::to_string(actual[i]) +
           ", expected " + std::to_string(expected.value[i]) + " +- " +
           std::to_string(expected.bound[i]);
  }
  return "";
}

std::string difference(const Problem& p, const Outputs& actual, PassesExpected expected) {
  auto& [o, lse] = expected.forward;
  auto& [dq, dk, dv, dbias, dsink] = expected.backward;
  // The last rounding is proportional to the result.
  for (Expected* e : {&o, &dq, &dk, &dv, &dbias}) {
    for (std::size_t i = 0; i < e->value.size(); ++i) {
      e->bound[i] += unit_roundoff(p.dtype) * std::abs(e->value[i]);
    }
  }
  for (std::size_t i = 0; i < dsink.value.size(); ++i) {
    dsink.bound[i] += 0x1p-24 * std::abs(dsink.value[i]);
  }
  for (const auto& [name, values, correct] :
       {std::tuple{"o", &actual.o, &o}, std::tuple{"lse", &actual.lse, &lse},
        std::tuple{"dq", &actual.dq, &dq}, std::tuple{"dk", &actual.dk, &dk},
        std::tuple{"dv", &actual.dv, &dv}, std::tuple{"dbias", &actual.dbias, &dbias},
        std::tuple{"dsink", &actual.dsink, &dsink}}) {
    const std::string found = difference(name, *values, *correct);
    if (!found.empty()) return found + " in " + to_string(p);
  }
  return "";
}

// Runs a kernel and compares it with what is expected of it, under the dropout that it used.
std::string difference(const attest_kernel& kernel, const Problem& p, Inputs in,
                       const HostOptions& options = {}) {
  const Outputs actual = run(kernel, p, in, options);
  in.keep = actual.keep;
  return difference(p, actual, expect(p, in));
}

Layout any_layout(bool may_expand) {
  std::string text = *rc::gen::element<std::string>("bhsd", "bshd", "bhds", "sbhd", "dshb");
  if (*rc::gen::arbitrary<bool>()) text += " gap=3";
  if (*rc::gen::arbitrary<bool>()) text += " wild";
  if (may_expand && within<int>(0, 3) == 0) {
    text += *rc::gen::element<std::string>(" expand=h", " expand=b", " expand=s", " expand=d");
  }
  return Layout::parse(text);
}

Problem any_problem() {
  Problem p;
  p.dtype = *rc::gen::elementOf(kDTypes);
  // Sizes of 0 are legal, but a problem that has one tests little else.
  const auto any_size = [](Index least, Index beyond) {
    return once_in(24) ? 0 : within<Index>(least, beyond);
  };
  p.batch = any_size(1, 4);
  p.key_heads = within<Index>(1, 3);
  p.query_heads = p.key_heads * any_size(1, 3);
  // Often around the block of 64, where tails begin and end.
  const auto length = [&] {
    const int kind = within<int>(0, 4);
    return kind < 2 ? any_size(1, 12) : kind == 2 ? within<Index>(62, 67) : within<Index>(127, 131);
  };
  p.query_len = length();
  p.key_len = length();
  p.head_dim = any_size(1, 12);
  p.value_dim = any_size(1, 12);
  p.scale = *rc::gen::element(0.25, -0.3, 0.0, 1.0);
  p.backward = *rc::gen::arbitrary<bool>();
  const auto lens = [&](Index whole) {
    std::vector<Index> result;
    for (Index b = 0; b < p.batch; ++b) {
      result.push_back(once_in(3) ? within<Index>(0, whole + 1) : whole);
    }
    return result;
  };
  const auto longest = [](const std::vector<Index>& of) {
    return of.empty() ? Index(0) : *std::max_element(of.begin(), of.end());
  };
  p.packed = once_in(4);
  const bool paged = once_in(5);
  if (p.packed || *rc::gen::arbitrary<bool>()) p.query_lens = lens(p.query_len);
  if (p.packed || paged || *rc::gen::arbitrary<bool>()) p.key_lens = lens(p.key_len);
  if (p.packed) p.query_len = longest(p.query_lens);
  if (p.packed && !paged) p.key_len = longest(p.key_lens);
  if (paged) add_pages(p);
  add_features(p);
  Layouts& l = p.layouts;
  if (p.bias_shape) l.bias = any_layout(true);
  for (Layout* layout : {&l.q, &l.k, &l.v, &l.d_o}) *layout = any_layout(true);
  for (Layout* layout : {&l.o, &l.dq, &l.dk, &l.dv}) *layout = any_layout(false);
  return p;
}

// Overwrites what no query may see of K and V, and what a length hides of Q, dO and dLSE: with
// `masked` the keys that mask or bias hide from all queries, with `beyond` what does not exist,
// such as slots of pages that nobody uses.
void fill_hidden(const Problem& p, double beyond, double masked, Inputs& in) {
  const auto fill = [](Values& values, Index b, Index h, Index s, double with) {
    if (values.data.empty()) return;
    for (Index d = 0; d < values.shape[kChannel]; ++d) values.at(b, h, s, d) = with;
  };
  enum : std::uint8_t { kNobodys, kMasked, kSeen };
  for (Index g = 0; g < p.key_heads; ++g) {
    const Shape shape = {p.k_shape()[kBatch], 1, p.k_shape()[kPosition], 1};
    std::vector<std::uint8_t> slots(static_cast<std::size_t>(element_count(shape)), kNobodys);
    for (Index b = 0; b < p.batch; ++b) {
      const Lengths lengths = p.lengths(b);
      for (Index j = 0; j < lengths.key; ++j) {
        const Place place = p.key_place(b, j);
        auto& slot =
            slots[static_cast<std::size_t>(dense_index(shape, place.batch, 0, place.position, 0))];
        slot = std::max<std::uint8_t>(slot, kMasked);
        for (Index h = g * p.group_size(); h < (g + 1) * p.group_size(); ++h) {
          for (Index i = 0; i < lengths.query; ++i) {
            if (!visible(p, {.batch = b, .head = h, .query = i, .key = j})) continue;
            if (p.bias_shape && std::isinf(in.bias.data[static_cast<std::size_t>(
                                    broadcast_index(*p.bias_shape, b, h, i, j))])) {
              continue;
            }
            slot = kSeen;
          }
        }
      }
    }
    for (std::size_t n = 0; n < slots.size(); ++n) {
      if (slots[n] == kSeen) continue;
      const auto at = coordinates(shape, static_cast<Index>(n));
      const double with = slots[n] == kMasked ? masked : beyond;
      fill(in.k, at[kBatch], g, at[kPosition], with);
      fill(in.v, at[kBatch], g, at[kPosition], with);
    }
  }
  for (Index b = 0; b < p.batch; ++b) {
    for (Index i = p.lengths(b).query; i < p.stored_queries(b); ++i) {
      for (Index h = 0; h < p.query_heads; ++h) {
        for (Values* values : {&in.q, &in.d_o, &in.d_lse}) fill(*values, b, h, i, beyond);
      }
    }
  }
}

class KernelsTest : public ::testing::TestWithParam<const attest_kernel* (*)()> {
 protected:
  const attest_kernel& kernel() const { return *GetParam()(); }
};

INSTANTIATE_TEST_SUITE_P(Bundled, KernelsTest,
                         ::testing::Values([]() { return &naive(); }, []() { return &textbook(); },
                                           []() { return &fa2(); },
                                           []() { return &causal_balanced(); },
                                           []() { return &fa1_split_kv(); },
                                           []() { return &lazy_mask(); }),
                         [](const auto& which) {
                           std::string name = which.param()->name;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

TEST_P(KernelsTest, RandomProblemsAreComputedWithinTolerance) {
  EXPECT_TRUE(rc::check([this] {
    const Problem p = any_problem();
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    const std::string found = difference(kernel(), p, in);
    if (!found.empty()) RC_FAIL(found);
  }));
}

TEST_P(KernelsTest, WhatIsHiddenChangesNoBit) {
  EXPECT_TRUE(rc::check([this] {
    Problem p = any_problem();
    p.layouts = {};  // an expanded key cannot be changed alone
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    Inputs changed = in;
    const double huge = p.dtype == DType::f16 ? 6e4 : 1e30;
    const auto [beyond, masked] =
        *rc::gen::element(std::pair{kNaN, huge}, std::pair{kInfinity, kNaN});
    fill_hidden(p, beyond, masked, changed);
    RC_ASSERT(run(kernel(), p, in) == run(kernel(), p, changed));
  }));
}

// Of everything that a problem may have at once; large enough to be worth several threads.
Problem rich_problem(DType dtype) {
  return {.dtype = dtype,
          .batch = 2,
          .query_heads = 2,
          .key_heads = 1,
          .query_len = 130,
          .key_len = 150,
          .head_dim = 32,
          .value_dim = 32,
          .scale = 0.2,
          .softcap = 5,
          .mask = Mask::causal(Anchor::bottom_right),
          .bias_shape = Shape{1, 1, 130, 150},
          .slopes_shape = Shape{1, 2, 1, 1},
          .sink = true,
          .dropout = {.mode = Dropout::Mode::generated, .probability = 0.25, .seed = 7},
          .backward = true,
          .d_lse = true};
}

TEST_P(KernelsTest, AnyNumberOfThreadsGivesTheSameBits) {
  if (splits_by_threads(kernel())) return;
  for (const DType dtype : kDTypes) {
    Problem p = rich_problem(dtype);
    for (const Shape& bias : {Shape{1, 1, 130, 150}, Shape{1, 2, 1, 150}}) {
      p.bias_shape = bias;
      const Inputs in = sixteenths(p, 1);
      const Outputs alone = run(kernel(), p, in);
      for (const int threads : {2, 3, 64}) {
        EXPECT_TRUE(alone == run(kernel(), p, in, {.threads = threads})) << threads;
      }
    }
  }
}

// Whole heads, and such as all workers share, of several key blocks.
TEST_P(KernelsTest, HeadsThatWorkersShareHaveTheSameBitsForAnyNumberOfThem) {
  if (splits_by_threads(kernel())) return;
  for (const Mask& mask : {Mask::causal(Anchor::bottom_right), Mask::full()}) {
    const Problem p{.batch = 1,
                    .query_heads = 6,
                    .key_heads = 3,
                    .query_len = 300,
                    .key_len = 700,
                    .head_dim = 8,
                    .value_dim = 16,
                    .mask = mask,
                    .backward = true};
    const Inputs in = sixteenths(p, 1);
    const Outputs alone = run(kernel(), p, in);
    for (const int threads : {2, 3, 7, 16}) {
      EXPECT_TRUE(alone == run(kernel(), p, in, {.threads = threads})) << threads;
    }
  }
}

TEST_P(KernelsTest, EverythingAtOnceIsWithinToleranceInAllFormats) {
  for (const DType dtype : kDTypes) {
    const Problem p = rich_problem(dtype);
    EXPECT_EQ(difference(kernel(), p, sixteenths(p, 2)), "");
  }
}

// DET-2. Of dBias and dSink, which sum over the batch, only those that don't.
TEST_P(KernelsTest, ABatchElementHasTheSameBitsAloneAndInAnotherPlace) {
  Problem p = rich_problem(DType::f32);
  p.dropout = {};
  p.bias_shape = Shape{2, 1, 130, 150};
  const Inputs in = sixteenths(p, 3);
  const Outputs both = run(kernel(), p, in);
  Problem one = p;
  one.batch = 1;
  one.bias_shape = Shape{1, 1, 130, 150};
  Inputs second = in;
  for (Values* values :
       {&second.q, &second.k, &second.v, &second.bias, &second.d_o, &second.d_lse}) {
    values->shape[0] = 1;
    const auto half = static_cast<std::ptrdiff_t>(values->data.size() / 2);
    values->data.erase(values->data.begin(), values->data.begin() + half);
  }
  const Outputs alone = run(kernel(), one, second);
  const auto is_end_of = [](const std::vector<double>& part, const std::vector<double>& whole) {
    return std::equal(part.rbegin(), part.rend(), whole.rbegin());
  };
  EXPECT_TRUE(is_end_of(alone.o, both.o));
  EXPECT_TRUE(is_end_of(alone.lse, both.lse));
  EXPECT_TRUE(is_end_of(alone.dq, both.dq));
  EXPECT_TRUE(is_end_of(alone.dk, both.dk));
  EXPECT_TRUE(is_end_of(alone.dv, both.dv));
  EXPECT_TRUE(is_end_of(alone.dbias, both.dbias));
}

TEST_P(KernelsTest, AGeneratedKeepMaskKeepsAsOftenAsItShould) {
  Problem p = rich_problem(DType::f32);
  p.backward = p.d_lse = false;
  const Inputs in = sixteenths(p, 1);
  const auto kept = [&](std::uint64_t seed, std::uint64_t offset) {
    p.dropout.seed = seed;
    p.dropout.offset = offset;
    return run(kernel(), p, in).keep.kept;
  };
  const auto mask = kept(7, 0);
  const auto count = static_cast<double>(mask.size());
  const auto ones = static_cast<double>(std::count(mask.begin(), mask.end(), 1));
  EXPECT_LT(std::abs(ones - 0.75 * count), 5 * std::sqrt(0.25 * 0.75 * count));
  EXPECT_EQ(kept(7, 0), mask);
  EXPECT_NE(kept(8, 0), mask);
  EXPECT_NE(kept(7, 1), mask);
}

TEST_P(KernelsTest, ARowWithASinkButNoKeysHasTheSinkAsItsLse) {
  Problem p{.query_len = 3,
            .key_len = 2,
            .head_dim = 2,
            .value_dim = 2,
            .mask = Mask::causal(Anchor::bottom_right),
            .sink = true,
            .backward = true,
            .d_lse = true};
  Inputs in = sixteenths(p, 1);
  // The gradient of O in a row without keys is of no interest to anybody.
  in.d_o.data[0] = in.d_o.data[1] = kNaN;
  Inputs clean = in;
  clean.d_o.data[0] = clean.d_o.data[1] = 0;
  const Outputs out = run(kernel(), p, in);
  EXPECT_EQ(difference(p, out, expect(p, clean)), "");
  EXPECT_EQ(out.o[0], 0);
  EXPECT_EQ(out.lse[0], in.sink.data[0]);
  EXPECT_EQ(out.dq[0], 0);
}

TEST_P(KernelsTest, ARowWithoutKeysIsZeroWithLseMinusInfinityAndGivesNoGradient) {
  const Problem p{.query_len = 130,
                  .key_len = 3,
                  .head_dim = 4,
                  .value_dim = 5,
                  .mask = Mask::causal(Anchor::bottom_right),
                  .backward = true};
  Inputs in = sixteenths(p, 1);
  // NaN in the rows without keys must not reach anything.
  for (std::size_t i = 0; i < 127 * 4; ++i) in.q.data[i] = kNaN;
  const Outputs out = run(kernel(), p, in);
  const std::vector<double> lse(out.lse.begin(), out.lse.begin() + 127);
  const std::vector<double> o(out.o.begin(), out.o.begin() + 127 * 5);
  const std::vector<double> dq(out.dq.begin(), out.dq.begin() + 127 * 4);
  EXPECT_THAT(lse, Each(-kInfinity));
  EXPECT_THAT(o, Each(0.0));
  EXPECT_THAT(dq, Each(0.0));
  for (const auto* tensor : {&out.o, &out.lse, &out.dq, &out.dk, &out.dv}) {
    for (const double value : *tensor) EXPECT_FALSE(std::isnan(value));
  }
}

TEST_P(KernelsTest, NaNInAQueryStaysInItsRow) {
  for (const DType dtype : kDTypes) {
    const Problem p{.dtype = dtype, .query_len = 70, .key_len = 70, .head_dim = 4, .value_dim = 4};
    Inputs in = sixteenths(p, 1);
    const Outputs clean = run(kernel(), p, in);
    in.q.data[5 * 4 + 2] = kNaN;
    const Outputs out = run(kernel(), p, in);
    for (std::size_t i = 0; i < 70; ++i) {
      for (std::size_t c = 0; c < 4; ++c) {
        if (i == 5) {
          EXPECT_TRUE(std::isnan(out.o[i * 4 + c]));
        } else {
          EXPECT_EQ(out.o[i * 4 + c], clean.o[i * 4 + c]);
        }
      }
      EXPECT_EQ(std::isnan(out.lse[i]), i == 5);
    }
  }
}

TEST_P(KernelsTest, NaNInAQueryReachesNoGradientOfAKeyThatItDoesNotSee) {
  const Problem p{.query_len = 20,
                  .key_len = 20,
                  .head_dim = 4,
                  .value_dim = 4,
                  .mask = Mask::causal(Anchor::top_left),
                  .backward = true};
  Inputs in = sixteenths(p, 1);
  in.q.data[5 * 4 + 2] = kNaN;
  const Outputs out = run(kernel(), p, in);
  for (std::size_t n = 6 * 4; n < 20 * 4; ++n) {
    ASSERT_FALSE(std::isnan(out.dk[n]));
    ASSERT_FALSE(std::isnan(out.dv[n]));
  }
}

// Beyond what is required (HIDE-3 is recommended); only one query of the block sees the last key.
TEST_P(KernelsTest, NaNInAKeyChangesNothingForTheQueriesFromWhichTheMaskHidesIt) {
  const Problem p{.query_len = 20,
                  .key_len = 20,
                  .head_dim = 4,
                  .value_dim = 4,
                  .mask = Mask::causal(Anchor::top_left),
                  .backward = true};
  Inputs in = sixteenths(p, 1);
  const Outputs clean = run(kernel(), p, in);
  for (std::size_t c = 0; c < 4; ++c) in.k.data[19 * 4 + c] = in.v.data[19 * 4 + c] = kNaN;
  const Outputs out = run(kernel(), p, in);
  for (std::size_t n = 0; n < 19 * 4; ++n) {
    ASSERT_EQ(out.o[n], clean.o[n]);
    ASSERT_EQ(out.dq[n], clean.dq[n]);
  }
  EXPECT_TRUE(std::isnan(out.o[19 * 4]));
  EXPECT_TRUE(std::isnan(out.dq[19 * 4]));
}

TEST_P(KernelsTest, ScoresThatAreFiniteAfterTheScaleDoNotOverflowBeforeIt) {
  const Problem p{.query_len = 2, .key_len = 3, .head_dim = 2, .value_dim = 1, .scale = 0x1p-140};
  const double big = 0x1p70;
  const Inputs in{.q = {p.q_shape(), {big, big, big, -big}},
                  .k = {p.k_shape(), {big, big, big, -big, 0, big}},
                  .v = {p.v_shape(), {1, 2, 3}}};
  EXPECT_EQ(difference(kernel(), p, in), "");
}

// Such a scale has few bits in f32.
TEST(NaiveTest, AScaleThatIsSubnormalInTheFormatIsTakenAsItIs) {
  const Problem p{.query_len = 2, .key_len = 3, .head_dim = 2, .value_dim = 1, .scale = 1e-43};
  const double big = 0x1p70;
  const Inputs in{.q = {p.q_shape(), {big, big, big, -big}},
                  .k = {p.k_shape(), {big, big, big, -big, 0, big}},
                  .v = {p.v_shape(), {1, 2, 3}}};
  EXPECT_EQ(difference(naive(), p, in), "");
  EXPECT_EQ(difference(textbook(), p, in), "");
}

TEST_P(KernelsTest, SequencesOfManyBlocksAreComputedWithinTolerance) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Problem p{.dtype = dtype,
                    .query_len = 310,
                    .key_len = 530,
                    .head_dim = 3,
                    .value_dim = 2,
                    .scale = 0.5,
                    .mask = Mask::causal(Anchor::bottom_right, 40),
                    .backward = true};
    EXPECT_EQ(difference(kernel(), p, sixteenths(p, 5)), "");
  }
}

TEST_P(KernelsTest, TheDescriptionIsUnderstoodAndDeclaresAllFeaturesOfAHost) {
  const Description description = description_of(kernel());
  EXPECT_EQ(description.name, kernel().name);
  std::vector<std::string> all = known_features();
  for (const char* of_a_device : {"stream", "two-streams", "graph"}) std::erase(all, of_a_device);
  EXPECT_THAT(description.features, testing::UnorderedElementsAreArray(all));
  EXPECT_EQ(description.dtypes.size(), kDTypes.size());
  const bool is_invariant = !splits_by_threads(kernel());
  EXPECT_EQ(description.profiles.size() + (is_invariant ? 1 : 2), profiles().size())
      << "but for that of devices";
  for (const auto& [dtype, arithmetic] : description.arithmetic) {
    EXPECT_TRUE(arithmetic.deterministic);
    // Evenly dealt sums, and parts that are merged, have an order for each number of workers.
    const bool splits = splits_by_threads(kernel());
    EXPECT_EQ(arithmetic.kv_splits, splits ? 30 : 1);
    EXPECT_EQ(arithmetic.rescales_output, &kernel() == &fa1_split_kv());
    EXPECT_EQ(arithmetic.thread_invariant, !splits);
    EXPECT_EQ(arithmetic.batch_invariant, !splits);
    EXPECT_EQ(arithmetic.form_invariant, !splits);
    EXPECT_LT(arithmetic.exp_error, loosest(dtype).exp_error);
    EXPECT_LT(arithmetic.tanh_error, loosest(dtype).tanh_error);
  }
}

TEST_P(KernelsTest, WhatIsIllFormedIsRefusedWithAReason) {
  const auto reason_of = [&](const Problem& p, const char* expected, auto change) {
    HostProblem problem(p);
    ASSERT_EQ(kernel().supports(&kernel(), problem.get(), nullptr, 0), 1) << expected;
    change(problem);
    char text[128] = "";
    EXPECT_EQ(kernel().supports(&kernel(), problem.get(), text, sizeof text), 0) << expected;
    EXPECT_THAT(text, HasSubstr(expected));
  };
  const auto reason = [&](const char* expected, auto change) {
    reason_of(Problem{}, expected, change);
  };
  reason("dtype", [](HostProblem& p) { p->dtype = ATTEST_FP8_E4M3; });
  reason("negative", [](HostProblem& p) { p->key_len = -1; });
  reason("divide", [](HostProblem& p) { p->query_heads = 3, p->key_heads = 2; });
  reason("scale", [](HostProblem& p) { p->scale = kInfinity; });
  reason("softcap", [](HostProblem& p) { p->softcap = -1; });
  reason("softcap", [](HostProblem& p) { p->softcap = kNaN; });
  reason("dropout", [](HostProblem& p) { p->dropout = 3; });
  reason("probability", [](HostProblem& p) { p->dropout = 1, p->dropout_probability = 1; });
  reason("dLSE", [](HostProblem& p) { p->has_dlse = 1; });
  reason("missing", [](HostProblem& p) { p->mask = nullptr; });
  reason("not known", [](HostProblem& p) { p.nodes()[0].kind = 99; });
  reason("children", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_ALL_OF; });
  reason("attest_problem is 64 bytes long", [](HostProblem& p) { p->struct_size = 64; });
  reason("attest_mask", [](HostProblem& p) { p.nodes()[0].struct_size = 8; });

  const auto mask_reason = [&](const Mask& mask, const char* expected, auto change) {
    reason_of({.batch = 2, .query_len = 4, .key_len = 5, .mask = mask}, expected,
              [&](HostProblem& p) { change(p.nodes()[0]); });
  };
  using Node = attest_mask;
  const Mask band = Mask::causal(Anchor::top_left);
  mask_reason(band, "width", [](Node& n) { n.left = -1; });
  mask_reason(band, "2^40", [](Node& n) { n.offset = Index(1) << 41; });
  const Mask dense = Mask::dense({{1, 1, 4, 5}, std::vector<std::uint8_t>(20)});
  mask_reason(dense, "the mask's table has the shape", [](Node& n) { n.table.shape[3] = 4; });
  mask_reason(dense, "the mask's table has dtype", [](Node& n) { n.table.dtype = ATTEST_I32; });
  mask_reason(dense, "capacity", [](Node& n) { n.table.capacity_bytes = 19; });
  const Mask prefix = Mask::prefix({1, 2});
  mask_reason(prefix, "the prefix has the shape", [](Node& n) { n.table.shape[0] = 3; });
  const Mask documents = Mask::documents({{1, 4, {0, 0, 1, 1}}, {2, 5, std::vector<int>(10)}});
  mask_reason(documents, "query segments", [](Node& n) { n.table.shape[2] = 5; });
  mask_reason(documents, "key segments is missing", [](Node& n) { n.table2.data = nullptr; });
  const Mask blocks = Mask::block_sparse(2, 3, {{1, 1, 2, 2}, {1, 1, 0, 1}});
  mask_reason(blocks, "no size", [](Node& n) { n.block_query = 0; });
  mask_reason(blocks, "the blocks' table", [](Node& n) { n.block_key = 1; });
  mask_reason(Mask::dilated(2, Anchor::top_left), "less than 1", [](Node& n) { n.dilation = 0; });

  const Problem lengths{.batch = 2, .key_len = 5, .key_lens = {5, 2}};
  const auto integers = [](attest_tensor& tensor) { return static_cast<Index*>(tensor.data); };
  reason_of(lengths, "not within 0..5", [&](HostProblem& p) { integers(p->key_lens)[1] = 6; });
  reason_of(lengths, "key_lens has the shape", [](HostProblem& p) { p->key_lens.shape[0] = 1; });

  const Problem packed{.batch = 2,
                       .query_len = 3,
                       .key_len = 4,
                       .key_lens = {4, 2},
                       .query_lens = {1, 3},
                       .packed = true};
  reason_of(packed, "packed", [](HostProblem& p) { p->cu_key_lens = {}; });
  reason_of(packed, "packed", [](HostProblem& p) { p->cu_query_lens = {}; });
  reason_of(packed, "besides", [](HostProblem& p) { p->query_lens = p->cu_query_lens; });
  reason_of(packed, "ascend", [&](HostProblem& p) { integers(p->cu_key_lens)[1] = 7; });
  reason_of(packed, "ascend", [&](HostProblem& p) { integers(p->cu_key_lens)[0] = 1; });
  reason_of(packed, "not within 0..2", [](HostProblem& p) { p->query_len = 2; });

  Problem paged{.batch = 2, .key_len = 4, .key_lens = {4, 1}};
  paged.paging = {.page_size = 2, .pages = 3, .table = {{2, 0}, {1}}};
  reason_of(paged, "backward", [](HostProblem& p) { p->backward = 1; });
  reason_of(paged, "need key lengths", [](HostProblem& p) { p->key_lens = {}; });
  reason_of(paged, "needs a page size", [](HostProblem& p) { p->page_size = 0; });
  reason_of(paged, "no page for entry 1",
            [](HostProblem& p) { static_cast<std::int32_t*>(p->page_table.data)[1] = -1; });
}

TEST_P(KernelsTest, ALongReasonIsCutAndTerminated) {
  HostProblem problem(Problem{});
  problem->softcap = -1;
  char text[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  EXPECT_EQ(kernel().supports(&kernel(), problem.get(), text, 5), 0);
  EXPECT_STREQ(text, "the ");
  EXPECT_EQ(text[5], 'x');
  EXPECT_EQ(kernel().supports(&kernel(), problem.get(), nullptr, 0), 0);
}

TEST_P(KernelsTest, StructsOfANewerHostAreUnderstood) {
  struct NewerMask {
    attest_mask known;
    std::int64_t unknown;
  };
  const Problem p{.query_len = 3, .key_len = 3, .head_dim = 2, .value_dim = 2};
  NewerMask nodes[3] = {};
  for (NewerMask& node : nodes) {
    node.known.struct_size = sizeof(NewerMask);
    node.known.kind = ATTEST_MASK_FULL;
  }
  nodes[2].known.kind = ATTEST_MASK_ALL_OF;
  nodes[2].known.second = 1;
  struct {
    attest_problem known;
    std::int64_t unknown;
  } newer = {*HostProblem(p).get(), -1};
  newer.known.struct_size = sizeof newer;
  newer.known.mask = &nodes[0].known;
  newer.known.mask_count = 3;
  EXPECT_EQ(kernel().supports(&kernel(), &newer.known, nullptr, 0), 1);
  nodes[1].known.kind = 99;  // only found if the nodes are walked at their own size
  EXPECT_EQ(kernel().supports(&kernel(), &newer.known, nullptr, 0), 0);
}

// Calls forward with tensors that `change` may spoil; returns what the kernel says.
template <class Change>
std::string failure_of(const attest_kernel& kernel, Change change) {
  const Problem p{.query_len = 4, .key_len = 4, .head_dim = 4, .value_dim = 4};
  const HostProblem problem(p);
  HostTensor q(p.dtype, p.q_shape()), k(p.dtype, p.k_shape()), v(p.dtype, p.v_shape()),
      o(p.dtype, p.o_shape()), lse(p.dtype, p.lse_shape());
  attest_inputs inputs = {};
  inputs.struct_size = sizeof inputs;
  inputs.q = q.tensor();
  inputs.k = k.tensor();
  inputs.v = v.tensor();
  attest_outputs outputs = {};
  outputs.struct_size = sizeof outputs;
  outputs.o = o.tensor();
  outputs.lse = lse.tensor();
  char message[200] = "";
  std::vector<double> workspace(kernel.workspace(&kernel, problem.get(), 0, 1) / 8 + 1);
  attest_context context = {};
  context.struct_size = sizeof context;
  context.threads = 1;
  context.workspace = workspace.data();
  context.workspace_bytes = 8 * workspace.size();
  context.message = message;
  context.message_bytes = sizeof message;
  change(inputs, outputs, context);
  const auto status = kernel.forward(&kernel, problem.get(), &inputs, &outputs, &context);
  return status == ATTEST_OK ? "ok" : message;
}

TEST_P(KernelsTest, AMalformedCallIsAnErrorThatNamesTheTensor) {
  const auto failure = [&](auto change) { return failure_of(kernel(), change); };
  using In = attest_inputs;
  using Out = attest_outputs;
  using Context = attest_context;
  EXPECT_EQ(failure([](In&, Out&, Context&) {}), "ok");
  EXPECT_THAT(failure([](In& in, Out&, Context&) { in.k.data = nullptr; }), HasSubstr("k is miss"));
  EXPECT_THAT(failure([](In& in, Out&, Context&) { in.q.shape[2] = 5; }),
              HasSubstr("q has the sh"));
  EXPECT_THAT(failure([](In& in, Out&, Context&) { in.v.dtype = 3; }), HasSubstr("v has dtype 3"));
  EXPECT_THAT(failure([](In& in, Out&, Context&) { in.v.stride[2] = -4; }), HasSubstr("negative"));
  EXPECT_THAT(failure([](In&, Out& out, Context&) { out.o.capacity_bytes = 63; }),
              HasSubstr("o reaches beyond its capacity"));
  EXPECT_THAT(failure([](In&, Out& out, Context&) { out.lse.data = nullptr; }), HasSubstr("lse"));
  EXPECT_THAT(failure([](In& in, Out&, Context&) { in.struct_size = 100; }),
              HasSubstr("attest_inputs is 100 bytes"));
  EXPECT_THAT(failure([](In&, Out& out, Context&) { out.struct_size = 8; }),
              HasSubstr("attest_outputs"));
  EXPECT_THAT(failure([](In&, Out&, Context& c) { c.workspace_bytes = 63; }),
              HasSubstr("workspace has 63 bytes"));
  EXPECT_EQ(failure([](In&, Out&, Context& c) { c.struct_size = 8; }), "");  // nobody to tell
}

TEST_P(KernelsTest, GradientsThatAreNotWantedAreLeftOut) {
  HostProblem problem(Problem{});
  HostTensor one(DType::f32, {1, 1, 1, 1}), dv(DType::f32, {1, 1, 1, 1});
  one.set({{1, 1, 1, 1}, {1}});
  attest_inputs inputs = {};
  inputs.struct_size = sizeof inputs;
  inputs.q = inputs.k = inputs.v = inputs.o = inputs.lse = inputs.d_o = one.tensor();
  attest_outputs outputs = {};
  outputs.struct_size = sizeof outputs;
  outputs.dv = dv.tensor();
  std::vector<double> workspace(kernel().workspace(&kernel(), problem.get(), 1, 1) / 8 + 1);
  attest_context context = {};
  context.struct_size = sizeof context;
  context.threads = 1;
  context.workspace = workspace.data();
  context.workspace_bytes = 8 * workspace.size();
  ASSERT_EQ(kernel().backward(&kernel(), problem.get(), &inputs, &outputs, &context), ATTEST_OK);
  EXPECT_EQ(dv.get()[0], 1);
}

TEST_P(KernelsTest, AWorkspaceBeyondAllMemoryIsSaidToBeSo) {
  Problem p;
  p.query_len = p.key_len = p.head_dim = Index(1) << 61;
  EXPECT_EQ(kernel().workspace(&kernel(), HostProblem(p).get(), 1, 1), UINT64_MAX);
}

// Each visible element lies in one block that the kernel reports of each pass, and no block is
// wholly hidden, or masked without need.
void check_visits(const attest_kernel& kernel, const Problem& p, int threads) {
  std::vector<attest_block> blocks;
  run(kernel, p, sixteenths(p, 1), {.threads = threads, .blocks = &blocks});
  // How often each element was computed, and whether that was needed.
  const Shape shape{p.batch, p.query_heads, p.query_len, p.key_len};
  for (const int backward : {0, 1}) {
    std::vector<int> visits(static_cast<std::size_t>(element_count(shape)));
    for (const attest_block& block : blocks) {
      if (block.backward != backward) continue;
      Index seen = 0;
      for (Index i = block.query_begin; i < block.query_end; ++i) {
        for (Index j = block.key_begin; j < block.key_end; ++j) {
          ++visits[static_cast<std::size_t>(dense_index(shape, block.batch, block.head, i, j))];
          seen += visible(p, {block.batch, block.head, i, j});
        }
      }
      const Index size = (block.query_end - block.query_begin) * (block.key_end - block.key_begin);
      RC_ASSERT(seen > 0);                       // none that is wholly masked
      RC_ASSERT(block.masked == (seen < size));  // the mask on partial blocks only
    }
    if (backward && !p.backward) continue;
    for (std::size_t n = 0; n < visits.size(); ++n) {
      const auto at = coordinates(shape, static_cast<Index>(n));
      const bool needed = visible(p, {at[0], at[1], at[2], at[3]});
      RC_ASSERT(visits[n] == 1 || (visits[n] == 0 && !needed));
    }
  }
}

TEST_P(KernelsTest, EachNeededBlockIsVisitedOnceAndNoOther) {
  if (&kernel() == &naive() || &kernel() == &textbook()) return;  // their only block is all of it
  EXPECT_TRUE(rc::check([this] { check_visits(kernel(), any_problem(), 1); }));
}

TEST_P(KernelsTest, TheWorkspaceAskedForIsNoMoreThanTheOneDeclared) {
  const Description description = description_of(kernel());
  if (!description.memory) return;
  EXPECT_TRUE(rc::check([&] {
    const Index key_heads = within<Index>(1, 5);
    Problem p{.dtype = *rc::gen::element(DType::f64, DType::f32, DType::bf16),
              .batch = within<Index>(1, 5),
              .query_heads = key_heads * within<Index>(1, 5),
              .key_heads = key_heads,
              .query_len = *rc::gen::element<Index>(1, 50, 3000),
              .key_len = *rc::gen::element<Index>(1, 50, 3000),
              .head_dim = *rc::gen::element<Index>(1, 64, 65, 200),
              .value_dim = *rc::gen::element<Index>(1, 64, 65, 200),
              .softcap = *rc::gen::element(0.0, 30.0),
              .backward = *rc::gen::arbitrary<bool>()};
    if (once_in(2)) p.bias_shape = Shape{1, 1, p.query_len, p.key_len};
    if (!p.backward && once_in(3)) {
      p.key_lens = std::vector<Index>(static_cast<std::size_t>(p.batch), 0);
      p.paging = {.page_size = 16, .pages = 1, .table = {}};
      p.paging.table.resize(static_cast<std::size_t>(p.batch));
    }
    for (const int threads : {1, 2, 3, 64}) {
      const auto bytes = kernel().workspace(&kernel(), HostProblem(p).get(), p.backward, threads);
      RC_ASSERT(static_cast<double>(bytes) <= description.memory->workspace.bytes(p, threads));
    }
  }));
}

// ---- Split keys --------------------------------------------------------------------------------

TEST(Fa1SplitKvTest, KeysAreSplitWhereHeadsAreTooFewForTheThreads) {
  const auto splits = [](Index heads, Index keys, int threads) {
    const Problem p{.query_heads = heads, .key_heads = heads, .key_len = keys};
    std::vector<attest_block> blocks;
    run(fa1_split_kv(), p, sixteenths(p, 1), {.threads = threads, .blocks = &blocks});
    return static_cast<Index>(blocks.size()) / heads;
  };
  EXPECT_EQ(splits(1, 250, 1), 1);
  EXPECT_EQ(splits(1, 250, 3), 3);
  EXPECT_EQ(splits(1, 250, 64), 4);  // of 64 keys, but for the last
  EXPECT_EQ(splits(2, 250, 3), 3);
  EXPECT_EQ(splits(3, 250, 3), 1);
  EXPECT_EQ(splits(1, 64 * 40, 64), 29);  // 30, the most, would keep busy hardly more
}

// On any instruction set. Lengths within a batch leave parts without keys, masks leave parts that
// nobody sees, and rows that see nothing; a sink is counted once.
TEST(Fa1SplitKvTest, PartsOfRandomProblemsAreMergedWithinTolerance) {
  EXPECT_TRUE(rc::check([] {
    const Problem p = any_problem();
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    const HostOptions options{.threads = *rc::gen::element(2, 3, 7, 40)};
    const attest_plugin& plugin = load_plugin(ATTEST_FA1_SPLIT_KV);
    const attest_kernel& kernel = *plugin.kernels[within<std::uint32_t>(0, plugin.kernel_count)];
    const std::string found = difference(kernel, p, in, options);
    if (!found.empty()) RC_FAIL(kernel.name + (": " + found));
  }));
}

TEST(Fa1SplitKvTest, PartsWithoutKeysAddNothing) {
  for (const bool sink : {false, true}) {
    const Problem p{.batch = 5,
                    .query_heads = 2,
                    .query_len = 3,
                    .key_len = 300,
                    .head_dim = 4,
                    .value_dim = 4,
                    .key_lens = {0, 1, 64, 65, 300},
                    .sink = sink};
    const Inputs in = sixteenths(p, 1);
    const HostOptions options{.threads = 64};
    EXPECT_EQ(difference(fa1_split_kv(), p, in, options), "");
    const Outputs out = run(fa1_split_kv(), p, in, options);
    for (std::size_t row = 0; row < 6; ++row) {  // of the batch element without keys
      EXPECT_EQ(out.lse[row], sink ? in.sink.data[row / 3] : -kInfinity);
      for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(out.o[4 * row + c], 0);
    }
  }
}

// A window at the end of 700 keys: of the eleven parts, the first nine or ten are seen by nobody.
TEST(Fa1SplitKvTest, PartsThatAreWhollyMaskedAddNothingWhateverTheyHold) {
  for (const bool sink : {false, true}) {
    const Problem p{.query_len = 4,
                    .key_len = 700,
                    .head_dim = 4,
                    .value_dim = 4,
                    .mask = Mask::window(10, 0, Anchor::bottom_right),
                    .sink = sink};
    Inputs in = sixteenths(p, 1);
    const HostOptions options{.threads = 64};
    EXPECT_EQ(difference(fa1_split_kv(), p, in, options), "");
    const Outputs clean = run(fa1_split_kv(), p, in, options);
    fill_hidden(p, kNaN, kNaN, in);
    EXPECT_TRUE(run(fa1_split_kv(), p, in, options) == clean);
  }
}

TEST(Fa1SplitKvTest, NoPartComputesWhatAnotherDoes) {
  EXPECT_TRUE(
      rc::check([] { check_visits(fa1_split_kv(), any_problem(), *rc::gen::element(2, 5, 40)); }));
}

// Enough to do for several threads, each of which leaves parts in the memory that all share.
TEST(Fa1SplitKvTest, PartsOfSeveralWorkersAreMergedAndRepeatTheirBits) {
  Problem p = rich_problem(DType::f32);
  p.batch = 1;
  p.bias_shape = {};
  const Inputs in = sixteenths(p, 1);
  for (const int threads : {2, 64}) {
    EXPECT_EQ(difference(fa1_split_kv(), p, in, {.threads = threads}), "");
    EXPECT_TRUE(run(fa1_split_kv(), p, in, {.threads = threads}) ==
                run(fa1_split_kv(), p, in, {.threads = threads}));
  }
}

// ---- Many workers ------------------------------------------------------------------------------

// Several blocks of queries and of keys, which several workers share.
TEST(CausalBalancedTest, ManyWorkersStayWithinToleranceAndRepeatTheirBits) {
  Problem p = rich_problem(DType::f32);
  p.batch = 1;
  p.query_len = 200;
  p.key_len = 520;
  p.bias_shape = Shape{1, 1, 200, 520};
  for (const Mask& mask :
       {Mask(), Mask::causal(Anchor::bottom_right), Mask::causal(Anchor::top_left)}) {
    p.mask = mask;
    const Inputs in = sixteenths(p, 1);
    for (const int threads : {2, 64}) {
      EXPECT_EQ(difference(causal_balanced(), p, in, {.threads = threads}), "");
      EXPECT_TRUE(run(causal_balanced(), p, in, {.threads = threads}) ==
                  run(causal_balanced(), p, in, {.threads = threads}));
    }
  }
}

TEST(Fa2Test, WorkspaceGrowsWithTheKeysInTheForwardPassAndWithTheQueriesInTheBackwardPass) {
  const auto bytes = [](Index queries, Index keys, bool backward) {
    const Problem p{.query_len = queries, .key_len = keys, .head_dim = 64, .value_dim = 64};
    return fa2().workspace(&fa2(), HostProblem(p).get(), backward, 1);
  };
  EXPECT_EQ(bytes(1024, 2048, false) - bytes(1024, 1024, false), 1024 * (64 + 64) * 4);
  EXPECT_EQ(bytes(1024, 1024, false), bytes(65536, 1024, false));
  EXPECT_EQ(bytes(1024, 1024, true), bytes(1024, 65536, true));
  EXPECT_EQ(bytes(2048, 1024, true) - bytes(1024, 1024, true), 1024 * (64 + 2) * 4);
}

TEST(Fa2Test, EachInstructionSetHasItsKernelWhichIsWithinTolerance) {
  const attest_plugin& plugin = load_plugin(ATTEST_FA2);
  ASSERT_GE(plugin.kernel_count, 2u);
  EXPECT_STREQ(plugin.kernels[0]->name, "fa2");
  std::vector<std::string> names;
  std::vector<Description> descriptions;
  for (std::uint32_t n = 1; n < plugin.kernel_count; ++n) {
    names.push_back(plugin.kernels[n]->name);
    descriptions.push_back(description_of(*plugin.kernels[n]));
  }
  EXPECT_THAT(names, Each(StartsWith("fa2/")));
  const auto lowest = AnyOf("fa2/scalar", "fa2/baseline", "fa2/neon");  // by processor and compiler
  EXPECT_THAT(names, Contains(lowest));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_TRUE(rc::check([&] {
    const Problem p = any_problem();
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    for (std::uint32_t n = 1; n < plugin.kernel_count; ++n) {
      const attest_kernel& kernel = *plugin.kernels[n];
      if (exclusion(p, descriptions[n - 1])) continue;  // the matrix tiles take bf16 alone
      const std::string found = difference(kernel, p, in);
      if (!found.empty()) RC_FAIL(kernel.name + (": " + found));
    }
  }));
}

// The same blocks, computed alike: only where the mask comes from differs.
TEST(LazyMaskTest, TheMaskInFullGivesTheSameBitsAndBlocksAsTheMaskByBlocks) {
  EXPECT_TRUE(rc::check([] {
    const Problem p = any_problem();
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    std::vector<attest_block> lazy, dense;
    RC_ASSERT(run(lazy_mask(), p, in, {.blocks = &lazy}) ==
              run(dense_mask(), p, in, {.blocks = &dense}));
    RC_ASSERT(std::equal(lazy.begin(), lazy.end(), dense.begin(), dense.end(),
                         [](const attest_block& a, const attest_block& b) {
                           return std::memcmp(&a, &b, sizeof a) == 0;
                         }));
  }));
}

TEST(LazyMaskTest, ManyWorkersMakeAMaskOfManyBlocksInFull) {
  const Mask band =
      Mask::all_of({Mask::causal(Anchor::bottom_right), Mask::window(90, 90, Anchor::top_left)});
  const Problem p{.batch = 2,
                  .query_heads = 2,
                  .key_heads = 1,
                  .query_len = 200,
                  .key_len = 600,
                  .head_dim = 8,
                  .value_dim = 8,
                  .scale = 0.5,
                  .mask = Mask::any_of({band, Mask::prefix({70, 600})}),
                  .key_lens = {600, 290},
                  .backward = true};
  const Inputs in = sixteenths(p, 1);
  const Outputs lazy = run(lazy_mask(), p, in);
  for (const int threads : {1, 2, 5}) {
    EXPECT_TRUE(lazy == run(dense_mask(), p, in, {.threads = threads})) << threads;
  }
}

TEST(LazyMaskTest, AMaskTakesNoMemoryThatGrowsWithQueriesTimesKeysUnlessItIsMadeInFull) {
  for (const bool backward : {false, true}) {
    const auto bytes = [&](const attest_kernel& kernel, Index length, const Mask& mask) {
      const Problem p{.query_len = length, .key_len = length, .mask = mask};
      return kernel.workspace(&kernel, HostProblem(p).get(), backward, 1);
    };
    const Mask nested = Mask::any_of(
        {Mask::all_of({Mask::causal(Anchor::top_left), Mask::dilated(3, Anchor::top_left)}),
         Mask::window(5, 5, Anchor::top_left)});
    EXPECT_EQ(bytes(lazy_mask(), 8192, nested), bytes(lazy_mask(), 8192, Mask::full()));
    EXPECT_EQ(bytes(lazy_mask(), 8192, nested) - bytes(lazy_mask(), 4096, nested),
              2 * (bytes(lazy_mask(), 4096, nested) - bytes(lazy_mask(), 2048, nested)));
    for (const Index length : {Index(8192), Index(32768)}) {
      const auto elements = static_cast<std::uint64_t>(length * length);
      const auto mask = bytes(dense_mask(), length, nested) - bytes(lazy_mask(), length, nested);
      EXPECT_GE(mask, elements);
      EXPECT_LT(mask, elements + elements / 1000);
    }
  }
}

// Scores that rise from block to block, so that each has to rescale what came before.
TEST(Fa2Test, AscendingScoresRescaleEveryBlock) {
  const Problem p{.query_len = 3, .key_len = 300, .head_dim = 1, .value_dim = 2};
  Inputs in{zeros(p.q_shape()), zeros(p.k_shape()), zeros(p.v_shape())};
  in.q.data = {1, 0.5, -1};
  for (std::size_t j = 0; j < 300; ++j) {
    in.k.data[j] = static_cast<double>(j) / 8;
    in.v.data[2 * j] = static_cast<double>(j % 7);
    in.v.data[2 * j + 1] = 1;
  }
  EXPECT_EQ(difference(fa2(), p, in), "");
}

}  // namespace
}  // namespace attest
