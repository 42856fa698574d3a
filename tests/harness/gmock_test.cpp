// The matcher, as somebody uses it who has the installed headers and libattest.
#include "spec/attest_gmock.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

using attest::Corner;
using attest::MatchesAttention;
using testing::HasSubstr;
using testing::Not;

constexpr int kQueries = 9, kKeys = 14, kChannels = 4;

// Numbers without a pattern.
std::vector<float> numbers(int count, unsigned seed) {
  std::vector<float> all;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    all.push_back(static_cast<float>(seed >> 8) * 0x1p-22f - 2);
  }
  return all;
}

// One head, by the definition; query i sees the keys up to i + shift.
std::vector<float> attention(const std::vector<float>& q, const std::vector<float>& k,
                             const std::vector<float>& v, int shift) {
  std::vector<float> o;
  for (int i = 0; i < kQueries; ++i) {
    double sum = 0, weighted[kChannels] = {};
    for (int j = 0; j < kKeys && j <= i + shift; ++j) {
      double score = 0;
      for (int d = 0; d < kChannels; ++d)
        score += double(q[i * kChannels + d]) * k[j * kChannels + d];
      const double weight = std::exp(score / 2);  // of four channels
      sum += weight;
      for (int d = 0; d < kChannels; ++d) weighted[d] += weight * v[j * kChannels + d];
    }
    for (const double channel : weighted) o.push_back(static_cast<float>(channel / sum));
  }
  return o;
}

class GmockTest : public testing::Test {
 protected:
  GmockTest() { problem.mask = &mask, problem.mask_count = 1; }

  attest::AttentionMatcher matches(const char* arithmetic = "exact-f32") const {
    return MatchesAttention(problem, q, k, v, arithmetic);
  }
  // What is said of it.
  std::string explained(const std::vector<float>& o) const {
    testing::StringMatchResultListener listener;
    testing::ExplainMatchResult(matches(), tensor(o), &listener);
    return listener.str();
  }
  static attest_tensor tensor(const std::vector<float>& o) {
    return attest::tensor_of(o.data(), {1, 1, kQueries, kChannels});
  }

  std::vector<float> q_data = numbers(kQueries * kChannels, 1);
  std::vector<float> k_data = numbers(kKeys * kChannels, 2), v_data = numbers(kKeys * kChannels, 3);
  attest_tensor q = tensor(q_data), k = attest::tensor_of(k_data.data(), {1, 1, kKeys, kChannels}),
                v = attest::tensor_of(v_data.data(), {1, 1, kKeys, kChannels});
  attest_problem problem = attest::problem_of(q, k, v);
  attest_mask mask = attest::causal(Corner::bottom_right);
};

TEST_F(GmockTest, PassesWhatIsRight) {
  EXPECT_THAT(tensor(attention(q_data, k_data, v_data, kKeys - kQueries)), matches());
}

TEST_F(GmockTest, TellsTheElementTheClauseAndWhatWasMeant) {
  const std::vector<float> o = attention(q_data, k_data, v_data, 0);
  EXPECT_THAT(tensor(o), Not(matches()));
  EXPECT_THAT(explained(o), HasSubstr("FAIL: O[0,0,"));
  EXPECT_THAT(explained(o), HasSubstr("MASK-3: causal, bottom right"));
  EXPECT_THAT(explained(o),
              HasSubstr("did you mean  O is exactly what a diagonal at the top left"));
}

TEST_F(GmockTest, WhatCannotBeJudgedFailsBehindNotTooAndSaysWhy) {
  k.shape[2] = 3;
  const std::vector<float> o = attention(q_data, k_data, v_data, kKeys - kQueries);
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(tensor(o), Not(matches())), "cannot be judged: inputs.k");
  EXPECT_EQ(explained(o), "cannot be judged: inputs.k: has shape [1,1,3,4], expected [1,1,14,4]");
}

}  // namespace
