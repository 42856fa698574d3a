#include "harness/judge/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "spec/feature.h"
#include "tests/harness/mock_plugin.h"
#include "tests/harness/on_a_mock.h"
#include "tests/harness/plain_kernel.h"

namespace attest {
namespace {

using testing::Invoke;

using Damage = std::function<void(const attest_outputs&)>;

// Puts 1e3 where rows of a tensor are chosen.
void spoil(const attest_tensor& t, const std::function<bool(Index b, Index h, Index s)>& chosen) {
  for (Index b = 0; b < t.shape[0]; ++b) {
    for (Index h = 0; h < t.shape[1]; ++h) {
      for (Index s = 0; s < t.shape[2]; ++s) {
        if (chosen(b, h, s)) plain::element<float>(t, b, h, s, 0) = 1e3f;
      }
    }
  }
}
bool all(Index, Index, Index) { return true; }

// A right kernel, whose results are spoiled afterwards.
class BlameTest : public testing::Test, protected OnAMock {
 protected:
  BlameTest()
      : OnAMock({"lse", "causal", "backward", "gqa", "softcap", "sink", "bias", "dbias", "lengths",
                 "dropout", "dlse", "value-dim"},
                "test/blame/dtype=f32/data=normal/s=1", {"SHAPE-1"},
                {.dtype = DType::f32,
                 .query_heads = 4,
                 .key_heads = 4,
                 .query_len = 6,
                 .key_len = 9,
                 .head_dim = 4,
                 .value_dim = 4,
                 .scale = 0.5}) {}

  std::string blamed(std::vector<std::string> cited, const Damage& forward,
                     const Damage& backward = {}) {
    test_case_.clauses = std::move(cited);
    test_case_.problem.backward = bool(backward);
    ON_CALL(mock_, forward).WillByDefault(Invoke([&](auto& p, auto& in, auto& out, auto&) {
      plain::Attention(p, in).forward(out);
      if (forward) forward(out);
      return ATTEST_OK;
    }));
    ON_CALL(mock_, backward).WillByDefault(Invoke([&](auto& p, auto& in, auto& out, auto&) {
      plain::Attention(p, in).backward(out);
      if (backward) backward(out);
      return ATTEST_OK;
    }));
    const Verdict v = verdict();
    EXPECT_TRUE(v.outcome == Outcome::fail || (!forward && !backward)) << v.message;
    return v.blamed;
  }
  Problem& problem() { return test_case_.problem; }
};

Damage o_where(const std::function<bool(Index, Index, Index)>& chosen) {
  return [=](const attest_outputs& out) { spoil(out.o, chosen); };
}

// O and LSE.
Damage both_where(const std::function<bool(Index, Index, Index)>& chosen) {
  return [=](const attest_outputs& out) {
    spoil(out.o, chosen);
    spoil(out.lse, chosen);
  };
}

TEST_F(BlameTest, RightKernelIsBlamedForNothing) { EXPECT_EQ(blamed({"SOFTMAX-1"}, {}), ""); }

TEST_F(BlameTest, LseAloneIsItsOwnClause) {
  EXPECT_EQ(blamed({"SHAPE-1", "SOFTMAX-1"}, [](auto& out) { spoil(out.lse, all); }), "LSE-1");
}

TEST_F(BlameTest, LseAloneIsItsOwnClauseThoughTheFirstRowSeesOneKey) {
  problem().mask = Mask::causal(Anchor::top_left);
  problem().softcap = 2;
  const auto lse = [](auto& out) { spoil(out.lse, all); };
  EXPECT_EQ(blamed({"MASK-2", "SCORE-2", "SOFTMAX-1"}, lse), "LSE-1");
}

TEST_F(BlameTest, LseAloneUnderABiasOfOneColumnIsTheBiasUnlessItIsInOtherUnits) {
  problem().bias_shape = Shape{1, 4, 6, 1};
  const auto lse = [](auto& out) { spoil(out.lse, all); };
  EXPECT_EQ(blamed({"SCORE-3", "SOFTMAX-1"}, lse), "SCORE-3");
  EXPECT_EQ(blamed({"LSE-1", "SOFTMAX-1"}, lse), "LSE-1");
  const auto in_base_2 = [](auto& out) {
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < 6; ++i) plain::element<float>(out.lse, 0, h, i, 0) *= 1.442695f;
    }
  };
  EXPECT_EQ(blamed({"SCORE-3", "LSE-1", "SOFTMAX-1"}, in_base_2), "LSE-1");
  problem().bias_shape = Shape{1, 4, 6, 9};
  EXPECT_EQ(blamed({"SCORE-3", "SOFTMAX-1"}, lse), "LSE-1");
}

TEST_F(BlameTest, LawThatWasNotTriedIsNotBlamed) {
  EXPECT_EQ(blamed({"LAW-3", "DET-3", "SOFTMAX-1"}, o_where(all)), "SOFTMAX-1");
  EXPECT_EQ(blamed({"LAW-3"}, o_where(all)), "SOFTMAX-1");
}

TEST_F(BlameTest, RowsWithoutKeysAloneAreTheirClauses) {
  problem().query_len = 9;
  problem().key_len = 6;
  problem().mask = Mask::causal(Anchor::bottom_right);  // the first three see nothing
  const auto empty = [](Index, Index, Index i) { return i < 3; };
  EXPECT_EQ(blamed({"MASK-3", "EMPTY-1"}, o_where(empty)), "EMPTY-1");
  EXPECT_EQ(blamed({"MASK-3"}, [&](auto& out) { spoil(out.lse, empty); }), "EMPTY-2");
  EXPECT_EQ(blamed({"EMPTY-1", "MASK-3"}, both_where([](Index, Index, Index i) { return i < 5; })),
            "MASK-3");
  problem().sink = true;
  EXPECT_EQ(blamed({"MASK-3", "EMPTY-1"}, o_where(empty)), "EMPTY-4");
}

TEST_F(BlameTest, RowsBeyondALengthAloneAreTheLengths) {
  problem().batch = 2;
  problem().query_lens = {4, 6};
  const auto padding = [](Index b, Index, Index i) { return b == 0 && i >= 4; };
  EXPECT_EQ(blamed({"MASK-5", "SOFTMAX-1"}, o_where(padding)), "MASK-6");
}

TEST_F(BlameTest, HeadsThatWouldReadOthersIfGroupsWereInterleavedAreTheGroups) {
  problem().key_heads = 2;  // heads 1 and 2 of 0 1 2 3 read 0 and 1, not 1 and 0
  const auto others = [](Index, Index h, Index) { return h == 1 || h == 2; };
  EXPECT_EQ(blamed({"SHAPE-1", "SOFTMAX-1"}, o_where(others)), "HEAD-1");
}

TEST_F(BlameTest, MaskIsNotBlamedForRowsThatSeeEveryKey) {
  problem().mask = Mask::causal(Anchor::bottom_right);
  const auto but_the_last = [](Index, Index, Index i) { return i < 5; };
  EXPECT_EQ(blamed({"MASK-3", "SOFTMAX-1"}, both_where(but_the_last)), "MASK-3");
  EXPECT_EQ(blamed({"MASK-3", "SOFTMAX-1"}, both_where(all)), "SOFTMAX-1");
}

TEST_F(BlameTest, CornerOfACausalMaskIsThatOfTheProblem) {
  const auto but_the_last = [](Index, Index, Index i) { return i < 5; };
  const std::vector<std::string> cited = {"MASK-2", "MASK-3", "SOFTMAX-1"};
  problem().mask = Mask::causal(Anchor::top_left);
  EXPECT_EQ(blamed(cited, both_where(but_the_last)), "MASK-2");
  problem().mask = Mask::causal(Anchor::bottom_right);
  EXPECT_EQ(blamed(cited, both_where(but_the_last)), "MASK-3");
  problem().mask = Mask::causal(Anchor::top_left, 1);
  EXPECT_EQ(blamed(cited, both_where(but_the_last)), "MASK-3");
}

TEST_F(BlameTest, MaskIsBlamedForRowsThatSeeEveryKeyIfNothingElseIsCited) {
  problem().mask = Mask::causal(Anchor::bottom_right);
  EXPECT_EQ(blamed({"MASK-3"}, o_where(all)), "MASK-3");
  EXPECT_EQ(blamed({"MASK-3", "EMPTY-1"}, o_where(all)), "MASK-3");
}

TEST_F(BlameTest, EveryClauseOfTheForwardPassThatAFeatureHasIsASuspect) {
  const auto suspected = suspects();
  for (const Feature& feature : features()) {
    // Formats are blamed for nothing, and laws and calls of devices for themselves; of the rest,
    // these speak of other tensors.
    if (feature.key == kOfFormats || is_of_testee(feature)) continue;
    for (const auto& demand : feature.demands()) {
      if (demand.clause.starts_with("LAW-")) continue;
      const bool backward = demand.clause.starts_with("GRAD-") || demand.clause == "SINK-2" ||
                            demand.clause == "DROP-2" || demand.clause == "HEAD-2";
      EXPECT_EQ(std::count(suspected.begin(), suspected.end(), demand.clause), backward ? 0 : 1)
          << demand.clause;
    }
  }
}

TEST_F(BlameTest, ScoresAreNotBlamedWhereTheirSumIsRight) {
  problem().softcap = 2;
  EXPECT_EQ(blamed({"SCORE-2", "SOFTMAX-1"}, o_where(all)), "SOFTMAX-1");
}

TEST_F(BlameTest, DropoutIsNotBlamedWhereLseIsWrong) {
  problem().dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  EXPECT_EQ(blamed({"DROP-1", "SOFTMAX-1"}, o_where(all)), "DROP-1");
  EXPECT_EQ(blamed({"DROP-1", "SOFTMAX-1"}, both_where(all)), "SOFTMAX-1");
}

TEST_F(BlameTest, ScoresAreBlamedWhereOneKeyLeavesThemToLse) {
  problem().key_len = 1;
  problem().softcap = 2;
  const std::vector<std::string> cited = {"SCORE-2", "SOFTMAX-1"};
  EXPECT_EQ(blamed(cited, [](auto& out) { spoil(out.lse, all); }), "SCORE-2");
}

TEST_F(BlameTest, WhatAProblemHasNotIsNotBlamed) {
  EXPECT_EQ(blamed({"MASK-4", "HEAD-1", "SOFTMAX-1"}, o_where(all)), "SOFTMAX-1");
}

TEST_F(BlameTest, RarestOfWhatAProblemHasIsBlamedFirst) {
  problem().softcap = 2;
  EXPECT_EQ(blamed({"SHAPE-1", "SOFTMAX-1", "SCORE-2"}, both_where(all)), "SCORE-2");
}

TEST_F(BlameTest, GradientsAreBlamedByWhichAreWrong) {
  problem().key_heads = 2;
  const auto wrong = [](auto... tensors) {
    return Damage([=](const attest_outputs& out) { (spoil(out.*tensors, all), ...); });
  };
  const std::vector<std::string> cited = {"MASK-1", "GRAD-1", "GRAD-2", "GRAD-3"};
  using Out = attest_outputs;
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dv)), "GRAD-3");
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dq)), "GRAD-1");
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dk, &Out::dv)), "HEAD-2");
  problem().softcap = 2;
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dq, &Out::dk)), "GRAD-6");
  problem().sink = true;
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dsink)), "SINK-2");
  problem().d_lse = true;
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dq, &Out::dk, &Out::dsink)), "GRAD-5");
  problem().dropout = {.mode = Dropout::Mode::given, .probability = 0.25};
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dv)), "DROP-2");
  problem().bias_shape = Shape{1, 1, 6, 9};
  EXPECT_EQ(blamed(cited, {}, wrong(&Out::dbias)), "GRAD-4");
}

TEST_F(BlameTest, ForwardPassIsBlamedBeforeGradientsThatFollowFromIt) {
  EXPECT_EQ(blamed({"GRAD-1", "SOFTMAX-1"}, o_where(all), [](auto& out) { spoil(out.dq, all); }),
            "SOFTMAX-1");
}

}  // namespace
}  // namespace attest
