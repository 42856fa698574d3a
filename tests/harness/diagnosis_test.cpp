// Did you mean, on results that are made of a mistake's own values: so it is known what is meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "cases/entry.h"
#include "harness/diagnosis/altered.h"
#include "harness/diagnosis/diagnose.h"
#include "harness/diagnosis/likeness.h"
#include "harness/diagnosis/mistake.h"
#include "harness/diagnosis/setting.h"
#include "harness/diagnosis/smaller.h"
#include "reference/exact.h"
#include "spec/clause.h"
#include "spec/diagnosis.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "tests/harness/asked_tensors.h"

namespace attest {
namespace {

const auto kNever = [] { return false; };

// A case with what else its problem has.
Case a_case(nlohmann::json more = nlohmann::json::object()) {
  nlohmann::json problem = {{"query_heads", 4}, {"key_heads", 2}, {"query_len", 9},
                            {"key_len", 13},    {"head_dim", 8},  {"mask", "causal bottom_right"}};
  problem.update(more);
  return read_entry({{"name", "a"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem", problem},
                     {"data", {"normal"}},
                     {"dtypes", {"f32"}},
                     {"bits", "diagnosis"}},
                    "diagnosis");
}

const Mistake& named(const std::string& name) {
  for (const Mistake& each : mistakes()) {
    if (each.name == name) return each;
  }
  throw std::out_of_range(name);
}

// What a kernel returns that computes `expected`, of all that a problem asks for.
Trial trial_of(const Problem& p, const PassesExpected& expected) {
  Trial trial = asked_tensors(p);
  for (Returned& tensor : trial.returned) {
    for (const double value : expected[tensor.name].value) {
      tensor.bits.push_back(encode(tensor.dtype, value));
    }
  }
  return trial;
}

// What a kernel returns that computes the setting.
Trial trial_of(const Setting& setting) {
  return trial_of(setting.problem, expect_altered(setting, loosest(DType::f32)));
}

std::vector<std::string> names_of(const Trial& trial) {
  PreparedCase prepared(a_case(), 1);
  std::vector<std::string> names;
  const auto said = alike(prepared, {}, loosest(DType::f32), trial, kNever);
  if (!said) return {};
  for (const Likeness& each : said->explaining) names.push_back(each.name);
  return names;
}

Setting the_case(nlohmann::json more = nlohmann::json::object()) {
  const PreparedCase prepared(a_case(std::move(more)), 1);
  return {prepared.problem(), prepared.inputs()};
}

TEST(DiagnosisTest, NamesWhatAMistakeGives) {
  for (const char* name : {"no scale", "a diagonal at the top left", "the diagonal one further",
                           "no mask", "V of the next key", "key head h mod Hkv for query head h",
                           "the weights of the query head before"}) {
    Setting setting = the_case();
    ASSERT_TRUE(named(name).alter(setting)) << name;
    EXPECT_THAT(names_of(trial_of(setting)), testing::Contains(name)) << name;
  }
}

// Each by what released kernels compute.
TEST(DiagnosisTest, NamesWhatAMistakeGivesWhereItBites) {
  const nlohmann::json capped = {{"softcap", 1}, {"bias", {{"kind", "normal"}}}};
  for (const auto& [name, more] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"no diagonal for the last query", {{"mask", "causal top_left"}}},
           {"the softcap after bias, ALiBi and mask", capped},
           {"keys that fill up a tile of 64, at scores of -softcap",
            {{"softcap", 1}, {"mask", "full"}}},
           {"dV of rows that see no key, from all keys alike",
            {{"backward", true}, {"mask", "causal bottom_right offset=-7"}}}}) {
    PreparedCase prepared(a_case(more), 1);
    Setting setting = {prepared.problem(), prepared.inputs()};
    Trial trial = trial_of(setting);
    ASSERT_TRUE(named(name).alter(setting)) << name;
    const Trial other = trial_of(setting);
    const auto& only = named(name).only;
    for (std::size_t t = 0; t < trial.returned.size(); ++t) {
      const TensorName tensor = trial.returned[t].name;
      const bool errs = only.empty() || std::find(only.begin(), only.end(), tensor) != only.end();
      const auto same = std::find_if(other.returned.begin(), other.returned.end(),
                                     [&](const Returned& each) { return each.name == tensor; });
      if (errs) trial.returned[t] = *same;
    }
    const auto said = alike(prepared, {}, loosest(DType::f32), trial, kNever);
    ASSERT_TRUE(said) << name;
    EXPECT_THAT(said->explaining, testing::Contains(testing::Field(&Likeness::name, name)));
  }
}

TEST(DiagnosisTest, MistakeHasTheClauseThatItBreaksWhereItBites) {
  struct Place {
    std::string mistake;
    nlohmann::json problem;
    std::string clause;
  };
  const nlohmann::json dropped = {{"dropout", {{"mode", "given"}, {"probability", 0.5}}}};
  nlohmann::json backward = dropped;
  backward["backward"] = true;
  for (const auto& [mistake, problem, clause] : std::vector<Place>{
           {"no scale", {{"scale", 0.7}}, "SCORE-1"},
           {"no scale", {{"scale", -0.7}}, "SCORE-5"},
           {"no dropout", dropped, "DROP-1"},
           {"no dropout", backward, "DROP-2"},
           {"key head h mod Hkv for query head h", {{"backward", true}}, "HEAD-2"}}) {
    PreparedCase prepared(a_case(problem), 1);
    Setting setting = {prepared.problem(), prepared.inputs()};
    Trial trial = trial_of(setting);
    ASSERT_TRUE(named(mistake).alter(setting)) << mistake;
    const Trial other = trial_of(setting);
    for (std::size_t t = 0; t < trial.returned.size(); ++t) {
      const bool errs = is_gradient(trial.returned[t].name) == prepared.problem().backward;
      if (errs) trial.returned[t] = other.returned[t];
    }
    const auto said = alike(prepared, {}, loosest(DType::f32), trial, kNever);
    ASSERT_TRUE(said) << mistake;
    EXPECT_THAT(said->explaining,
                testing::Contains(testing::AllOf(testing::Field(&Likeness::name, mistake),
                                                 testing::Field(&Likeness::clause, clause))))
        << mistake;
  }
}

TEST(DiagnosisTest, NamesNothingWhereNothingIsWrong) {
  EXPECT_THAT(names_of(trial_of(the_case())), testing::IsEmpty());
}

TEST(DiagnosisTest, NamesNothingThatIsNoMistake) {
  Setting setting = the_case();
  ASSERT_TRUE(named("no scale").alter(setting));
  Trial trial = trial_of(setting);
  // One element that no mistake explains.
  trial.returned[0].bits[5] = encode(DType::f32, 7);
  EXPECT_THAT(names_of(trial), testing::IsEmpty());
}

TEST(DiagnosisTest, TellsOfRowsWhereSomeAreRight) {
  Setting setting = the_case();
  Trial trial = trial_of(setting);
  ASSERT_TRUE(named("no scale").alter(setting));
  const Trial other = trial_of(setting);
  for (std::size_t at = 80; at < 240; ++at) {
    trial.returned[0].bits[at] = other.returned[0].bits[at];
  }
  PreparedCase prepared(a_case(), 1);
  const auto all = sure(alike(prepared, {}, loosest(DType::f32), trial, kNever));
  ASSERT_THAT(all, testing::SizeIs(1));
  EXPECT_FALSE(all[0].whole());
  EXPECT_THAT(headline(all), testing::AllOf(testing::StartsWith("O is exactly what no scale"),
                                            testing::EndsWith("in 20 of 27 rows of 3 of 4 heads")));
}

const nlohmann::json kBackward = {{"backward", true}, {"d_lse", true}};

TEST(DiagnosisTest, TellsOfRowsThatErrThoughGradientsSumOverAll) {
  Setting setting = the_case(kBackward);
  Values& d_lse = setting.inputs.d_lse;
  for (Index h = 1; h < setting.problem.query_heads; ++h) {
    for (Index i = 4; i < setting.problem.query_len; ++i)
      d_lse.at(0, h, i, 0) = d_lse.at(0, 0, i, 0);
  }
  PreparedCase prepared(a_case(kBackward), 1);
  const auto all = sure(alike(prepared, {}, loosest(DType::f32), trial_of(setting), kNever));
  ASSERT_THAT(all, testing::SizeIs(1));
  EXPECT_EQ(all[0].name, "dLSE of the first head");
  EXPECT_THAT(all[0].tensors, testing::ElementsAre(TensorName::dq, TensorName::dk));
  EXPECT_EQ(all[0].rows, 15);
  EXPECT_EQ(all[0].of, 27) << "all but those of the first head";
}

// The case with O of a mistake in these rows alone.
std::string told_of_rows(const std::string& mistake, const std::vector<std::size_t>& rows) {
  Setting setting = the_case();
  Trial trial = trial_of(setting);
  EXPECT_TRUE(named(mistake).alter(setting));
  const Trial other = trial_of(setting);
  for (const std::size_t row : rows) {
    const auto from = other.returned[0].bits.begin() + static_cast<std::ptrdiff_t>(8 * row);
    std::copy(from, from + 8,
              trial.returned[0].bits.begin() + static_cast<std::ptrdiff_t>(8 * row));
  }
  PreparedCase prepared(a_case(), 1);
  return headline(sure(alike(prepared, {}, loosest(DType::f32), trial, kNever)));
}

TEST(DiagnosisTest, PartIsNamedIfItIsHalfOfWhatTheMistakeWouldChange) {
  std::vector<std::size_t> rows;
  for (std::size_t head = 0; head < 4; ++head) {
    for (std::size_t i = 4; i < 8; ++i) rows.push_back(9 * head + i);
  }
  EXPECT_EQ(told_of_rows("no scale", rows), "") << "16 of 36";
  for (std::size_t head = 0; head < 4; ++head) rows.push_back(9 * head);
  EXPECT_THAT(told_of_rows("no scale", rows),
              testing::EndsWith("what no scale (SCORE-1) gives in 20 of 36 rows"));
}

TEST(DiagnosisTest, PartOfWholeHeadsIsNamedHoweverFew) {
  std::vector<std::size_t> rows(9);
  std::iota(rows.begin(), rows.end(), 9);
  EXPECT_THAT(told_of_rows("no scale", rows),
              testing::EndsWith("what no scale (SCORE-1) gives in 1 of 4 heads"));
}

TEST(DiagnosisTest, RowsThatAMistakeLeavesAsTheyAreSayNothing) {
  // The last of each head sees the last key, no other does.
  const std::string mistake = "the last key of each element left out";
  EXPECT_THAT(told_of_rows(mistake, {8, 17}), testing::EndsWith("in 2 of 4 heads"));
  EXPECT_THAT(
      told_of_rows(mistake, {8, 17, 26, 35}),
      testing::AllOf(testing::HasSubstr(mistake), testing::Not(testing::HasSubstr(" rows"))));
}

TEST(DiagnosisTest, KeyThatEveryRowSeesIsNotTheMaskOfAnotherRow) {
  // Rows 0 to 2 see nothing, row 3 sees key 0: all that is wrong is as if they had its mask.
  const nlohmann::json longer = {{"query_len", 15}, {"key_len", 12}};
  Setting setting = the_case(longer);
  const Problem before = setting.problem;
  set_visible(setting, [&](const Position& at) { return at.key == 0 || visible(before, at); });
  PreparedCase prepared(a_case(longer), 1);
  const auto all = sure(alike(prepared, {}, loosest(DType::f32), trial_of(setting), kNever));
  EXPECT_EQ(headline(all), "");
}

TEST(DiagnosisTest, BackwardPassOfAMistakeTakesWhatTheForwardPassLeft) {
  PreparedCase prepared(a_case(kBackward), 1);
  const Arithmetic arithmetic = loosest(DType::f32);
  Setting setting = {prepared.problem(), prepared.inputs()};
  ASSERT_TRUE(named("no scale").alter(setting));
  const ForwardExpected own = expect_forward(setting.problem, setting.inputs, arithmetic);
  const ForwardExpected& right = prepared.forward(arithmetic);
  for (const bool takes_lse : {true, false}) {
    const PassesExpected expected =
        expect_altered_backward(setting, expect_altered(setting, arithmetic),
                                {.own = own, .right = right}, takes_lse, arithmetic);
    exact::Outputs<double> given = {.o = exact::Tensor<double>(setting.problem.o_shape()),
                                    .lse = exact::Tensor<double>(setting.problem.lse_shape())};
    given.o.data = right.o.value;
    given.lse.data = takes_lse ? right.lse.value : own.lse.value;
    const auto gradients =
        exact::backward(setting.problem, exact::inputs_as<double>(setting.inputs), given);
    for (const auto& [tensor, exactly] : {std::pair{TensorName::dq, &gradients.dq.data},
                                          {TensorName::dk, &gradients.dk.data},
                                          {TensorName::dv, &gradients.dv.data}}) {
      const Expected& each = expected[tensor];
      for (std::size_t at = 0; at < exactly->size(); ++at) {
        ASSERT_NEAR(each.value[at], (*exactly)[at], each.bound[at] * 0x1p-10) << name(tensor);
      }
    }
  }
}

TEST(DiagnosisTest, OfMistakesThatGiveTheSameTheMeantOneIsNamed) {
  const Likeness diagonal = {.name = "diagonal", .clause = "MASK-3", .tensors = {}, .telling = 9};
  Likeness causal = {.name = "causal", .clause = "MASK-1", .tensors = {}, .telling = 9};
  causal.yields_to = {"diagonal"};
  ASSERT_THAT(best({causal}), testing::SizeIs(1));
  ASSERT_THAT(best({causal, diagonal}), testing::SizeIs(1));
  EXPECT_EQ(best({causal, diagonal})[0].name, "diagonal");
  // Where another case knows of no such diagonal, it was not that.
  Consensus consensus;
  consensus.add("a/dtype=f32", {{causal, diagonal}});
  consensus.add("b/dtype=f32", {{causal}});
  ASSERT_THAT(consensus.meant().alike, testing::SizeIs(1));
  EXPECT_EQ(consensus.meant().alike[0].name, "causal");
}

TEST(DiagnosisTest, PackedKeysReadFromTheBeginningGoOnInMemory) {
  Setting setting =
      the_case({{"packed", true}, {"batch", 2}, {"query_lens", {1, 9}}, {"key_lens", {2, 13}}});
  const Values before = setting.inputs.v;
  ASSERT_TRUE(named("K and V of the first batch element").alter(setting));
  for (Index j = 0; j < 13; ++j) {
    EXPECT_EQ(setting.inputs.v.at(0, 1, 2 + j, 3), before.at(0, 1, j, 3)) << j;
  }
  // In pages, none follow.
  Setting paged = the_case({{"packed", true},
                            {"batch", 3},
                            {"query_lens", {1, 9, 1}},
                            {"key_lens", {2, 13, 5}},
                            {"paging", {{"page_size", 4}, {"order", "in_order"}}}});
  const Values pages = paged.inputs.v;
  ASSERT_TRUE(named("K and V of the first batch element").alter(paged));
  EXPECT_EQ(paged.inputs.v.at(1, 1, 1, 3), pages.at(0, 1, 1, 3));
  EXPECT_EQ(paged.inputs.v.at(1, 1, 2, 3), pages.at(1, 1, 2, 3));
}

TEST(DiagnosisTest, BiasThatIsSharedIsReadAsFarAsThereIsOne) {
  struct Read {
    std::string name, axes;
    std::function<Index(const Position&)> element;
  };
  const std::vector<Read> all = {
      {"a bias of one column read along the keys", "hq",
       [](const Position& at) { return at.head * 9 + at.query + at.key; }},
      {"a bias of one row read along the queries", "hk",
       [](const Position& at) { return at.head * 13 + at.query; }},
      {"a bias of one row read along the queries", "h",
       [](const Position& at) { return at.head + at.query; }},
      {"a bias that heads share read as if each had its own", "qk",
       [](const Position& at) { return (at.head * 9 + at.query) * 13 + at.key; }}};
  for (const Read& read : all) {
    Setting setting = the_case({{"mask", "full"}, {"bias", {{"axes", read.axes}}}});
    const Values before = setting.inputs.bias, &after = setting.inputs.bias;
    ASSERT_TRUE(named(read.name).alter(setting));
    for_each_pair(setting.problem, [&](const Position& at) {
      const auto element = static_cast<std::size_t>(read.element(at));
      const auto wanted = std::min(element, before.data.size() - 1);
      EXPECT_NEAR(after.data[broadcast_index(after.shape, at)], before.data[wanted], 1e-12)
          << read.name;
    });
  }
}

// A small case of each entry.
std::vector<Case> small_cases() {
  std::map<std::pair<std::string, int>, Case> smallest;
  for (Case& each : load_cases(ATTEST_CASES_DIR, 1)) {
    const Problem& p = each.problem;
    const Index size = p.batch * p.query_heads * p.query_len * p.key_len * p.head_dim;
    const bool drawn = p.dropout.mode == Dropout::Mode::generated;
    if (size > 10000 || drawn || each.excerpt > 0) continue;
    smallest.emplace(std::pair(each.file, each.line), std::move(each));
  }
  std::vector<Case> cases;
  for (auto& [source, each] : smallest) cases.push_back(std::move(each));
  return cases;
}

TEST(DiagnosisTest, EveryMistakeIsTriedOnEveryKindOfCase) {
  for (const Case& each : small_cases()) {
    PreparedCase prepared(each, 1);
    const Arithmetic arithmetic = loosest(each.problem.dtype);
    PassesExpected wrong = expect_altered({prepared.problem(), prepared.inputs()}, arithmetic);
    // Of a problem with a backward pass the gradients, which are asked about if O and LSE are
    // right.
    for (const TensorName tensor : kReturnedTensors) {
      if (is_gradient(tensor) != each.problem.backward) continue;
      for (double& value : wrong[tensor].value) value = -777;
    }
    const Trial trial = trial_of(each.problem, wrong);
    const auto said = alike(prepared, {}, arithmetic, trial, kNever);
    if (!said) continue;
    for (const Likeness& likeness : said->explaining) {
      EXPECT_FALSE(likeness.is_sure()) << each.id << ": " << likeness.name;
    }
  }
}

std::set<std::string> features_in(const Problem& problem) {
  const std::vector<std::string> names = features_of(problem);
  return {names.begin(), names.end()};
}

TEST(DiagnosisTest, SomeSmallerProblemLacksEachFeature) {
  // Without these it would be another question, of tensors of other shapes.
  const std::set<std::string> stay = {"backward", "packed", "paged", "zero-sizes"};
  std::set<std::string> waiting;
  for (const Feature& feature : features()) {
    const bool needed = feature.in_problem || feature.in_mask || feature.in_layout;
    const std::string name(feature.name);
    if (needed && feature.key == kOfFeatures && !stay.contains(name)) waiting.insert(name);
  }
  for (const CaseWithEntry& each : load_entries(ATTEST_CASES_DIR)) {
    const std::set<std::string> needed = features_in(each.test_case.problem);
    const bool new_here = std::any_of(needed.begin(), needed.end(),
                                      [&](const auto& name) { return waiting.contains(name); });
    if (!new_here) continue;
    for (const nlohmann::json& smaller : entries_smaller_than(each)) {
      std::set<std::string> left;
      try {
        left = features_in(read_entry(smaller, "smaller").problem);
      } catch (const InputError&) {
        continue;  // no case
      }
      for (const std::string& name : needed) {
        if (!left.contains(name)) waiting.erase(name);
      }
    }
  }
  EXPECT_THAT(waiting, testing::IsEmpty()) << "no field of harness/diagnosis/smaller.cpp has it";
}

TEST(DiagnosisTest, WhatIsWrittenIsReadAsReportsTellIt) {
  const std::vector<Group> groups = {
      {.testee = "mine",
       .outcome = Outcome::fail,
       .reason = "bound",
       .tensors = {TensorName::o},
       .failures = 3,
       .case_id = "a",
       .features = {"sink"},
       .alike = {{.name = "no scale", .clause = "SCORE-1", .tensors = {TensorName::o}}},
       .admitted_by = {"a key", "another"},
       .reliefs = {{"a sink", {"SINK-1"}, true},
                   {"a bias", {"SCORE-3"}, false},
                   {"several keys", {}, true}},
       .blamed = "SCORE-1"}};
  std::istringstream file(to_json(groups).dump());
  const std::vector<Diagnosis> read = read_diagnoses(file);
  ASSERT_THAT(read, testing::SizeIs(1));
  EXPECT_EQ(read[0].testee, "mine");
  EXPECT_EQ(read[0].case_id, "a");
  EXPECT_EQ(diagnosis_text(read[0]), diagnosis_text(diagnoses_of(groups)[0]));
  EXPECT_EQ(diagnosis_text(read[0]),
            "O is exactly what no scale (SCORE-1) gives; within its bounds with a key, or another "
            "declared; passes without a sink; without several keys; blamed on SCORE-1");
  std::istringstream none("{}");
  EXPECT_THROW(read_diagnoses(none), InputError);
}

TEST(DiagnosisTest, PartsAndFewElementsTakeTwoCases) {
  const Likeness part = {
      .name = "part", .clause = "MASK-3", .tensors = {}, .rows = 2, .of = 4, .telling = 9};
  const Likeness few = {.name = "few", .clause = "SINK-2", .tensors = {}, .telling = 5};
  for (const Likeness& each : {part, few}) {
    Consensus consensus;
    consensus.add("a/dtype=f32", {{each}});
    consensus.add("a/dtype=f16", {{each}});
    EXPECT_THAT(consensus.meant().alike, testing::IsEmpty()) << each.name;
    consensus.add("b/dtype=f32", {{each}});
    EXPECT_THAT(consensus.meant().alike, testing::SizeIs(1)) << each.name;
    EXPECT_EQ(consensus.meant().case_id, "a/dtype=f32") << each.name;
    consensus.add("c/dtype=f32", {{{.name = "another", .clause = "MASK-4", .tensors = {}}}});
    EXPECT_THAT(consensus.meant().alike, testing::IsEmpty()) << each.name;
    EXPECT_TRUE(consensus.is_hopeless());
  }
}

TEST(DiagnosisTest, CaseDisprovesWhatItNeitherShowsNorLeavesOpen) {
  const Likeness it = {.name = "it", .clause = "MASK-3", .tensors = {}, .telling = 9};
  Consensus consensus;
  consensus.add("a", {{it}});
  consensus.add("b", {{}, {"it", "other"}});
  EXPECT_THAT(consensus.meant().alike, testing::SizeIs(1));
  consensus.add("c", {});
  EXPECT_THAT(consensus.meant().alike, testing::IsEmpty());
  EXPECT_TRUE(consensus.is_hopeless() && consensus.is_reached());
}

TEST(DiagnosisTest, FiguresAreThoseOfTheCaseThatIsTold) {
  const auto with = [](Index rows, Index telling) {
    return Likeness{.name = "it",
                    .clause = "MASK-3",
                    .tensors = {},
                    .rows = rows,
                    .of = rows,
                    .telling = telling};
  };
  Consensus consensus;
  consensus.add("small", {{with(1, 4)}});
  consensus.add("enough", {{with(2, 8)}});
  consensus.add("large", {{with(9, 99)}});
  EXPECT_EQ(consensus.meant().case_id, "enough");
  EXPECT_EQ(consensus.meant().alike[0].of, 2);
  EXPECT_EQ(consensus.meant().alike[0].telling, 8);
}

TEST(DiagnosisTest, MistakesOfANameStandTogetherAndBreakAClause) {
  std::set<std::string> names;
  std::string before;
  for (const Mistake& each : mistakes()) {
    if (each.name != before) {
      EXPECT_TRUE(names.insert(each.name).second) << each.name;
    }
    before = each.name;
    EXPECT_TRUE(find_clause(each.clause)) << each.name;
    EXPECT_TRUE(each.alter || each.settle) << each.name;
  }
}

}  // namespace
}  // namespace attest
