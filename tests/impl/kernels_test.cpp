// The bundled kernels, as a host meets them: both of them, through their shared libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "spec/profile.h"
#include "tests/impl/expected.h"
#include "tests/impl/host.h"

namespace attest {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const attest_kernel& naive() {
  static const attest_kernel& kernel = load_kernel(ATTEST_NAIVE);
  return kernel;
}

const attest_kernel& fa2() {
  static const attest_kernel& kernel = load_kernel(ATTEST_FA2);
  return kernel;
}

// Sixteenths between -2 and 2, which every format holds.
Inputs sixteenths(const Problem& p, unsigned seed) {
  std::mt19937 bits(seed);
  const auto values = [&](const Shape& shape, const Layout& layout) {
    Values result = zeros(shape);
    for (std::size_t i = 0; i < result.data.size(); ++i) {
      // An element of an expanded axis is the one at its start.
      auto at = coordinates(shape, static_cast<Index>(i));
      for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
        if (layout.expands(axis)) at[axis] = 0;
      }
      const auto first = static_cast<std::size_t>(dense_index(shape, at[0], at[1], at[2], at[3]));
      result.data[i] = first < i ? result.data[first] : (static_cast<int>(bits() % 65) - 32) / 16.0;
    }
    return result;
  };
  return {values(p.q_shape(), p.layouts.q), values(p.k_shape(), p.layouts.k),
          values(p.v_shape(), p.layouts.v), values(p.o_shape(), p.layouts.d_o)};
}

// Empty if all is within tolerance.
std::string difference(const char* name, const std::vector<double>& actual,
                       const Expected& expected) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected.value[i]) continue;  // infinities too
    // A result of NaN fails, because the comparison is false.
    if (std::abs(actual[i] - expected.value[i]) <= expected.tolerance[i]) continue;
    return std::string(name) + "[" + std::to_string(i) + "] = " + std::to_string(actual[i]) +
           ", expected " + std::to_string(expected.value[i]) + " +- " +
           std::to_string(expected.tolerance[i]);
  }
  return "";
}

std::string difference(const Problem& p, const Outputs& actual, ExpectedOutputs expected) {
  // The last rounding is proportional to the result.
  for (Expected* e : {&expected.o, &expected.dq, &expected.dk, &expected.dv}) {
    for (std::size_t i = 0; i < e->value.size(); ++i) {
      e->tolerance[i] += unit_roundoff(p.dtype) * std::abs(e->value[i]);
    }
  }
  for (const auto& [name, values, correct] :
       {std::tuple{"o", &actual.o, &expected.o}, std::tuple{"lse", &actual.lse, &expected.lse},
        std::tuple{"dq", &actual.dq, &expected.dq}, std::tuple{"dk", &actual.dk, &expected.dk},
        std::tuple{"dv", &actual.dv, &expected.dv}}) {
    const std::string found = difference(name, *values, *correct);
    if (!found.empty()) return found + " in " + to_string(p);
  }
  return "";
}

bool same_bits(const Outputs& a, const Outputs& b) {
  return a.o == b.o && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv;
}

Mask any_mask(const Problem& p, int depth = 2) {
  const auto anchor = *rc::gen::element(Anchor::top_left, Anchor::bottom_right);
  const auto offset = *rc::gen::inRange<Index>(-4, 5);
  switch (*rc::gen::inRange(0, depth > 0 ? 6 : 4)) {
    case 0:
      return Mask::full();
    case 1:
      return Mask::causal(anchor, offset);
    case 2:
      return Mask::window(*rc::gen::inRange<Index>(0, 70), *rc::gen::inRange<Index>(0, 70), anchor,
                          offset);
    case 3: {
      Shape shape{p.batch, p.query_heads, p.query_len, p.key_len};
      for (Index& size : shape) size = *rc::gen::arbitrary<bool>() ? size : 1;
      DenseMask table{shape, {}};
      std::mt19937 bits(*rc::gen::arbitrary<unsigned>());
      for (Index i = 0; i < element_count(shape); ++i) table.allowed.push_back(bits() % 3 != 0);
      return Mask::dense(table);
    }
    case 4:
      return Mask::all_of({any_mask(p, depth - 1), any_mask(p, depth - 1)});
    default:
      return Mask::any_of({any_mask(p, depth - 1), any_mask(p, depth - 1)});
  }
}

Layout any_layout(bool may_expand) {
  std::string text = *rc::gen::element<std::string>("bhsd", "bshd", "bhds", "sbhd", "dshb");
  if (*rc::gen::arbitrary<bool>()) text += " gap=3";
  if (*rc::gen::arbitrary<bool>()) text += " wild";
  if (may_expand && *rc::gen::inRange(0, 3) == 0) {
    text += *rc::gen::element<std::string>(" expand=h", " expand=b", " expand=s", " expand=d");
  }
  return Layout::parse(text);
}

Problem any_problem() {
  Problem p;
  p.dtype = *rc::gen::element(DType::f64, DType::f32, DType::f16, DType::bf16);
  p.batch = *rc::gen::inRange<Index>(0, 4);
  p.key_heads = *rc::gen::inRange<Index>(1, 4);
  p.query_heads = p.key_heads * *rc::gen::inRange<Index>(0, 4);
  // Often around the block of 64, where tails begin and end.
  const auto length = [] {
    return *rc::gen::oneOf(rc::gen::inRange<Index>(0, 12), rc::gen::inRange<Index>(62, 67),
                           rc::gen::inRange<Index>(127, 131));
  };
  p.query_len = length();
  p.key_len = length();
  p.head_dim = *rc::gen::inRange<Index>(0, 20);
  p.value_dim = *rc::gen::inRange<Index>(0, 20);
  p.scale = *rc::gen::element(0.25, -0.3, 0.0, 1.0);
  p.backward = *rc::gen::arbitrary<bool>();
  const auto lens = [&](Index whole) {
    std::vector<Index> result;
    for (Index b = 0; b < p.batch; ++b) result.push_back(*rc::gen::inRange<Index>(0, whole + 1));
    return result;
  };
  if (*rc::gen::arbitrary<bool>()) p.key_lens = lens(p.key_len);
  if (*rc::gen::arbitrary<bool>()) p.query_lens = lens(p.query_len);
  p.mask = any_mask(p);
  Layouts& l = p.layouts;
  for (Layout* layout : {&l.q, &l.k, &l.v, &l.d_o}) *layout = any_layout(true);
  for (Layout* layout : {&l.o, &l.dq, &l.dk, &l.dv}) *layout = any_layout(false);
  return p;
}

// Overwrites what no query may see of K and V, and what a length hides of Q and dO: everything
// beyond a length, and if `masked` also the keys that the mask hides from all queries.
void fill_hidden(const Problem& p, double beyond, double masked, Inputs& in) {
  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    const auto fill = [&](Values& values, Index h, Index s, double with) {
      for (Index d = 0; d < values.shape[kChannel]; ++d) {
        values.data[static_cast<std::size_t>(dense_index(values.shape, b, h, s, d))] = with;
      }
    };
    for (Index g = 0; g < p.key_heads; ++g) {
      for (Index j = 0; j < p.key_len; ++j) {
        bool seen = false;
        for (Index n = 0; n < p.group_size(); ++n) {
          for (Index i = 0; i < lengths.query; ++i) {
            seen |= visible(p, {.batch = b, .head = g * p.group_size() + n, .query = i, .key = j});
          }
        }
        if (seen) continue;
        for (Values* values : {&in.k, &in.v}) {
          fill(*values, g, j, j < lengths.key ? masked : beyond);
        }
      }
    }
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = lengths.query; i < p.query_len; ++i) {
        fill(in.q, h, i, beyond);
        fill(in.d_o, h, i, beyond);
      }
    }
  }
}

class KernelsTest : public ::testing::TestWithParam<const attest_kernel* (*)()> {
 protected:
  const attest_kernel& kernel() const { return *GetParam()(); }
};

INSTANTIATE_TEST_SUITE_P(Bundled, KernelsTest,
                         ::testing::Values([]() { return &naive(); }, []() { return &fa2(); }),
                         [](const auto& which) { return which.index == 0 ? "naive" : "fa2"; });

TEST_P(KernelsTest, RandomProblemsAreComputedWithinTolerance) {
  EXPECT_TRUE(rc::check([this] {
    const Problem p = any_problem();
    const Inputs in = sixteenths(p, *rc::gen::arbitrary<unsigned>());
    const std::string found = difference(p, run(kernel(), p, in), expect(p, in));
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
    RC_ASSERT(same_bits(run(kernel(), p, in), run(kernel(), p, changed)));
  }));
}

TEST_P(KernelsTest, AnyNumberOfThreadsGivesTheSameBits) {
  const Problem p{.dtype = DType::bf16,
                  .batch = 2,
                  .query_heads = 4,
                  .key_heads = 2,
                  .query_len = 150,
                  .key_len = 200,
                  .head_dim = 32,
                  .value_dim = 32,
                  .scale = 0.2,
                  .mask = Mask::causal(Anchor::bottom_right),
                  .backward = true};
  const Inputs in = sixteenths(p, 1);
  const Outputs alone = run(kernel(), p, in);
  for (const int threads : {2, 3, 64}) {
    EXPECT_TRUE(same_bits(alone, run(kernel(), p, in, {.threads = threads}))) << threads;
  }
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
  const std::string found = difference(p, run(kernel(), p, in), expect(p, in));
  EXPECT_EQ(found, "");
}

TEST_P(KernelsTest, TheDescriptionIsUnderstoodAndDeclaresAllFeatures) {
  const Description description =
      parse_description(nlohmann::json::parse(kernel().describe(&kernel())));
  EXPECT_EQ(description.name, kernel().name);
  EXPECT_EQ(description.features, known_features());
  EXPECT_EQ(description.dtypes.size(), kDTypes.size());
  EXPECT_EQ(description.profiles.size(), profiles().size());
  for (const auto& [dtype, arithmetic] : description.arithmetic) {
    EXPECT_TRUE(arithmetic.deterministic);
    EXPECT_EQ(arithmetic.kv_splits, 1);
    EXPECT_LT(arithmetic.exp_error, loosest(dtype).exp_error);
  }
}

TEST_P(KernelsTest, WhatComesLaterIsRefusedWithAReason) {
  const auto reason = [&](const char* expected, auto change) {
    HostProblem problem(Problem{});
    change(problem);
    char text[128] = "";
    EXPECT_EQ(kernel().supports(&kernel(), problem.get(), text, sizeof text), 0) << expected;
    EXPECT_THAT(text, HasSubstr(expected));
  };
  reason("dtype", [](HostProblem& p) { p->dtype = ATTEST_FP8_E4M3; });
  reason("softcap", [](HostProblem& p) { p->softcap = 30; });
  reason("bias", [](HostProblem& p) { p->has_bias = 1; });
  reason("ALiBi", [](HostProblem& p) { p->has_alibi = 1; });
  reason("sinks", [](HostProblem& p) { p->has_sink = 1; });
  reason("LSE", [](HostProblem& p) { p->has_dlse = 1; });
  reason("dropout", [](HostProblem& p) { p->dropout = ATTEST_DROPOUT_GIVEN; });
  reason("packed", [](HostProblem& p) { p->cu_query_lens.dtype = ATTEST_I64; });
  reason("paged", [](HostProblem& p) { p->page_size = 16; });
  reason("negative", [](HostProblem& p) { p->key_len = -1; });
  reason("divide", [](HostProblem& p) { p->query_heads = 3, p->key_heads = 2; });
  reason("missing", [](HostProblem& p) { p->mask = nullptr; });
  reason("prefix", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_PREFIX; });
  reason("segment", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_SEGMENTS; });
  reason("block-sparse", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_BLOCK_SPARSE; });
  reason("dilated", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_DILATED; });
  reason("not known", [](HostProblem& p) { p.nodes()[0].kind = 99; });
  reason("children", [](HostProblem& p) { p.nodes()[0].kind = ATTEST_MASK_ALL_OF; });
  reason("attest_problem is 64 bytes long", [](HostProblem& p) { p->struct_size = 64; });
  reason("attest_mask", [](HostProblem& p) { p.nodes()[0].struct_size = 8; });
}

TEST_P(KernelsTest, ALongReasonIsCutAndTerminated) {
  HostProblem problem(Problem{});
  problem->softcap = 30;
  char text[8] = {'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
  EXPECT_EQ(kernel().supports(&kernel(), problem.get(), text, 5), 0);
  EXPECT_STREQ(text, "soft");
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

TEST(Fa2Test, EachNeededBlockIsVisitedOnceAndNoOther) {
  EXPECT_TRUE(rc::check([] {
    const Problem p = any_problem();
    std::vector<attest_block> blocks;
    run(fa2(), p, sixteenths(p, 1), {.blocks = &blocks});
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
        const Index size =
            (block.query_end - block.query_begin) * (block.key_end - block.key_begin);
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
  }));
}

TEST(Fa2Test, WorkspaceDoesNotGrowWithTheKeysAndOnlyInTheBackwardPassWithTheQueries) {
  const auto bytes = [](Index queries, Index keys, bool backward) {
    const Problem p{.query_len = queries, .key_len = keys, .head_dim = 64, .value_dim = 64};
    return fa2().workspace(&fa2(), HostProblem(p).get(), backward, 1);
  };
  EXPECT_EQ(bytes(1024, 1024, false), bytes(65536, 65536, false));
  EXPECT_EQ(bytes(1024, 1024, true), bytes(1024, 65536, true));
  EXPECT_EQ(bytes(2048, 64, true) - bytes(1024, 64, true), 1024 * (64 + 1) * 4);
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
  const Outputs out = run(fa2(), p, in);
  EXPECT_EQ(difference(p, out, expect(p, in)), "");
}

}  // namespace
}  // namespace attest
