// Q, K and V that are stored in 8 bits, as a caller of attest_judge gives them (FORMAT-5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/generate.h"
#include "harness/oracle/given.h"
#include "tests/harness/oracle_given.h"

namespace attest {
namespace {

using testing::HasSubstr;

Case case_stored(const StoredInputs& stored) {
  return {.id = "test/stored/s=1",
          .clauses = {},
          .because = "",
          .problem = {.dtype = DType::bf16,
                      .batch = 2,
                      .query_heads = 4,
                      .key_heads = 2,
                      .query_len = 3,
                      .key_len = 7,
                      .head_dim = 8,
                      .value_dim = 5,
                      .scale = 0.3,
                      .stored = stored},
          .data = "normal"};
}
const StoredInputs kAll = {.q = Stored{.by_head = true},
                           .k = Stored{.dtype = DType::e5m2, .by_batch = true},
                           .v = Stored{.by_head = true, .by_position = true}};

TEST(OracleStoredTest, ReadsWhatIsMeantByFormatsAndScales) {
  for (const StoredInputs& stored :
       {kAll, StoredInputs{.k = Stored{}, .v = Stored{.dtype = DType::e5m2}},
        StoredInputs{.q = Stored{.by_position = true}, .k = Stored{.by_position = true}}}) {
    const Case c = case_stored(stored);
    ASSERT_FALSE(defect_of(c.problem));
    const Inputs in = generate(c);
    const OracleCall call(c.problem, in);
    const Given given = read_given(call.host.get(), &call.inputs, &call.outputs);
    EXPECT_EQ(given.problem.stored, stored);
    EXPECT_EQ(given.inputs.q.data, in.q.data);
    EXPECT_EQ(given.inputs.k.data, in.k.data);
    EXPECT_EQ(given.inputs.v.data, in.v.data);
    EXPECT_EQ(call.judge()["outcome"], "PASS") << call.judge();
  }
}

TEST(OracleStoredTest, ReadsBlocksOfChannels) {
  for (const DType dtype : kStoredDTypes) {
    const Stored blocks = Stored::in_blocks(dtype);
    Case c = case_stored({.q = blocks, .k = blocks, .v = blocks});
    c.problem.head_dim = 72;
    c.problem.value_dim = 40;
    ASSERT_FALSE(defect_of(c.problem));
    const Inputs in = generate(c);
    OracleCall call(c.problem, in);
    const Given given = read_given(call.host.get(), &call.inputs, &call.outputs);
    EXPECT_EQ(given.problem.stored, c.problem.stored);
    EXPECT_EQ(given.inputs.k.data, in.k.data);
    EXPECT_EQ(call.judge()["outcome"], "PASS") << call.judge();
    static_cast<float*>(call.inputs.v_scale.data)[1] *= 2;
    EXPECT_EQ(call.judge()["outcome"], "FAIL") << "the exponent of a block one higher";
    static_cast<float*>(call.inputs.v_scale.data)[1] *= 0.75f;
    EXPECT_THAT(call.error(), HasSubstr("expected powers of two from 2^-20"));
    call.inputs.v_scale.shape[3] = 4;
    EXPECT_THAT(call.error(), HasSubstr("inputs.v_scale: has shape [2, 2, 7, 4], where blocks of"));
  }
}

TEST(OracleStoredTest, RowsOfOneBlockAreInBlocksBesideThoseThatHaveMore) {
  const Stored blocks = Stored::in_blocks(DType::int8);
  Case c = case_stored({.q = blocks, .k = blocks, .v = blocks});
  c.problem.value_dim = 40;
  const OracleCall call(c.problem, generate(c));
  EXPECT_EQ(call.judge()["outcome"], "PASS") << call.judge();
}

// Of int8 it is one (FORMAT-6, FORMAT-7).
TEST(OracleStoredTest, BfpHasNoMinus128) {
  const Stored blocks = Stored::in_blocks(DType::int8);
  Case c = case_stored({.q = blocks, .k = blocks, .v = blocks});
  c.problem.head_dim = c.problem.value_dim = 40;
  OracleCall in_blocks(c.problem, generate(c));
  static_cast<std::int8_t*>(in_blocks.inputs.k.data)[0] = -128;
  EXPECT_THAT(in_blocks.error(), HasSubstr("inputs.k: has -128"));
}

TEST(OracleStoredTest, FailsWhatWasComputedByOtherScales) {
  const Case c = case_stored(kAll);
  const Inputs in = generate(c);
  OracleCall call(c.problem, in);
  std::swap(call.inputs.q_scale.stride[1], call.inputs.q_scale.stride[0]);
  call.inputs.q_scale.stride[1] = 0;  // the first head's for all
  const nlohmann::json verdict = call.judge();
  EXPECT_EQ(verdict["outcome"], "FAIL") << verdict;
}

TEST(OracleStoredTest, MistakesAreNamed) {
  const Case c = case_stored(kAll);
  const Inputs in = generate(c);
  OracleCall missing(c.problem, in);
  missing.inputs.k_scale = {};
  EXPECT_THAT(missing.error(), HasSubstr("inputs.k_scale: is missing"));
  OracleCall wrong_shape(c.problem, in);
  wrong_shape.inputs.v_scale.shape[1] = 3;
  EXPECT_THAT(wrong_shape.error(), HasSubstr("inputs.v_scale: has shape"));
  OracleCall too_large(c.problem, in);
  static_cast<float*>(too_large.inputs.q_scale.data)[0] = 0x1p21f;
  EXPECT_THAT(too_large.error(), HasSubstr("inputs.q_scale: has 2097152, expected numbers from "));
  OracleCall for_nothing(c.problem, in);
  for_nothing.inputs.q.dtype = ATTEST_BF16;
  EXPECT_THAT(for_nothing.error(), HasSubstr("inputs.q_scale: is given, but inputs.q is not of 8"));
}

}  // namespace
}  // namespace attest
