// Every law holds for a right kernel and is broken by a wrong one, with no exact value in play: the
// laws are called as they are, and nobody else judges.
#include "harness/laws/law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "cases/generate.h"
#include "cases/laws.h"
#include "harness/process/in_process.h"
#include "harness/run/examine.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/plain_kernel.h"

namespace attest::laws {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::NiceMock;

float& at(const attest_tensor& t, std::int64_t n) { return static_cast<float*>(t.data)[n]; }

std::int64_t count(const attest_tensor& t) {
  return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3];
}

void scale_by(const attest_tensor& t, float factor) {
  for (std::int64_t n = 0; n < count(t); ++n) at(t, n) *= factor;
}

// What a wrong kernel does: it mistakes what it is told, or spoils what it has computed.
using Misreading = std::function<void(attest_problem&, attest_inputs&, std::vector<attest_mask>&)>;
using Damage =
    std::function<void(const attest_problem&, const attest_inputs&, const attest_outputs&)>;

struct Trying {
  const char* law;
  const char* clause;
  Problem problem;
  Misreading misreading = {};
  Damage forward = {}, backward = {};
  const char* data = "normal";
};

void PrintTo(const Trying& trying, std::ostream* out) { *out << trying.law; }

Problem usual(const std::function<void(Problem&)>& change = [](Problem&) {}) {
  Problem p = {.dtype = DType::f32,
               .batch = 2,
               .query_heads = 4,
               .key_heads = 2,
               .query_len = 6,
               .key_len = 8,
               .head_dim = 4,
               .value_dim = 8,
               .scale = 0.5};
  change(p);
  return p;
}
Problem with_gradients(const std::function<void(Problem&)>& change = [](Problem&) {}) {
  Problem p = usual(change);
  p.backward = true;
  return p;
}
void pack(Problem& p) {
  p.packed = true;
  p.query_lens = {6, 2};
  p.key_lens = {3, 8};
}
Problem packed() { return with_gradients(pack); }
Problem packed_forward() { return usual(pack); }

// The last bit of one number.
Damage other_bits_if(bool (*is_so)(const attest_problem& p)) {
  return [is_so](const attest_problem& p, auto&, const attest_outputs& out) {
    if (is_so(p)) at(out.o, 0) = std::nextafter(at(out.o, 0), 1e9f);
  };
}
Problem paged() {
  return usual([](Problem& p) {
    p.key_lens = {8, 5};
    p.paging = {.page_size = 4, .pages = 5, .table = {{3, 0}, {1, 4}}};
  });
}

Misreading in_case(bool (*hits)(const attest_problem&, const attest_inputs&)) {
  return [=](attest_problem& p, attest_inputs& in, auto&) {
    if (hits(p, in)) p.scale *= 1.01;
  };
}

std::vector<Trying> tryings() {
  const auto bias = [](Problem& p) { p.bias_shape = Shape{2, 4, 6, 8}; };
  const auto spoil_o = [](float by) {
    return [=](auto&, auto&, const attest_outputs& out) { at(out.o, 0) += by; };
  };
  const auto causal = [](Anchor anchor) {
    return [=](Problem& p) { p.mask = Mask::causal(anchor); };
  };
  return {
      {"permuted_keys",
       "LAW-1",
       with_gradients(),
       {},
       [](auto&, const attest_inputs& in, const attest_outputs& out) {
         at(out.o, 0) += 0.01f * at(in.v, 0);
       }},
      {"permuted_keys",
       "LAW-1",
       with_gradients([](Problem& p) {
         p.mask = Mask::causal(Anchor::bottom_right);
         p.bias_shape = Shape{1, 4, 6, 8};
       }),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dbias, 3) += 0.1f; }},
      {"shifted_keys", "LAW-2", with_gradients(),
       [](attest_problem& p, auto&, auto&) { p.softcap = 20; }},
      {"row_bias",
       "LAW-2",
       with_gradients(bias),
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.lse, 0.999f); }},
      {"linear_values", "LAW-3", usual(), {}, spoil_o(0.01f)},
      {"ones", "LAW-4", usual(), {}, spoil_o(1e-4f)},
      {"ones", "LAW-4", usual([](Problem& p) { p.sink = true; }), {}, spoil_o(1e-4f)},
      {"identity_values",
       "LAW-4",
       usual(causal(Anchor::top_left)),
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.o, 7) += 1e-30f; }},
      {"identity_values",
       "LAW-4",
       usual(),
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.o, 0.999f); }},
      {"hull", "LAW-4", usual(), {}, spoil_o(10)},
      {"finite", "SOFTMAX-2", usual(), {}, spoil_o(HUGE_VALF)},
      {"finite",
       "SOFTMAX-2",
       with_gradients(),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dk, 3) = NAN; }},
      {"zero_query",
       "LAW-4",
       usual(causal(Anchor::top_left)),
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.lse, 5) += 1e-4f; }},
      {"loud_key",
       "LAW-4",
       usual([](Problem& p) { p.mask = Mask::window(3, 1, Anchor::bottom_right); }),
       {},
       [](const attest_problem& p, auto&, const attest_outputs& out) {
         for (Index c = 0; c < p.value_dim; ++c) at(out.o, 8 + c) = at(out.o, c);
       }},
      {"loud_key", "LAW-4", usual([](Problem& p) {
         p.key_lens = {8, 3};
       }),
       [](attest_problem& p, auto&, auto&) { p.scale *= 1.01; }},
      {"rescaled_query", "LAW-5", usual(), [](attest_problem& p, auto&, auto&) { p.scale = 0.5; }},
      {"split_keys",
       "LAW-6",
       usual(),
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.lse, 1.4427f); }},
      {"split_keys", "LAW-6", usual([](Problem& p) {
         p.sink = true;
         p.mask = Mask::causal(Anchor::top_left);
       }),
       [](attest_problem& p, auto&, auto&) { p.has_sink = p.key_len == 8 ? 0 : p.has_sink; }},
      {"causal_prefix", "LAW-7", usual(causal(Anchor::top_left)),
       [](auto&, auto&, auto& nodes) { nodes.back().anchored_bottom_right = 1; }},
      {"decode_row", "LAW-7", usual(causal(Anchor::bottom_right)),
       [](auto&, auto&, auto& nodes) { nodes.back().anchored_bottom_right = 0; }},
      {"wide_window", "LAW-8", with_gradients(),
       [](auto&, auto&, auto& nodes) {
         if (nodes.back().kind == ATTEST_MASK_BAND) nodes.back().left = 3;
       }},
      {"repeated_heads", "LAW-9", with_gradients(),
       [](attest_problem& p, attest_inputs& in, auto&) {
         if (p.key_heads < p.query_heads) in.v.stride[1] = 0;
       }},
      {"repeated_heads",
       "LAW-9",
       with_gradients(),
       {},
       {},
       [](const attest_problem& p, auto&, const attest_outputs& out) {
         if (p.key_heads < p.query_heads) scale_by(out.dk, 0.5f);
       }},
      {"padded", "LAW-10", packed(), in_case([](const attest_problem& p, const attest_inputs&) {
         return p.cu_key_lens.data != nullptr;
       })},
      {"contiguous", "LAW-10", paged(),
       in_case([](const attest_problem& p, const attest_inputs&) { return p.page_size > 0; })},
      {"alone", "LAW-10", packed(),
       in_case([](const attest_problem& p, const attest_inputs&) { return p.batch > 1; })},
      {"layouts", "LAW-10", with_gradients(),
       in_case([](const attest_problem&, const attest_inputs& in) {
         return in.q.stride[1] < in.q.stride[2];
       })},
      {"packed_bits", "DET-4", packed_forward(), {}, other_bits_if([](const attest_problem& p) {
         return p.cu_key_lens.data != nullptr;
       })},
      {"padded_bits", "DET-4", usual(), {}, other_bits_if([](const attest_problem& p) {
         return p.key_lens.data != nullptr;
       })},
      {"paged_bits", "DET-5", paged(), {}, other_bits_if([](const attest_problem& p) {
         return p.page_size > 0;
       })},
      {"chunk_bits",
       "DET-6",
       usual(causal(Anchor::bottom_right)),
       {},
       other_bits_if([](const attest_problem& p) { return p.query_len == 4; })},
      {"chunk_bits", "DET-6", usual(), {}, other_bits_if([](const attest_problem& p) {
         return p.query_len == 2;
       })},
      {"decode_bits",
       "DET-7",
       usual(causal(Anchor::bottom_right)),
       {},
       other_bits_if([](const attest_problem& p) { return p.query_len == 1; })},
      {"sink_as_key", "LAW-11", usual([](Problem& p) { p.sink = true; }),
       [](attest_problem& p, auto&, auto&) { p.has_sink = 0; }},
      {"sink_as_key",
       "LAW-11",
       with_gradients([](Problem& p) {
         p.sink = true;
         p.mask = Mask::causal(Anchor::bottom_right, -5);  // rows without keys among them
       }),
       {},
       {},
       [](const attest_problem& p, auto&, const attest_outputs& out) {
         if (p.has_sink) scale_by(out.dsink, -1);
       }},
      {"alibi_as_bias", "LAW-12", with_gradients([](Problem& p) {
         p.slopes_shape = Shape{1, 4, 1, 1};
       }),
       [](attest_problem& p, auto&, auto&) { p.has_alibi = 0; }},
      {"huge_softcap", "LAW-13", usual(),
       [](attest_problem& p, auto&, auto&) {
         if (p.softcap > 0) p.softcap = 10;
       }},
      {"linear_gradient",
       "LAW-14",
       with_gradients(bias),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dbias, 0) += 0.01f; }},
      {"zero_loss",
       "LAW-14",
       with_gradients([](Problem& p) { p.d_lse = true; }),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dv, 0) += 1e-30f; }},
      {"zero_loss",
       "LAW-14",
       with_gradients(),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dq, 0) += 1e-30f; }},
      {"value_sums",
       "LAW-15",
       with_gradients(causal(Anchor::bottom_right)),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.dv, 1.001f); }},
      {"key_sums",
       "LAW-15",
       packed(),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dk, 0) += 0.01f; }},
      {"zero_scores",
       "LAW-15",
       with_gradients(causal(Anchor::bottom_right)),
       {},
       {},
       [](const attest_problem& p, auto&, const attest_outputs& out) {
         for (Index c = 0; c < p.head_dim; ++c) at(out.dk, 4 + c) = at(out.dk, c);
       }},
      {"zero_scores",
       "LAW-15",
       with_gradients([](Problem& p) { p.d_lse = true; }),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.dq, 1.01f); }},
      {"zero_scores",
       "LAW-15",
       packed(),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.dv, 1.01f); }},
      {"logit_sums",
       "LAW-15",
       with_gradients(bias),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dbias, 0) += 0.01f; }},
      {"logit_sums",
       "LAW-15",
       with_gradients([](Problem& p) {
         p.bias_shape = Shape{1, 4, 1, 8};
         p.sink = p.d_lse = true;
       }),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dsink, 1) += 0.01f; }},
      {"directions",
       "LAW-16",
       with_gradients([](Problem& p) {
         p.sink = p.d_lse = true;
         p.bias_shape = Shape{2, 4, 1, 8};
       }),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { scale_by(out.dq, 1.01f); }},
      {"hidden_keys",
       "HIDE-1",
       with_gradients(causal(Anchor::top_left)),
       {},
       [](auto&, const attest_inputs& in, const attest_outputs& out) {
         at(out.o, 0) += 1e-6f * at(in.v, 7 * 8);
       }},
      {"hidden_keys",
       "HIDE-1",
       with_gradients([](Problem& p) { p.mask = Mask::window(0, 0, Anchor::top_left); }),
       {},
       {},
       [](auto&, const attest_inputs& in, const attest_outputs& out) {
         at(out.dk, 2 * 4) += 1e-6f * at(in.k, 7 * 4);
       }},
      {"unseen_keys",
       "HIDE-1",
       with_gradients(causal(Anchor::top_left)),
       {},
       {},
       [](auto&, auto&, const attest_outputs& out) { at(out.dk, 7 * 4) += 1e-30f; }},
      {"drawn_as_given", "DROP-3", with_gradients([](Problem& p) {
         p.dropout = {.mode = Dropout::Mode::generated, .probability = 0.25, .seed = 5};
       }),
       [](attest_problem& p, auto&, auto&) {
         if (p.dropout == ATTEST_DROPOUT_GIVEN) p.dropout_probability = 0.26;
       }},
  };
}

// A kernel in this process, and what a law finds with it.
class LawsTest : public testing::Test {
 protected:
  LawsTest() {
    arithmetic_.deterministic = true;
    description_.name = "plain";
    description_.dtypes = {DType::f32};
    description_.features = known_features();
    description_.alignment = 4;
    description_.arithmetic = {{DType::f32, arithmetic_}};
    ON_CALL(mock_, forward).WillByDefault(plain::forward);
    ON_CALL(mock_, backward).WillByDefault(plain::backward);
  }

  template <class Call>
  static auto mistaken(Call call, const Misreading& misreading, const Damage& damage) {
    return [=](const attest_problem& p, const attest_inputs& in, const attest_outputs& out,
               const attest_context& context) {
      attest_problem problem = p;
      attest_inputs inputs = in;
      std::vector<attest_mask> nodes(p.mask, p.mask + p.mask_count);
      if (misreading) misreading(problem, inputs, nodes);
      problem.mask = nodes.data();
      const attest_status status = call(problem, inputs, out, context);
      if (damage) damage(p, in, out);
      return status;
    };
  }
  void make_wrong(const Trying& trying) {
    ON_CALL(mock_, forward)
        .WillByDefault(mistaken(plain::forward, trying.misreading, trying.forward));
    ON_CALL(mock_, backward)
        .WillByDefault(mistaken(plain::backward, trying.misreading, trying.backward));
  }

  std::optional<Finding> find(const std::string& law, const Problem& problem, const char* data) {
    Case test_case;
    test_case.id = "test/laws/" + law + "/s=1";
    test_case.data = data;
    test_case.problem = problem;
    Inputs inputs = generate(test_case);
    const std::string kernel = "mock";
    const Calling calling = {description_, kernel, executor_, 1, captured_};
    const Trial trial = try_out(calling, problem, inputs, Placement::end_flush);
    EXPECT_FALSE(trial.stopped) << trial.stopped->message;
    if (trial.keep) inputs.keep = *trial.keep;
    const ForwardExpected forward = expect_forward(problem, inputs, arithmetic_);
    const BackwardExpected backward =
        problem.backward ? expect_backward(problem, inputs, arithmetic_) : BackwardExpected();
    const Sample first(problem, inputs, trial, description_, arithmetic_,
                       {.forward = [&]() -> const ForwardExpected& { return forward; },
                        .backward = [&]() -> const BackwardExpected& { return backward; }});
    return try_laws(calling, arithmetic_, first, {law});
  }

  Arithmetic arithmetic_ = loosest(DType::f32);
  Description description_;
  NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_{mock_.plugin()};
  std::string captured_;
};

class LawTest : public LawsTest, public testing::WithParamInterface<Trying> {};

TEST_P(LawTest, HoldsForARightKernel) {
  const Trying& t = GetParam();
  ASSERT_FALSE(defect_of(t.problem)) << defect_of(t.problem)->what;
  const auto found = find(t.law, t.problem, t.data);
  EXPECT_FALSE(found) << found->reason << ": " << found->message;
}

TEST_P(LawTest, IsBrokenByAWrongKernelAndSaysWhere) {
  const Trying& t = GetParam();
  make_wrong(t);
  const auto found = find(t.law, t.problem, t.data);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::fail) << found->message;
  EXPECT_EQ(found->reason, std::string("property:") + t.law) << found->message;
  EXPECT_EQ(found->clause, t.clause);
  EXPECT_THAT(found->message, HasSubstr("] = "));
}

INSTANTIATE_TEST_SUITE_P(All, LawTest, testing::ValuesIn(tryings()), [](const auto& trying) {
  std::string name = trying.param.law + std::to_string(trying.index);
  std::erase(name, '_');
  return name;
});

TEST_F(LawsTest, StateOfAnEarlierCallBreaksAfterOthers) {
  double last = 0.5;
  EXPECT_FALSE(find("after_others", with_gradients(), "normal"));
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    if (p.scale != last) at(out.o, 0) = std::nextafter(at(out.o, 0), 10.0f);
    last = p.scale;
    return ATTEST_OK;
  });
  const auto found = find("after_others", with_gradients(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "property:after_others");
  EXPECT_EQ(found->clause, "DET-1");
  // Who does not declare to be deterministic may differ by as much as the bounds allow.
  arithmetic_.deterministic = false;
  last = 0.5;
  EXPECT_FALSE(find("after_others", with_gradients(), "normal"));
}

TEST_F(LawsTest, WhatTheLastForwardCallLeftForTheBackwardOneBreaksAfterOthers) {
  float last = 0;
  ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    last = at(in.v, 0);
    plain::forward(p, in, out, c);
    return ATTEST_OK;
  });
  ON_CALL(mock_, backward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
    plain::backward(p, in, out, c);
    if (last != at(in.v, 0)) at(out.dq, 0) += 1;
    return ATTEST_OK;
  });
  const auto found = find("after_others", with_gradients(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "property:after_others");
  EXPECT_THAT(found->message, HasSubstr("dQ"));
}

TEST_F(LawsTest, VariantThatNobodyPromisedIsUnsupported) {
  std::erase(description_.features, "window");
  EXPECT_CALL(mock_, forward).Times(1);  // the case itself
  auto found = find("wide_window", usual(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::unsupported);
  EXPECT_EQ(found->reason, "limits");
  EXPECT_THAT(found->message, HasSubstr(": window"));
  testing::Mock::VerifyAndClearExpectations(&mock_);
  ON_CALL(mock_, supports).WillByDefault([](const attest_problem& p) {
    return p.mask_count > 0 && p.mask[p.mask_count - 1].kind == ATTEST_MASK_BAND ? "no windows"
                                                                                 : "ok";
  });
  description_.features.push_back("window");
  found = find("wide_window", usual(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "wrong_refusal");
}

TEST_F(LawsTest, LawWithNothingToCompareIsInconclusive) {
  const auto found = find("unseen_keys", with_gradients(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::inconclusive);
}

// Found by attest fuzz in a right kernel: exp2(s c - m c) may be NaN beyond 2^24 (SOFTMAX-2).
TEST_F(LawsTest, SharesOfScoresForWhichNothingIsRequiredMayBeAnything) {
  const Problem one = {.dtype = DType::f32, .value_dim = 2};
  ON_CALL(mock_, forward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    for (Index n = 0; n < count(out.o); ++n) at(out.o, n) = NAN;
    return ATTEST_OK;
  });
  const auto found = find("identity_values", one, "equal_huge");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::inconclusive) << found->message;
  EXPECT_EQ(find("identity_values", one, "normal")->outcome, Outcome::fail);
}

TEST_F(LawsTest, LawThatDoesNotApplySaysWhy) {
  const auto found = find("sink_as_key", usual(), "normal");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::inconclusive);
  EXPECT_THAT(found->message, HasSubstr("there is no sink"));
}

TEST_F(LawsTest, AreThoseThatCasesMayName) {
  std::set<std::string> tried, named;
  for (const Law* law : all_laws()) EXPECT_TRUE(tried.emplace(law->name).second) << law->name;
  for (const LawName& law : law_names()) named.emplace(law.name);
  EXPECT_EQ(tried, named);
}

TEST_F(LawsTest, AreSeenBrokenEachAndEachHasItsClause) {
  std::set<std::string> broken = {"after_others"};  // above
  for (const Trying& t : tryings()) {
    broken.insert(t.law);
    EXPECT_EQ(find_law(t.law)->clause, t.clause);
  }
  for (const LawName& law : law_names()) EXPECT_TRUE(broken.contains(std::string(law.name)));
}

TEST_F(LawsTest, EveryLawHasACaseAndAppliesToAllItsCases) {
  std::set<std::string> asked_for;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    if (c.laws.empty()) continue;
    const Inputs inputs = c.excerpt > 0 ? Inputs() : generate(c);  // takes long
    for (const std::string& name : c.laws) {
      asked_for.insert(name);
      for (const Law* law : all_laws()) {
        if (law->name != name) continue;
        EXPECT_EQ(unmet(*law, c.problem, inputs), "") << c.id;
      }
    }
  }
  EXPECT_EQ(asked_for.size(), law_names().size());
}

TEST_F(LawsTest, ThoseOfGradientsAreForNumbersThatTheirDerivationsAllow) {
  const Problem problem = {.backward = true};
  const auto why_not = [&](const char* name, double q, double k) {
    const Inputs inputs = {.q = {problem.q_shape(), {q}},
                           .k = {problem.k_shape(), {k}},
                           .v = {problem.v_shape(), {1}},
                           .d_o = {problem.o_shape(), {1}}};
    for (const Law* law : all_laws()) {
      if (law->name == name) return unmet(*law, problem, inputs);
    }
    return std::string("no such law");
  };
  for (const char* name : {"directions", "zero_scores"}) EXPECT_EQ(why_not(name, 1, 1), "") << name;
  EXPECT_THAT(why_not("directions", 1e17, 1e-17), HasSubstr("changes too much"));
  EXPECT_THAT(why_not("directions", 1e-17, 1e17), HasSubstr("changes too much"));
  EXPECT_THAT(why_not("zero_scores", 1, 1e37), HasSubstr("may overflow"));
}

// ---- In a verdict ------------------------------------------------------------------------------

class LawVerdictTest : public LawsTest {
 protected:
  Verdict verdict(const std::vector<std::string>& laws) {
    Case test_case;
    test_case.id = "test/laws/verdict/s=1";
    test_case.clauses = {"MASK-1", "LAW-5"};
    test_case.data = "normal";
    test_case.problem = usual();
    test_case.laws = laws;
    PreparedCase prepared(test_case, 1);
    return examine(prepared, description_, "mock", executor_, 1).verdict;
  }
};

TEST_F(LawVerdictTest, CitesTheClauseOfTheLawThatIsBroken) {
  EXPECT_EQ(verdict({"ones", "rescaled_query"}).outcome, Outcome::pass);
  // Within every bound, and not the same bits.
  ON_CALL(mock_, forward).WillByDefault([](auto& p, auto& in, auto& out, auto& c) {
    plain::forward(p, in, out, c);
    if (p.scale < 0.2) at(out.o, 3) = std::nextafter(at(out.o, 3), 10.0f);
    return ATTEST_OK;
  });
  const Verdict v = verdict({"ones", "rescaled_query"});
  EXPECT_EQ(v.outcome, Outcome::fail);
  EXPECT_EQ(v.reason, "property:rescaled_query");
  EXPECT_THAT(v.clauses, ElementsAre("LAW-5", "MASK-1"));
  EXPECT_THAT(v.message, HasSubstr("O[0,0,0,3]"));
}

// ---- Beside an excerpt --------------------------------------------------------------------------

// 31 groups of 8 rows, of which the reference judges the first and the last: nobody but the laws
// looks at what is spoilt here.
class LawsOfLongCasesTest : public LawsTest {
 protected:
  static constexpr Index kSpoilt = 48;  // a row, and a key

  LawsOfLongCasesTest() {
    test_case_.id = "test/laws/long/s=1";
    test_case_.clauses = {"MASK-2"};
    test_case_.data = "normal";
    test_case_.excerpt = 2;
    test_case_.problem = {.dtype = DType::f32,
                          .batch = 1,
                          .query_heads = 1,
                          .key_heads = 1,
                          .query_len = 120,
                          .key_len = 120,
                          .head_dim = 8,
                          .value_dim = 8,
                          .scale = 0.35,
                          .mask = Mask::causal(Anchor::top_left),
                          .backward = true};
  }
  Verdict verdict(const std::vector<std::string>& laws, const Damage& forward = {},
                  const Damage& backward = {}) {
    ON_CALL(mock_, forward).WillByDefault(mistaken(plain::forward, {}, forward));
    ON_CALL(mock_, backward).WillByDefault(mistaken(plain::backward, {}, backward));
    test_case_.laws = laws;
    // A wrong O shows in the gradients of the excerpt, whose D is made of it.
    test_case_.problem.backward = !forward;
    PreparedCase prepared(test_case_, 1);
    return examine(prepared, description_, "mock", executor_, 1).verdict;
  }
  // Nothing but that law finds it.
  void expect_only(const char* law, const Damage& forward, const Damage& backward = {}) {
    EXPECT_EQ(verdict({}, forward, backward).outcome, Outcome::pass);
    const Verdict v = verdict({law}, forward, backward);
    EXPECT_EQ(v.outcome, Outcome::fail) << law;
    EXPECT_EQ(v.reason, std::string("property:") + law) << v.message;
  }
  // Replaces the eight rows from that one on of a tensor of eight channels.
  template <class Change>
  static void spoil(const attest_tensor& t, const Change& change) {
    for (Index n = kSpoilt * 8; n < (kSpoilt + 8) * 8; ++n) at(t, n) = change(n);
  }

  Case test_case_;
};

TEST_F(LawsOfLongCasesTest, HoldForARightKernel) {
  std::vector<std::string> laws;
  for (const LawName& law : law_names()) {
    if (law.of_long) laws.emplace_back(law.name);
  }
  std::erase(laws, "unseen_keys");  // there are none
  const Verdict v = verdict(laws);
  EXPECT_EQ(v.outcome, Outcome::pass) << v.message;
  EXPECT_EQ(v.tensors.at(TensorName::o).compared, 16 * 8);
}

TEST_F(LawsOfLongCasesTest, SeeARowThatIsItsNeighbour) {
  expect_only("loud_key", [](auto&, auto&, const attest_outputs& out) {
    spoil(out.o, [&](Index n) { return at(out.o, n - 64); });
  });
}

TEST_F(LawsOfLongCasesTest, SeeRowsThatMissTheirLastKey) {
  const Damage last_key = [](const attest_problem& p, const attest_inputs& in,
                             const attest_outputs& out) {
    for (Index i = kSpoilt; i < kSpoilt + 8; ++i) {
      float score = 0;
      for (Index c = 0; c < 8; ++c) score += at(in.q, i * 8 + c) * at(in.k, i * 8 + c);
      const float share = std::exp(static_cast<float>(p.scale) * score - at(out.lse, i));
      for (Index c = 0; c < 8; ++c) {
        float& o = at(out.o, i * 8 + c);
        o = (o - share * at(in.v, i * 8 + c)) / (1 - share);
      }
      at(out.lse, i) += std::log1p(-share);
    }
  };
  expect_only("zero_query", last_key);
}

TEST_F(LawsOfLongCasesTest, SeeAnLseThatIsItsNeighbours) {
  expect_only("loud_key", [](auto&, auto&, const attest_outputs& out) {
    for (Index i = kSpoilt; i < kSpoilt + 8; i += 2) std::swap(at(out.lse, i), at(out.lse, i + 1));
  });
}

TEST_F(LawsOfLongCasesTest, SeeARowOfZerosInAnyArithmetic) {
  test_case_.problem.query_len = 24;
  test_case_.problem.key_len = 60000;
  test_case_.problem.head_dim = 1;
  test_case_.problem.value_dim = 2;
  test_case_.problem.mask = Mask::full();
  expect_only("zero_query", [](auto&, auto&, const attest_outputs& out) {
    for (Index n = 2 * 8; n < 2 * 16; ++n) at(out.o, n) = 0;
  });
}

TEST_F(LawsOfLongCasesTest, SeeRowsThatReadTheKeysOfAnotherHead) {
  test_case_.problem.query_heads = test_case_.problem.key_heads = 2;
  expect_only("loud_key",
              [](const attest_problem& p, const attest_inputs& in, const attest_outputs& out) {
                std::vector<float> right;
                const auto for_each_right = [&](const auto& visit) {
                  for (const attest_tensor* tensor : {&out.o, &out.lse}) {
                    for (Index h = 0; h < 2; ++h) {
                      for (Index i = 0; i < p.query_len; ++i) {
                        if (h == 1 && i >= kSpoilt && i < kSpoilt + 8) continue;
                        for (Index c = 0; c < tensor->shape[3]; ++c) {
                          visit(plain::element<float>(*tensor, 0, h, i, c));
                        }
                      }
                    }
                  }
                };
                for_each_right([&](float x) { right.push_back(x); });
                attest_inputs others = in;
                others.k.stride[1] = 0;
                plain::forward(p, others, out, {});
                std::size_t n = 0;
                for_each_right([&](float& x) { x = right[n++]; });
              });
}

TEST_F(LawsOfLongCasesTest, SeeWhatIsNoNumber) {
  for (const float none : {NAN, HUGE_VALF, -HUGE_VALF}) {
    expect_only("finite", [=](auto&, auto&, const attest_outputs& out) {
      spoil(out.o, [&](Index) { return none; });
    });
    expect_only("finite", [=](auto&, auto&, const attest_outputs& out) {
      for (Index i = kSpoilt; i < kSpoilt + 8; ++i) at(out.lse, i) = none;
    });
    for (const attest_tensor attest_outputs::*gradient :
         {&attest_outputs::dq, &attest_outputs::dk, &attest_outputs::dv}) {
      expect_only("finite", {}, [=](auto&, auto&, const attest_outputs& out) {
        spoil(out.*gradient, [&](Index) { return none; });
      });
    }
  }
}

TEST_F(LawsOfLongCasesTest, SeeRowsThatAreZero) {
  const Damage zero = [](auto&, auto&, const attest_outputs& out) {
    spoil(out.o, [](Index) { return 0.0f; });
  };
  for (const char* law : {"ones", "zero_query", "loud_key"}) expect_only(law, zero);
}

TEST_F(LawsOfLongCasesTest, SeeARowOutsideOfItsValues) {
  expect_only("hull", [](auto&, auto&, const attest_outputs& out) {
    spoil(out.o, [&](Index n) { return at(out.o, n) + 5; });
  });
}

TEST_F(LawsOfLongCasesTest, SeeGradientsOfKeysAndRowsThatAreLostOrAnothers) {
  for (const attest_tensor attest_outputs::*gradient :
       {&attest_outputs::dq, &attest_outputs::dk, &attest_outputs::dv}) {
    expect_only("zero_scores", {}, [=](auto&, auto&, const attest_outputs& out) {
      spoil(out.*gradient, [](Index) { return 0.0f; });
    });
  }
  for (const attest_tensor attest_outputs::*gradient : {&attest_outputs::dq, &attest_outputs::dk}) {
    expect_only("zero_scores", {}, [=](auto&, auto&, const attest_outputs& out) {
      spoil(out.*gradient, [&](Index n) { return at(out.*gradient, n - 64); });
    });
  }
}

TEST_F(LawsOfLongCasesTest, SeeALossThatIsMissingFromSums) {
  expect_only("value_sums", {}, [](auto&, auto&, const attest_outputs& out) {
    spoil(out.dv, [](Index) { return 0.0f; });
  });
  expect_only("key_sums", {}, [](auto&, auto&, const attest_outputs& out) {
    spoil(out.dk, [&](Index n) { return at(out.dk, n) + 0.1f; });
  });
}

TEST_F(LawsOfLongCasesTest, DoNotApplyWhereRowsSeeKeysHereAndThere) {
  test_case_.problem.mask = Mask::dilated(2, Anchor::top_left);
  const Verdict v = verdict({"zero_query"});
  EXPECT_EQ(v.outcome, Outcome::inconclusive);
  EXPECT_THAT(v.message, HasSubstr("side by side"));
}

TEST_F(LawVerdictTest, SaysWhatWasNotPromised) {
  description_.arithmetic.at(DType::f32).deterministic = false;
  const Verdict v = verdict({"rescaled_query"});
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.message, "does not declare deterministic");
  EXPECT_TRUE(v.clauses.empty());
}

}  // namespace
}  // namespace attest::laws
