// The matcher, as somebody uses it who has the installed headers and libattest.
#include "spec/attest_gmock.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
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

// Of the same head: the weights, and what follows from them.
struct Backward {
  std::vector<float> lse, dq, dk, dv;
};
Backward differentiate(const std::vector<float>& q, const std::vector<float>& k,
                       const std::vector<float>& v, const std::vector<float>& d_o, int shift) {
  const auto dot = [](const std::vector<float>& a, int i, const std::vector<float>& b, int j) {
    double sum = 0;
    for (int d = 0; d < kChannels; ++d) sum += double(a[i * kChannels + d]) * b[j * kChannels + d];
    return sum;
  };
  Backward all;
  std::vector<double> dk(kKeys * kChannels), dv(kKeys * kChannels);
  for (int i = 0; i < kQueries; ++i) {
    const int seen = std::min(kKeys, i + shift + 1);
    std::vector<double> p;
    double sum = 0, mean = 0;
    for (int j = 0; j < seen; ++j) sum += p.emplace_back(std::exp(dot(q, i, k, j) / 2));
    for (double& each : p) each /= sum;
    for (int j = 0; j < seen; ++j) mean += p[j] * dot(d_o, i, v, j);
    double dq[kChannels] = {};
    for (int j = 0; j < seen; ++j) {
      const double ds = p[j] * (dot(d_o, i, v, j) - mean) / 2;
      for (int d = 0; d < kChannels; ++d) {
        dq[d] += ds * k[j * kChannels + d];
        dk[j * kChannels + d] += ds * q[i * kChannels + d];
        dv[j * kChannels + d] += p[j] * d_o[i * kChannels + d];
      }
    }
    all.lse.push_back(static_cast<float>(std::log(sum)));
    for (const double channel : dq) all.dq.push_back(static_cast<float>(channel));
  }
  for (const double each : dk) all.dk.push_back(static_cast<float>(each));
  for (const double each : dv) all.dv.push_back(static_cast<float>(each));
  return all;
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

TEST_F(GmockTest, JudgesLseBesideO) {
  const std::vector<float> o = attention(q_data, k_data, v_data, kKeys - kQueries);
  Backward right = differentiate(q_data, k_data, v_data, q_data, kKeys - kQueries);
  const attest_tensor lse = attest::tensor_of(right.lse.data(), {1, 1, kQueries, 1});
  EXPECT_THAT(attest::outputs_of(tensor(o), lse), matches());
  right.lse[3] += 1e-3f;
  EXPECT_THAT(attest::outputs_of(tensor(o), lse), Not(matches()));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(attest::outputs_of(tensor(o), lse), matches()),
                          "O, a tensor [1,1,9,4]; LSE, a tensor [1,1,9,1]");
}

TEST_F(GmockTest, JudgesGradients) {
  const std::vector<float> loss = numbers(kQueries * kChannels, 4);
  Backward right = differentiate(q_data, k_data, v_data, loss, kKeys - kQueries);
  const std::array<std::int64_t, 4> keys = {1, 1, kKeys, kChannels};
  const attest_outputs gradients =
      attest::gradients_of(tensor(right.dq), attest::tensor_of(right.dk.data(), keys),
                           attest::tensor_of(right.dv.data(), keys));
  const auto of_loss =
      MatchesAttention(problem, attest::inputs_of(q, k, v, tensor(loss)), "exact-f32");
  EXPECT_THAT(gradients, of_loss);
  std::vector<float>* const tensors[] = {&right.dq, &right.dk, &right.dv};
  const char* const names[] = {"FAIL: dQ[0,0,1,0]", "FAIL: dK[0,0,1,0]", "FAIL: dV[0,0,1,0]"};
  for (int t = 0; t < 3; ++t) {
    float& element = (*tensors[t])[kChannels];
    element += 1e-3f;
    testing::StringMatchResultListener listener;
    EXPECT_FALSE(testing::ExplainMatchResult(of_loss, gradients, &listener));
    EXPECT_THAT(listener.str(), HasSubstr(names[t]));
    element -= 1e-3f;
  }
}

TEST_F(GmockTest, GradientsWithoutALossCannotBeJudged) {
  const std::vector<float> none(kKeys * kChannels);
  const attest_outputs gradients = attest::gradients_of(tensor(none), k, v);
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(gradients, Not(matches())), "cannot be judged: inputs.d_o");
}

TEST_F(GmockTest, WhatCannotBeJudgedFailsBehindNotTooAndSaysWhy) {
  k.shape[2] = 3;
  const std::vector<float> o = attention(q_data, k_data, v_data, kKeys - kQueries);
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(tensor(o), Not(matches())), "cannot be judged: inputs.k");
  EXPECT_EQ(explained(o), "cannot be judged: inputs.k: has shape [1,1,3,4], expected [1,1,14,4]");
}

}  // namespace
