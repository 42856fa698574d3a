// What a probe tells of kernels that are odd (plugins/odd.cpp): of a wrong LSE, of crashes and
// hangs, of outputs that nobody writes, of narrow ones. Nothing wrong, and what their O tells all
// the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "harness/probe/declaration.h"
#include "harness/probe/probe.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

Testee odd(const std::string& kernel) {
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  return find_testees({std::string(ODD) + ":odd/" + kernel}, installation, {}, {}).at(0);
}

Probed probed(const std::string& kernel) {
  const Testee testee = odd(kernel);
  Limits limits;
  limits.call_seconds = 1;
  WorkerExecutor executor(worker_options(testee, limits, {}));
  return probe(testee, executor, {.formats = {DType::f32}});
}

const Answer& answer_of(const Probed& probed, const std::string& key) {
  for (const Answer& answer : probed.answers) {
    if (answer.key == key) return answer;
  }
  static const Answer kNone = untold("", "no such key");
  return kNone;
}

// What is told of the kernel without an oddity.
const Probed& ordinary() {
  static const Probed kOrdinary = probed("none");
  return kOrdinary;
}

bool is_lse(const std::string& key) {
  return key.ends_with("lse") || key.starts_with("lse.") || key == "features.lse";
}

// All that is told of it is told of the ordinary one; returns what is told of that one alone.
std::vector<std::string> told_less(const Probed& probed, const std::string& kernel) {
  std::vector<std::string> less;
  for (const Answer& answer : ordinary().answers) {
    const Answer& odd = answer_of(probed, answer.key);
    if (odd.told()) {
      EXPECT_TRUE(odd.value == answer.value || is_lse(answer.key))
          << kernel << ": " << answer.key << " is told as " << odd.value << ": " << odd.words;
    } else if (answer.told() && !is_lse(answer.key)) {
      less.push_back(answer.key);
    }
  }
  return less;
}

// Of what is no LSE it is said what it is; all else that is told by O is told.
TEST(OddProbeTest, NamesWhatIsNoLseAndTellsTheRest) {
  const std::map<std::string, const char*> kernels = {
      {"lse_in_base_10", "LSE is in base 10"},
      {"lse_plus", "LSE is off by 0.001"},
      {"lse_nan", "LSE is NaN"},
      {"lse_negated", "LSE is with the other sign"},
      {"lse_sum_of_exp", "LSE is the sum of exp(s)"},
      {"lse_number", "LSE is always 7"},
      {"lse_of_small_scores", "LSE is something else"},
      {"lse_of_16_rows", "LSE is something else at"},
      {"lse_absent", "it takes no problem whose LSE is asked for"}};
  const std::vector<std::string> by_lse = {"place of the softcap",
                                           "arithmetic.f32.products.qk.accumulator",
                                           "arithmetic.f32.products.qk.truncates",
                                           "arithmetic.f32.products.qk.operands",
                                           "arithmetic.f32.softmax",
                                           "arithmetic.f32.scores",
                                           "arithmetic.f32.exp_zero",
                                           "arithmetic.f32.exp_ulp"};
  for (const auto& [kernel, words] : kernels) {
    const Probed seen = probed(kernel);
    EXPECT_EQ(answer_of(seen, "features.lse").value, false) << kernel;
    EXPECT_THAT(answer_of(seen, "features.lse").words, HasSubstr(words)) << kernel;
    EXPECT_THAT(told_less(seen, kernel), testing::UnorderedElementsAreArray(by_lse)) << kernel;
  }
}

TEST(OddProbeTest, TellsOfACrashWhereItWasAndGoesOn) {
  const Probed seen = probed("crashes_on_softcap");
  EXPECT_EQ(seen.answers.front().key, "calls that crashed");
  EXPECT_THAT(seen.answers.front().inputs, HasSubstr("softcap"));
  EXPECT_FALSE(answer_of(seen, "features.softcap").told());
  EXPECT_THAT(answer_of(seen, "features.softcap").words,
              AllOf(HasSubstr("it crashed at f32 b1"), HasSubstr("softcap=2")));
  EXPECT_THAT(told_less(seen, "crashes_on_softcap"),
              testing::UnorderedElementsAre("features.softcap", "place of the softcap"));
  // What is not told is not declared.
  std::vector<std::string> left_out;
  const Description told =
      parse_description(declaration_of(odd("crashes_on_softcap"), seen, left_out));
  EXPECT_FALSE(told.has("softcap"));
}

TEST(OddProbeTest, TellsNoLimitWhereItCrashed) {
  const Probed seen = probed("crashes_on_100_keys");
  EXPECT_THAT(told_less(seen, "crashes_on_100_keys"),
              testing::UnorderedElementsAre("limits.key_len", "limits.backward.key_len"));
  EXPECT_THAT(answer_of(seen, "limits.key_len").words, HasSubstr("it crashed at f32 b1"));
}

TEST(OddProbeTest, TellsOfACallThatDoesNotComeBack) {
  const Probed seen = probed("hangs_on_sinks");
  EXPECT_EQ(seen.answers.front().key, "calls that did not come back");
  EXPECT_THAT(answer_of(seen, "features.sink").words, HasSubstr("it did not come back at"));
  EXPECT_THAT(told_less(seen, "hangs_on_sinks"), testing::ElementsAre("features.sink"));
}

TEST(OddProbeTest, BelievesNoOneCallThatThereIsOneThread) {
  const Probed seen = probed("seldom_two_threads");
  EXPECT_EQ(answer_of(seen, "threads").value, true) << answer_of(seen, "threads").words;
}

TEST(OddProbeTest, TellsFirstThatNothingIsWritten) {
  const Probed seen = probed("writes_nothing");
  EXPECT_EQ(seen.answers.front().key, "calls that left outputs unwritten");
  EXPECT_THAT(seen.answers.front().words, HasSubstr("O[0,0,0,0]"));
  for (const char* promise : {"deterministic", "thread_invariant", "batch_invariant"}) {
    const Answer& answer = answer_of(seen, std::string("arithmetic.f32.") + promise);
    EXPECT_FALSE(answer.told()) << promise;
    EXPECT_THAT(answer.words, HasSubstr("it left outputs as they were"));
  }
  for (const Answer& answer : seen.answers) {
    const bool is_true = answer.told() && answer.value == true && answer.is_key;
    EXPECT_FALSE(is_true && answer.key != "features.zero-sizes") << answer.key;
  }
}

// Some of it: what is smaller tells all the same.
TEST(OddProbeTest, TellsWhereRowsAreLeftUnwritten) {
  const Probed seen = probed("writes_128_rows");
  EXPECT_EQ(seen.answers.front().key, "calls that left outputs unwritten");
  EXPECT_FALSE(answer_of(seen, "limits.query_len").told());
  EXPECT_FALSE(answer_of(seen, "arithmetic.f32.deterministic").told());
  EXPECT_EQ(answer_of(seen, "features.causal").value, true);
  told_less(seen, "writes_128_rows");
}

TEST(OddProbeTest, SaysWhyNothingIsTaken) {
  try {
    probed("refuses");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no device was found"),
                                    HasSubstr("it printed: odd: the driver is too old")));
  }
}

TEST(OddProbeTest, AsksUnderTheCornerThatWasFound) {
  const Probed seen = probed("bottom_right");
  EXPECT_EQ(answer_of(seen, "causal top_left").value, "bottom_right");
  EXPECT_EQ(answer_of(seen, "NaN behind a mask").value, "stays hidden");
}

// By masks, as it takes no lengths.
TEST(OddProbeTest, FindsARowWithoutKeysByWhatIsTaken) {
  const Probed seen = probed("top_left_and_no_lengths");
  EXPECT_EQ(answer_of(seen, "empty_rows.o").value, 0.0);
  EXPECT_EQ(answer_of(seen, "empty_rows.lse").value, "-inf");
  EXPECT_THAT(answer_of(seen, "empty_rows.o").inputs, HasSubstr("window"));
  // Who looks at no mask and no length has no such row.
  const Probed blind = probed("sees_all");
  EXPECT_FALSE(answer_of(blind, "empty_rows.o").told());
  EXPECT_FALSE(answer_of(blind, "window.said_by").told());
  EXPECT_FALSE(answer_of(blind, "NaN behind a mask").told());
}

// Whoever does not take the lengths of the plain problem is asked with others; and lengths that are
// no range are none.
TEST(OddProbeTest, TellsShapesByLengthsThatAreTaken) {
  const Probed seen = probed("no_16_rows");
  EXPECT_EQ(answer_of(seen, "limits.square").value, false);
  EXPECT_EQ(answer_of(seen, "limits.keys_at_least_queries").value, false);
  EXPECT_EQ(answer_of(seen, "limits.batch").value, "none");
  EXPECT_FALSE(answer_of(seen, "limits.query_len").told());
  EXPECT_THAT(answer_of(seen, "limits.query_len").words, HasSubstr("not taken: 16, 17"));
}

// A length alone: it is the other's limit that the other has.
TEST(OddProbeTest, HoldsALengthAgainstItselfAlone) {
  const json by_8_of_256 = {{"multiple", 8}, {"max", 256}}, of_256 = {{"max", 256}},
             by_8_of_512 = {{"multiple", 8}, {"max", 512}}, of_512 = {{"max", 512}};
  const struct {
    const char* kernel;
    json query_len, key_len;
    bool as_many;
    Lengths taken;
  } kKernels[] = {{"none", of_256, of_512, false, {1, 1}},
                  {"queries_by_8", by_8_of_256, of_512, false, {8, 3}},
                  {"keys_by_8", of_256, by_8_of_512, false, {19, 8}},
                  {"as_many_keys_by_8", of_256, by_8_of_512, true, {3, 8}},
                  {"heads_in_pairs", of_256, of_512, false, {1, 1}}};
  for (const auto& each : kKernels) {
    const Probed seen = std::string(each.kernel) == "none" ? ordinary() : probed(each.kernel);
    EXPECT_EQ(answer_of(seen, "limits.query_len").value, each.query_len) << each.kernel;
    EXPECT_EQ(answer_of(seen, "limits.key_len").value, each.key_len) << each.kernel;
    EXPECT_EQ(answer_of(seen, "limits.square").value, false) << each.kernel;
    EXPECT_EQ(answer_of(seen, "limits.keys_at_least_queries").value, each.as_many) << each.kernel;
    for (const char* term : {"batch", "query_heads", "group"}) {
      EXPECT_EQ(answer_of(seen, std::string("limits.") + term).value, "none")
          << each.kernel << ": " << term;
    }
    std::vector<std::string> left_out;
    const Description told = parse_description(declaration_of(odd(each.kernel), seen, left_out));
    Problem problem = {.dtype = DType::f32, .query_len = each.taken.query};
    problem.key_len = each.taken.key;
    EXPECT_FALSE(exclusion(problem, told)) << each.kernel;
  }
}

TEST(OddProbeTest, TellsNoLimitOfWhatItHasNot) {
  const Probed seen = probed("no_pages");
  EXPECT_EQ(answer_of(seen, "features.paged").value, false);
  EXPECT_FALSE(answer_of(seen, "limits.page_size").told());
  EXPECT_FALSE(answer_of(seen, "limits.page_size").is_key);
}

// What LSE of such scores would tell of exp is not told; nor is it declared.
TEST(OddProbeTest, TellsScoresThatAreStoredInFewerDigits) {
  const std::map<std::string, json> kernels = {
      {"none", "f32"}, {"scores_f16", "f16"}, {"scores_bf16", "bf16"}, {"scores_tf32", nullptr}};
  for (const auto& [kernel, scores] : kernels) {
    const Probed seen = kernel == "none" ? ordinary() : probed(kernel);
    EXPECT_EQ(answer_of(seen, "arithmetic.f32.scores").value, scores) << kernel;
    const json accumulator = answer_of(seen, "arithmetic.f32.products.qk.accumulator").value;
    EXPECT_TRUE(accumulator.is_null() || accumulator == "f64") << kernel << accumulator;
    std::vector<std::string> left_out;
    parse_description(declaration_of(odd(kernel), seen, left_out));
    EXPECT_EQ(testing::Matches(testing::Contains(HasSubstr("f32.scores")))(left_out),
              scores == "f16" || scores == "bf16")
        << kernel;
    if (kernel == "none") continue;
    for (const char* key : {"exp_ulp", "max_rounding", "tanh_ulp", "p"}) {
      EXPECT_FALSE(answer_of(seen, std::string("arithmetic.f32.") + key).told())
          << kernel << ": " << key;
    }
  }
}

// As many digits as tf32 has f16, and another range; and one operand may be rounded without the
// other.
TEST(OddProbeTest, TellsNoOperandByItsDigitsAlone) {
  const struct {
    const char *kernel, *product;
    json operands;
  } kKernels[] = {{"q_and_k_f16", "qk", nullptr},
                  {"q_and_k_tf32", "qk", "tf32"},
                  {"k_bf16", "qk", nullptr},
                  {"v_f16", "pv", nullptr}};
  for (const auto& each : kKernels) {
    const Probed seen = probed(each.kernel);
    const std::string product = std::string("arithmetic.f32.products.") + each.product;
    EXPECT_EQ(answer_of(seen, product + ".operands").value, each.operands) << each.kernel;
    const json accumulator = answer_of(seen, product + ".accumulator").value;
    EXPECT_TRUE(accumulator.is_null() || accumulator == "f64") << each.kernel << accumulator;
    for (const char* key : {"subnormal_inputs", "subnormal_outputs"}) {
      EXPECT_NE(answer_of(seen, std::string("arithmetic.f32.") + key).value, "flushed")
          << each.kernel << ": " << key;
    }
  }
}

TEST(OddProbeTest, BlamesNobodyForWhatIsNotRepeatable) {
  const Probed seen = probed("off_every_7th_call");
  EXPECT_EQ(answer_of(seen, "arithmetic.f32.deterministic").value, false);
  for (const char* key : {"thread_invariant", "batch_invariant"}) {
    const Answer& answer = answer_of(seen, std::string("arithmetic.f32.") + key);
    EXPECT_FALSE(answer.told()) << key;
    EXPECT_THAT(answer.words, HasSubstr("O has other bits in equal calls"));
  }
}

// No number stands for what was not seen, and nothing is declared as "declared".
TEST(OddProbeTest, TellsNothingTakenThatIsNotLookedAt) {
  const Probed seen = probed("blind");
  for (const char* feature :
       {"causal", "window", "dense-mask", "prefix", "segments", "block-sparse", "dilated",
        "mask-and", "mask-or", "lengths", "softcap", "bias", "dbias", "alibi", "sink", "dlse",
        "dropout", "dropout-generated", "zero-sizes"}) {
    const Answer& answer = answer_of(seen, fmt::format("features.{}", feature));
    EXPECT_EQ(answer.value, false) << feature << ": " << answer.words << ": " << answer.inputs;
  }
  for (const char* key : {"window.said_by", "window.left", "window.right", "window.unbounded",
                          "keep_quantum", "limits.bias_axes", "limits.lengths"}) {
    EXPECT_FALSE(answer_of(seen, key).told()) << key << ": " << answer_of(seen, key).value;
  }
  EXPECT_EQ(answer_of(seen, "limits.masks").value, "none") << "of those that it looks at";
  for (const Contradiction& each : contradictions(odd("blind").description, seen.answers)) {
    EXPECT_NE(each.key, "window.unbounded");
  }
}

// Who takes K and V in int8 alone is asked so all that numbers by hand do not decide.
TEST(OddProbeTest, AsksWhoeverTakes8BitsAloneIn8Bits) {
  const Probed seen = probed("stored_alone");
  for (const char* feature :
       {"causal", "window", "softcap", "lengths", "stored-kv", "int8", "bfp8"}) {
    const Answer& answer = answer_of(seen, fmt::format("features.{}", feature));
    EXPECT_EQ(answer.value, true) << feature << ": " << answer.words << ": " << answer.inputs;
  }
  EXPECT_EQ(answer_of(seen, "features.backward").value, false);
  EXPECT_EQ(answer_of(seen, "limits.head_dim").value, "none");
  const Answer& arithmetic = answer_of(seen, "arithmetic");
  EXPECT_FALSE(arithmetic.told());
  EXPECT_THAT(arithmetic.words, HasSubstr("in 8 bits alone"));
  EXPECT_TRUE(contradictions(odd("stored_alone").description, seen.answers).empty());
}

TEST(OddProbeTest, SaysInWordsWhatWasNotSeen) {
  const Probed seen = probed("no_windows");
  EXPECT_THAT(answer_of(seen, "window.left").inputs, testing::Not(HasSubstr("-1")));
  for (const Contradiction& each : contradictions(odd("no_windows").description, seen.answers)) {
    EXPECT_NE(each.declared, "declared") << each.key;
  }
}

}  // namespace
}  // namespace attest
