// What examine() makes of a kernel that is a mock: a base for tests, with a kernel that is right.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/harness/mock_plugin.h"
#include "tests/harness/on_a_mock.h"

namespace attest {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline float* floats(const attest_tensor& tensor) { return static_cast<float*>(tensor.data); }

// Three queries and one key: attention is the value itself, and LSE the score.
inline attest_status right_forward(const attest_problem& p, const attest_inputs& in,
                                   const attest_outputs& out, const attest_context&) {
  for (Index i = 0; i < p.query_len; ++i) {
    floats(out.o)[i] = floats(in.v)[0];
    floats(out.lse)[i] = static_cast<float>(p.scale) * floats(in.q)[i] * floats(in.k)[0];
  }
  return ATTEST_OK;
}

// P = 1 whatever the scores are, so that dQ = dK = 0 and dV = sum of dO.
inline attest_status right_backward(const attest_problem& p, const attest_inputs& in,
                                    const attest_outputs& out, const attest_context&) {
  floats(out.dk)[0] = floats(out.dv)[0] = 0;
  for (Index i = 0; i < p.query_len; ++i) {
    floats(out.dq)[i] = 0;
    floats(out.dv)[0] += floats(in.d_o)[i];
  }
  return ATTEST_OK;
}

class ExamineTest : public testing::Test, protected OnAMock {
 protected:
  ExamineTest()
      : OnAMock({"lse"}, "test/examine/dtype=f32/data=normal/s=1", {"MASK-1", "LSE-1"},
                {.dtype = DType::f32, .query_len = 3, .scale = 0.5}) {
    ON_CALL(mock_, forward).WillByDefault(testing::Invoke(right_forward));
    ON_CALL(mock_, backward).WillByDefault(testing::Invoke(right_backward));
  }
};

}  // namespace attest
