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
  EXPECT_THAT(
      told_less(seen, "crashes_on_100_keys"),
      testing::UnorderedElementsAre("limits.query_len", "limits.key_len",
                                    "limits.backward.query_len", "limits.backward.key_len"));
  EXPECT_THAT(answer_of(seen, "limits.key_len").words, HasSubstr("it crashed at f32 b1"));
}

TEST(OddProbeTest, TellsOfACallThatDoesNotComeBack) {
  const Probed seen = probed("hangs_on_sinks");
  EXPECT_EQ(seen.answers.front().key, "calls that did not come back");
  EXPECT_THAT(answer_of(seen, "features.sink").words, HasSubstr("it did not come back at"));
  EXPECT_THAT(told_less(seen, "hangs_on_sinks"), testing::ElementsAre("features.sink"));
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

TEST(OddProbeTest, TellsNoSquareWhereNothingIsTaken) {
  const Probed seen = probed("no_16_rows");
  EXPECT_FALSE(answer_of(seen, "limits.square").told());
  EXPECT_FALSE(answer_of(seen, "limits.keys_at_least_queries").told());
}

// No number stands for what was not seen, and nothing is declared as "declared".
TEST(OddProbeTest, TellsNothingTakenThatIsNotLookedAt) {
  const Probed seen = probed("blind");
  for (const char* feature :
       {"causal", "window", "dense-mask", "prefix", "segments", "block-sparse", "dilated",
        "mask-and", "mask-or", "lengths", "softcap", "bias", "dbias", "alibi", "sink", "dropout",
        "dropout-generated", "zero-sizes"}) {
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

TEST(OddProbeTest, SaysInWordsWhatWasNotSeen) {
  const Probed seen = probed("no_windows");
  EXPECT_THAT(answer_of(seen, "window.left").inputs, testing::Not(HasSubstr("-1")));
  for (const Contradiction& each : contradictions(odd("no_windows").description, seen.answers)) {
    EXPECT_NE(each.declared, "declared") << each.key;
  }
}

}  // namespace
}  // namespace attest
