// How wrong kernels are caught, judged through the worker as a vendor's would be: for the right
// reason, by a case of a clause that they break; and the run goes on to its end. That every one of
// the catalogue is caught at all, `attest selfcheck` shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "harness/run/run.h"

namespace attest {
namespace {

struct Expectation {
  const char* mutant;
  Outcome outcome;
  const char* reason;
  const char* clause;  // cited by a verdict that catches it
};

void PrintTo(const Expectation& expectation, std::ostream* out) { *out << expectation.mutant; }

std::vector<Case> cases_of(Tier tier, const std::vector<DType>& dtypes) {
  std::vector<Case> chosen;
  for (Case& c : load_cases(CASES)) {
    const bool wanted = std::find(dtypes.begin(), dtypes.end(), c.problem.dtype) != dtypes.end();
    if (c.tier <= tier && wanted) chosen.push_back(std::move(c));
  }
  return chosen;
}

// Whose reach is all that most faults need.
const std::vector<Case>& smoke_cases() {
  static const auto kCases = cases_of(Tier::smoke, {DType::f32, DType::bf16});
  return kCases;
}

// Few cases do for a fault that shows in every call.
std::vector<Case> first_cases(std::size_t count) {
  std::vector<Case> chosen;
  for (const Case& c : smoke_cases()) {
    const Problem& p = c.problem;
    const bool ordinary = element_count(p.o_shape()) > 0 && p.key_len > 1 && p.head_dim > 1;
    if (ordinary && chosen.size() < count) chosen.push_back(c);
  }
  return chosen;
}

// Stops before the end once a verdict is `enough`.
Record judge_mutants(
    const std::vector<std::string>& mutants, const std::vector<Case>& cases, const Limits& limits,
    const std::function<bool(const Verdict&)>& enough = [](const Verdict&) { return false; }) {
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  std::vector<std::string> names;
  for (const std::string& mutant : mutants) names.push_back(MUTANTS ":mutant/" + mutant);
  const auto testees = find_testees(names, installation, limits, {});
  Header header;
  header.cases.bundled = true;
  for (const Testee& testee : testees) {
    header.testees.push_back(
        {.name = testee.name, .profiles = {"forward-core"}, .dtypes = {"f32", "bf16"}});
  }
  std::ostringstream out;
  std::atomic<bool> stops = false;
  return run(
      cases, testees, header, {.jobs = 2, .limits = limits},
      [&](const Testee& t) {
        return std::make_unique<WorkerExecutor>(worker_options(t, limits, {}));
      },
      out,
      [&](const VerdictRecord& v) {
        if (enough(v.verdict)) stops = true;
      },
      [&] { return stops.load(); });
}

std::string story(const Record& record) {
  std::string text;
  for (const VerdictRecord& v : record.verdicts) {
    if (conforms(v.verdict.outcome)) continue;
    text += v.case_id + ": " + std::string(name(v.verdict.outcome)) + " " + v.verdict.reason + " " +
            v.verdict.message + "\n";
  }
  return text;
}

// A verdict names the clause that is broken first; values that are wrong break all that a case is
// about, so there any may be meant.
bool catches(const Verdict& v, const Expectation& e) {
  const bool values = v.reason != "schedule" && v.reason != "memory";
  const auto end = values || v.clauses.empty() ? v.clauses.end() : v.clauses.begin() + 1;
  return v.outcome == e.outcome && v.reason == e.reason &&
         std::find(v.clauses.begin(), end, e.clause) != end;
}

// ---- Every case can fail ----------------------------------------------------------------------

const std::vector<Case>& standard_cases() {
  static const auto kCases = cases_of(Tier::standard, {DType::f32, DType::f16, DType::bf16});
  return kCases;
}

bool any_key_is_seen(const Problem& p) {
  for (Position at = {}; at.batch < p.batch; ++at.batch) {
    for (at.head = 0; at.head < p.query_heads; ++at.head) {
      for (at.query = 0; at.query < p.query_len; ++at.query) {
        for (at.key = 0; at.key < p.key_len; ++at.key) {
          if (visible(p, at)) return true;
        }
      }
    }
  }
  return false;
}

// The verdicts on one of the kernels that are tried on all standard cases at once, because what is
// expected of a case is then computed once; on "zero_gradients" where there are gradients.
std::vector<VerdictRecord> verdicts_of_all(const std::string& mutant) {
  static const auto kVerdicts = [] {
    std::vector<Case> forward, backward;
    for (const Case& c : standard_cases()) (c.problem.backward ? backward : forward).push_back(c);
    auto all = judge_mutants({"none", "zeros"}, forward, {}).verdicts;
    auto more = judge_mutants({"none", "zeros", "zero_gradients"}, backward, {}).verdicts;
    std::move(more.begin(), more.end(), std::back_inserter(all));
    return all;
  }();
  std::vector<VerdictRecord> chosen;
  for (const VerdictRecord& v : kVerdicts) {
    if (v.testee == "mutant/" + mutant) chosen.push_back(v);
  }
  return chosen;
}

// The cases among `cases` that the mutant passes, for a message.
std::string passed_by(const std::string& mutant, const std::vector<Case>& cases) {
  std::set<std::string> ids;
  for (const Case& c : cases) ids.insert(c.id);
  std::string text;
  for (const VerdictRecord& v : verdicts_of_all(mutant)) {
    const Outcome outcome = v.verdict.outcome;  // a warning is all that a recommended clause has
    if (!ids.contains(v.case_id)) continue;
    if (outcome != Outcome::fail && outcome != Outcome::warn) text += v.case_id + "\n";
  }
  return text;
}

TEST(EveryCaseTest, RejectsZeros) {
  std::vector<Case> cases;
  for (const Case& c : standard_cases()) {
    if (element_count(c.problem.lse_shape()) > 0) cases.push_back(c);
  }
  EXPECT_GT(cases.size(), 1000u);
  EXPECT_EQ(passed_by("zeros", cases), "");
}

TEST(EveryCaseTest, RejectsZeroGradientsWhereThereAreAny) {
  std::vector<Case> cases;
  for (const Case& c : standard_cases()) {
    const bool some = c.problem.value_dim > 0 && any_key_is_seen(c.problem);
    if (c.problem.backward && some) cases.push_back(c);
  }
  EXPECT_GT(cases.size(), 100u);
  EXPECT_EQ(passed_by("zero_gradients", cases), "");
}

TEST(EveryCaseTest, IsPassedByTheKernelWithoutAFault) {
  const auto verdicts = verdicts_of_all("none");
  EXPECT_EQ(verdicts.size(), standard_cases().size());
  for (const VerdictRecord& v : verdicts) {
    EXPECT_TRUE(conforms(v.verdict.outcome)) << v.case_id << ": " << v.verdict.message;
  }
}

class WrongKernelTest : public testing::TestWithParam<Expectation> {};

TEST_P(WrongKernelTest, IsCaughtByAClauseItBreaksAndTheRunGoesOn) {
  const Record record = judge_mutants({GetParam().mutant}, smoke_cases(), {});
  EXPECT_TRUE(std::any_of(record.verdicts.begin(), record.verdicts.end(),
                          [](const VerdictRecord& v) { return catches(v.verdict, GetParam()); }))
      << story(record);
  ASSERT_TRUE(record.footer);
  EXPECT_EQ(record.verdicts.size(), smoke_cases().size());
  EXPECT_EQ(record.footer->exit_code, GetParam().outcome == Outcome::warn ? 0 : 1);
}

INSTANTIATE_TEST_SUITE_P(
    AllWrongValues, WrongKernelTest,
    testing::Values(Expectation{"top_left", Outcome::fail, "bound", "MASK-3"},
                    Expectation{"scale_squared", Outcome::fail, "bound", "SCORE-1"},
                    Expectation{"last_key_dropped", Outcome::fail, "bound", "MASK-1"},
                    Expectation{"dk_misses_head", Outcome::fail, "bound", "HEAD-2"},
                    Expectation{"lse_base_2", Outcome::fail, "bound", "LSE-1"},
                    Expectation{"window_exclusive", Outcome::fail, "bound", "MASK-4"},
                    Expectation{"ignores_lengths", Outcome::fail, "bound", "MASK-5"},
                    Expectation{"heads_interleaved", Outcome::fail, "bound", "HEAD-1"},
                    Expectation{"empty_row_nan", Outcome::fail, "nonfinite", "EMPTY-1"},
                    Expectation{"ignores_strides", Outcome::fail, "bound", "LAYOUT-2"},
                    Expectation{"d_term_missing", Outcome::fail, "bound", "GRAD-1"},
                    Expectation{"dense_inverted", Outcome::fail, "bound", "MASK-7"},
                    Expectation{"fma_exp", Outcome::warn, "bound", "SOFTMAX-3"},
                    Expectation{"leaks_hidden", Outcome::fail, "nonfinite", "HIDE-2"},
                    Expectation{"unwritten_row", Outcome::fail, "unwritten", "SAFE-3"},
                    Expectation{"writes_past_end", Outcome::fail, "guard", "SAFE-1"},
                    Expectation{"writes_before_start", Outcome::fail, "guard", "SAFE-1"},
                    Expectation{"reads_past_end", Outcome::fail, "guard", "SAFE-1"},
                    Expectation{"writes_input", Outcome::fail, "input_mutated", "SAFE-2"},
                    Expectation{"remaps_input", Outcome::fail, "input_mutated", "SAFE-2"},
                    Expectation{"refuses", Outcome::fail, "wrong_refusal", "CALL-1"},
                    Expectation{"refuses_silently", Outcome::fail, "wrong_refusal", "CALL-1"},
                    Expectation{"bad_status", Outcome::fail, "wrong_refusal", "CALL-1"},
                    Expectation{"random", Outcome::fail, "nondeterministic", "DET-1"}));

// ---- Features ---------------------------------------------------------------------------------

// The standard cases, in f32, that try a clause.
std::vector<Case> cases_about(const std::string& clause) {
  std::vector<Case> chosen;
  for (const Case& c : standard_cases()) {
    if (c.problem.dtype != DType::f32) continue;
    if (std::find(c.clauses.begin(), c.clauses.end(), clause) != c.clauses.end()) {
      chosen.push_back(c);
    }
  }
  return chosen;
}

class WrongFeatureTest : public testing::TestWithParam<Expectation> {};

TEST_P(WrongFeatureTest, IsCaughtByACaseOfItsClause) {
  // Not by the record, which ends before the first case that was broken off.
  std::atomic<bool> caught = false;
  const auto catching = [&](const Verdict& v) {
    if (catches(v, GetParam())) caught = true;
    return caught.load();
  };
  const Record record =
      judge_mutants({GetParam().mutant}, cases_about(GetParam().clause), {}, catching);
  EXPECT_TRUE(caught) << story(record);
}

INSTANTIATE_TEST_SUITE_P(
    AllFeatures, WrongFeatureTest,
    testing::Values(Expectation{"cap_after_mask", Outcome::fail, "bound", "SCORE-2"},
                    Expectation{"cap_slope_missing", Outcome::fail, "bound", "GRAD-6"},
                    Expectation{"bias_scaled", Outcome::fail, "bound", "SCORE-3"},
                    Expectation{"bias_axis_misread", Outcome::fail, "bound", "SCORE-3"},
                    Expectation{"bias_minus_10000", Outcome::fail, "bound", "MASK-14"},
                    Expectation{"dbias_not_summed", Outcome::fail, "bound", "GRAD-4"},
                    Expectation{"alibi_sign", Outcome::fail, "bound", "SCORE-4"},
                    Expectation{"alibi_top_left", Outcome::fail, "bound", "SCORE-4"},
                    Expectation{"sink_raw", Outcome::fail, "bound", "SINK-1"},
                    Expectation{"sink_scaled", Outcome::fail, "bound", "SINK-1"},
                    Expectation{"sink_per_split", Outcome::fail, "bound", "SINK-1"},
                    Expectation{"sink_row_empty", Outcome::fail, "nonfinite", "EMPTY-4"},
                    Expectation{"dsink_sign", Outcome::fail, "bound", "SINK-2"},
                    Expectation{"lse_without_sink", Outcome::fail, "bound", "LSE-1"},
                    Expectation{"dlse_dropped", Outcome::fail, "bound", "GRAD-5"},
                    Expectation{"keep_of_other_head", Outcome::fail, "bound", "DROP-1"},
                    Expectation{"dropout_realised_rate", Outcome::fail, "bound", "DROP-1"},
                    Expectation{"dropout_before_softmax", Outcome::fail, "bound", "DROP-1"},
                    Expectation{"other_keep_backward", Outcome::fail, "bound", "DROP-2"},
                    Expectation{"keeps_too_often", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"seed_ignored", Outcome::fail, "property:seed", "DROP-3"},
                    Expectation{"keeps_visible", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"same_bits_per_head", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"same_bits_per_batch", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"offset_ignored", Outcome::fail, "property:offset", "DROP-3"},
                    Expectation{"seed_halved", Outcome::fail, "property:seed", "DROP-3"},
                    Expectation{"columns_repeat", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"neighbours_drop", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"heads_shifted", Outcome::fail, "statistical", "DROP-3"},
                    Expectation{"prefix_inclusive", Outcome::fail, "bound", "MASK-10"},
                    Expectation{"segment_boundary", Outcome::fail, "bound", "MASK-11"},
                    Expectation{"negative_segments", Outcome::fail, "bound", "MASK-11"},
                    Expectation{"blocks_exchanged", Outcome::fail, "bound", "MASK-12"},
                    Expectation{"dilation_unsigned", Outcome::fail, "bound", "MASK-13"},
                    Expectation{"union_as_intersection", Outcome::fail, "bound", "MASK-9"},
                    Expectation{"packed_off_by_one", Outcome::fail, "bound", "LAYOUT-5"},
                    Expectation{"next_page", Outcome::fail, "bound", "PAGE-1"},
                    Expectation{"page_tail", Outcome::fail, "nonfinite", "PAGE-2"},
                    Expectation{"leaks_masked_nan", Outcome::warn, "nonfinite", "HIDE-3"},
                    Expectation{"nan_query_spreads", Outcome::fail, "nonfinite", "FINITE-1"},
                    Expectation{"nan_query_times_0", Outcome::warn, "nonfinite", "FINITE-3"},
                    Expectation{"nan_scores_left_out", Outcome::warn, "swallowed", "FINITE-4"},
                    Expectation{"nan_values_as_0", Outcome::warn, "swallowed", "FINITE-4"},
                    Expectation{"nan_dsink_spreads", Outcome::fail, "nonfinite", "SINK-2"},
                    Expectation{"batch_variant", Outcome::fail, "nondeterministic", "DET-2"},
                    Expectation{"thread_variant", Outcome::fail, "nondeterministic", "DET-3"},
                    Expectation{"threads_of_its_own", Outcome::fail, "threads", "CALL-2"},
                    Expectation{"stirred_by_hidden", Outcome::fail, "property:hidden_keys",
                                "HIDE-1"},
                    Expectation{"small_scales", Outcome::fail, "property:rescaled_query", "LAW-5"},
                    Expectation{"misses_block", Outcome::fail, "schedule", "SCHED-1"},
                    Expectation{"misses_backward_block", Outcome::fail, "schedule", "SCHED-1"},
                    Expectation{"doubles_block", Outcome::fail, "schedule", "SCHED-1"},
                    Expectation{"visits_masked_block", Outcome::fail, "schedule", "SCHED-1"},
                    Expectation{"masks_full_block", Outcome::fail, "schedule", "SCHED-2"},
                    Expectation{"leaves_block_unmasked", Outcome::fail, "schedule", "SCHED-2"},
                    Expectation{"imbalanced", Outcome::fail, "schedule", "SCHED-3"},
                    Expectation{"idle_workers", Outcome::fail, "schedule", "SCHED-3"},
                    Expectation{"default_stream", Outcome::fail, "unwritten", "DEV-1"},
                    Expectation{"scratch_of_all_streams", Outcome::fail, "nonfinite", "DEV-2"},
                    Expectation{"inputs_of_the_capture", Outcome::fail, "nonfinite", "DEV-3"},
                    Expectation{"grid_of_the_call_before", Outcome::fail, "bound", "DEV-4"},
                    Expectation{"plan_without_strides", Outcome::fail, "bound", "DEV-4"}));

// A wrong page leads a kernel far away.
INSTANTIATE_TEST_SUITE_P(
    AllTensorsTakenForDense, WrongFeatureTest,
    testing::Values(Expectation{"dense_lengths", Outcome::fail, "bound", "MASK-5"},
                    Expectation{"dense_starts", Outcome::fail, "nonfinite", "LAYOUT-5"},
                    Expectation{"dense_page_table", Outcome::crash, "", "PAGE-1"},
                    Expectation{"dense_mask_table", Outcome::fail, "bound", "MASK-7"},
                    Expectation{"dense_prefix", Outcome::fail, "bound", "MASK-10"},
                    Expectation{"dense_segments", Outcome::fail, "bound", "MASK-11"},
                    Expectation{"dense_blocks", Outcome::fail, "bound", "MASK-12"},
                    Expectation{"dense_slopes", Outcome::fail, "bound", "SCORE-4"},
                    Expectation{"dense_sink", Outcome::fail, "bound", "SINK-1"},
                    Expectation{"dense_keep", Outcome::fail, "bound", "DROP-1"},
                    Expectation{"dense_drawn_keep", Outcome::fail, "guard", "DROP-3"},
                    Expectation{"dense_dlse", Outcome::fail, "bound", "GRAD-5"},
                    Expectation{"dense_dbias", Outcome::fail, "guard", "GRAD-4"},
                    Expectation{"dense_dsink", Outcome::fail, "guard", "SINK-2"}));

#ifndef ATTEST_SANITIZED
INSTANTIATE_TEST_SUITE_P(
    AllPromisesOfMemory, WrongFeatureTest,
    testing::Values(Expectation{"asks_for_more", Outcome::fail, "memory", "MEM-1"},
                    Expectation{"keeps_scores", Outcome::fail, "memory", "MEM-1"},
                    Expectation{"grows", Outcome::fail, "memory", "MEM-2"}));
#endif

class RudeKernelTest : public testing::TestWithParam<Expectation> {};

TEST_P(RudeKernelTest, HasOneVerdictForEveryCase) {
  const auto cases = first_cases(3);
  ASSERT_EQ(cases.size(), 3u);
  // Long enough for a busy machine, where nothing hangs.
  const double seconds = GetParam().outcome == Outcome::timeout ? 1 : 60;
  const Record record =
      judge_mutants({GetParam().mutant}, cases,
                    {.call_seconds = seconds, .memory_bytes = std::size_t(256) << 20});
  ASSERT_EQ(record.verdicts.size(), 3u);
  for (const VerdictRecord& v : record.verdicts) {
    EXPECT_EQ(v.verdict.outcome, GetParam().outcome) << v.verdict.message;
    EXPECT_EQ(v.verdict.reason, GetParam().reason) << v.verdict.message;
    EXPECT_LE(v.verdict.captured.size(), std::size_t(64) << 10);
  }
}

INSTANTIATE_TEST_SUITE_P(AllRudeness, RudeKernelTest,
                         testing::Values(Expectation{"crash", Outcome::crash, "", "SAFE-4"},
                                         Expectation{"abort", Outcome::crash, "", "SAFE-4"},
                                         Expectation{"exit_zero", Outcome::crash, "", "SAFE-4"},
                                         Expectation{"hang", Outcome::timeout, "", "SAFE-4"},
                                         Expectation{"hoards", Outcome::fail, "memory", ""},
                                         Expectation{"flood", Outcome::pass, "", ""},
                                         Expectation{"leaves_child", Outcome::pass, "", ""}));

}  // namespace
}  // namespace attest
