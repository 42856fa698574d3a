#include <gmock/gmock.h>

#include <cmath>

#include "cases/case.h"
#include "cases/expand.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

// A file with one entry, whose members beside name, clauses and because stand on line 4.
std::string file_with(const std::string& members, const std::string& defaults = "{}") {
  return "{\"about\": \"a test\",\n \"defaults\": " + defaults +
         ",\n \"cases\": [{\"name\": \"it\", \"clauses\": [\"MASK-1\"], \"because\": \"x\",\n" +
         members + "}]}\n";
}

std::string error_of(const std::string& text) { return CaseFolder().write("a.json", text).error(); }

std::vector<std::string> ids_of(const std::vector<Case>& cases) {
  std::vector<std::string> ids;
  for (const Case& test_case : cases) ids.push_back(test_case.id);
  return ids;
}

TEST(LoadTest, ReadsAnEntryWithItsDefaults) {
  CaseFolder folder;
  folder.write("mask/it.json", file_with(R"("problem": {"query_len": 5, "mask": "causal"})",
                                         R"({"key_len": 7, "head_dim": 16, "dtypes": ["bf16"]})"));
  const std::vector<Case> cases = folder.load(3);
  ASSERT_THAT(cases, SizeIs(1));
  const Case& only = cases.front();
  EXPECT_EQ(only.id, "mask/it/it/dtype=bf16/data=normal/s=3");
  EXPECT_EQ(only.seed, 3u);
  EXPECT_EQ(only.line, 3);
  EXPECT_EQ(only.because, "x");
  EXPECT_EQ(only.tier, Tier::standard);
  EXPECT_EQ(to_string(only.problem), "bf16 b1 h1/1 q5 k7 d16 scale=0.25 causal top_left");
}

TEST(LoadTest, MultipliesAxesThenTypesThenData) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("for": {"key_len": [3, 4], "query_len": [1, 2]},
      "dtypes": ["f32", "f16"], "data": ["normal", "std10"])"));
  const auto ids = ids_of(folder.load());
  ASSERT_THAT(ids, SizeIs(16));
  EXPECT_EQ(ids[0], "a/it/sq=1,sk=3/dtype=f32/data=normal/s=1");
  EXPECT_EQ(ids[1], "a/it/sq=1,sk=3/dtype=f32/data=std10/s=1");
  EXPECT_EQ(ids[2], "a/it/sq=1,sk=3/dtype=f16/data=normal/s=1");
  EXPECT_EQ(ids[4], "a/it/sq=1,sk=4/dtype=f32/data=normal/s=1");
  EXPECT_EQ(ids[15], "a/it/sq=2,sk=4/dtype=f16/data=std10/s=1");
}

TEST(LoadTest, ZipsAListOfObjects) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"],
      "for": [{"query_len": 17, "key_len": 3}, {"query_len": 1, "key_len": 9}])"));
  EXPECT_THAT(ids_of(folder.load()), ElementsAre("a/it/sq=17,sk=3/dtype=f32/data=normal/s=1",
                                                 "a/it/sq=1,sk=9/dtype=f32/data=normal/s=1"));
}

TEST(LoadTest, FillsNamesInBracesIntoMaskAndLayouts) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"],
      "problem": {"mask": "window -{left}..0", "layouts": {"q": "bhsd gap={gap}"}},
      "for": {"left": [16], "gap": [3]})"));
  const auto cases = folder.load();
  EXPECT_EQ(cases.front().id, "a/it/gap=3,left=16/dtype=f32/data=normal/s=1");
  EXPECT_EQ(to_string(cases.front().problem.mask), "window -16..0 top_left");
  EXPECT_EQ(cases.front().problem.layouts.q.to_string(), "bhsd gap=3");
}

TEST(LoadTest, TakesValueDimAndScaleFromHeadDim) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "for": {"head_dim": [0, 64, 80]})"));
  const auto cases = folder.load();
  EXPECT_EQ(cases[0].problem.scale, 1.0);
  EXPECT_EQ(cases[1].problem.scale, 0.125);
  EXPECT_EQ(cases[1].problem.value_dim, 64);
  EXPECT_EQ(cases[2].problem.scale, 1.0 / std::sqrt(80.0));
}

TEST(LoadTest, AddsTheClausesOfFeaturesBeyondTheCore) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f64"], "problem": {"backward": true,
      "mask": "window -1..1", "key_lens": [1], "query_lens": [1], "layouts": {"k": "bhds"}})"));
  EXPECT_THAT(folder.load().front().clauses,
              ElementsAre("MASK-1", "MASK-4", "MASK-5", "MASK-6", "GRAD-1", "GRAD-2", "GRAD-3",
                          "FORMAT-1", "LAYOUT-3"));
}

TEST(LoadTest, AddsNoClauseToACoreProblem) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("problem": {"mask": "causal bottom_right offset=2",
      "query_heads": 4, "key_heads": 2, "layouts": "bshd gap=2"})"));
  for (const Case& test_case : folder.load()) EXPECT_THAT(test_case.clauses, ElementsAre("MASK-1"));
}

TEST(LoadTest, OrdersFilesByPathWhateverTheDirectorySays) {
  CaseFolder folder;
  const std::string text = file_with(R"("dtypes": ["f32"])");
  folder.write("b.json", text)
      .write("a/z.json", text)
      .write("a.json", text)
      .write("c/a.json", text);
  EXPECT_THAT(ids_of(folder.load()),
              ElementsAre("a/it/dtype=f32/data=normal/s=1", "a/z/it/dtype=f32/data=normal/s=1",
                          "b/it/dtype=f32/data=normal/s=1", "c/a/it/dtype=f32/data=normal/s=1"));
}

TEST(LoadTest, RandomMaskDependsOnTheEntryNotOnTypeDataOrSeed) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("problem": {"query_len": 20, "key_len": 20, "batch": 2,
      "mask": {"dense": {"pattern": "random", "percent": 50}}}, "for": {"head_dim": [4, 5]},
      "dtypes": ["f32", "f16"])"));
  const auto cases = folder.load(1), reseeded = folder.load(2);
  const auto table = [](const Case& c) { return c.problem.mask.table->allowed; };
  EXPECT_EQ(table(cases[0]), table(cases[1]));
  EXPECT_EQ(table(cases[0]), table(reseeded[0]));
  EXPECT_NE(table(cases[0]), table(cases[2]));
}

struct Mistake {
  std::string members;
  std::string place;  // "a.json:4: "
  std::string key;    // what the message must name
};

// Every member of an entry, wrong in one way.
TEST(LoadTest, NamesFileLineAndKeyOfEveryMistake) {
  const std::vector<Mistake> mistakes = {
      {R"("problme": {})", "a.json:4: ", "\"problme\""},
      {R"("problem": {"query_length": 3})", "a.json:4: ", "\"query_length\""},
      {R"("problem": {"batch": 1,
           "query_len": 2.5})",
       "a.json:5: ", "\"query_len\""},
      {R"("problem": {"query_len": "2"})", "a.json:4: ", "\"query_len\""},
      {R"("problem": {"key_len": -1})", "a.json:4: ", "\"key_len\""},
      {R"("problem": {"backward": 1})", "a.json:4: ", "\"backward\""},
      {R"("problem": {"scale": "big"})", "a.json:4: ", "\"scale\""},
      {R"("problem": {"key_lens": 3})", "a.json:4: ", "\"key_lens\""},
      {R"("problem": {"key_lens": []})", "a.json:4: ", "\"key_lens\""},
      {R"("problem": [])", "a.json:4: ", "expected an object"},
      {R"("problem": {"mask": "casual"})", "a.json:4: ", "\"casual\""},
      {R"("problem": {"mask": "causal offset=x"})", "a.json:4: ", "offset=x"},
      {R"("problem": {"mask": "window 3..4"})", "a.json:4: ", "window 3..4"},
      {R"("problem": {"mask": {"dense": {"pattern": "randon", "percent": 3}}})",
       "a.json:4: ", "similar: random"},
      {R"("problem": {"mask": {"dense": {"pattern": "random"}}})", "a.json:4: ", "\"percent\""},
      {R"("problem": {"mask": {"dense": {"rows": ["x.", "x"]}}})",
       "a.json:4: ", "differ in length"},
      {R"("problem": {"mask": {"all_of": []}})", "a.json:4: ", "combination of masks"},
      {R"("problem": {"layouts": "bhsx"})", "a.json:4: ", "bhsx"},
      {R"("problem": {"layouts": {"x": "bhsd"}})", "a.json:4: ", "\"x\""},
      {R"("problem": {"query_heads": 3, "key_heads": 2})", "a.json:3: ", "HEAD-1"},
      {R"("problem": {"key_len": 3, "key_lens": [4]})", "a.json:3: ", "MASK-5"},
      {R"("problem": {"layouts": {"o": "bhsd expand=b"}})", "a.json:3: ", "LAYOUT-1"},
      {R"("problem": {"mask": {"any_of": ["causal"]}})", "a.json:3: ", "MASK-9"},
      {R"("for": {"query_len": []})", "a.json:4: ", "\"query_len\""},
      {R"("for": {"query_len": 3})", "a.json:4: ", "\"query_len\""},
      {R"("for": {})", "a.json:4: ", "\"for\""},
      {R"("for": [])", "a.json:4: ", "\"for\""},
      {R"("for": [{"query_len": 3},
           {"key_len": 3}])",
       "a.json:5: ", "same keys"},
      {R"("for": {"quer_len": [3]})", "a.json:4: ", "\"quer_len\""},
      {R"("for": {"left": [3]})", "a.json:4: ", "\"left\""},
      {R"("for": {"key_len": [3, 3]})", "a.json:3: ", "stands twice"},
      {R"("dtypes": ["f31"])", "a.json:4: ", "unknown dtype \"f31\"; similar: f32"},
      {R"("dtypes": [])", "a.json:4: ", "at least one dtype"},
      {R"("dtypes": ["f32", "f32"])", "a.json:4: ", "stands twice"},
      {R"("data": ["norml"])", "a.json:4: ", "unknown data class \"norml\"; similar: normal"},
      {R"("data": "normal")", "a.json:4: ", "at least one data class"},
      {R"("hidden": "inf")", "a.json:4: ", "unknown way to hide \"inf\""},
      {R"("hidden": "nan")", "a.json:4: ", "key_lens"},
      {R"("hidden": "huge", "problem": {"layouts": {"k": "bhsd expand=b"}})",
       "a.json:4: ", "expanded"},
      {R"("tier": "quick")", "a.json:4: ", "unknown tier \"quick\""},
      {R"("tier": "smoke",
          "tier": "full")",
       "a.json:5: ", "\"tier\" stands twice"},
      {R"("name": "it")", "a.json:4: ", "\"name\" stands twice"},
      {R"("tier": smoke)", "a.json:4: ", "syntax error"},
      {R"("tier": "smoke",)", "a.json:4: ", "syntax error"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(error_of(file_with(mistake.members)),
                AllOf(StartsWith(mistake.place), HasSubstr(mistake.key)))
        << mistake.members;
  }
}

TEST(LoadTest, NamesTheMistakesOutsideOfAnEntry) {
  const std::string entry = R"({"name": "it", "clauses": ["MASK-1"], "because": "x"})";
  EXPECT_THAT(error_of("{\n\"cases\": [" + entry + "]}"),
              AllOf(StartsWith("a.json:1: "), HasSubstr("\"about\"")));
  EXPECT_THAT(error_of("{\"about\": \"x\",\n\"cases\": []}"),
              AllOf(StartsWith("a.json:2: "), HasSubstr("\"cases\"")));
  EXPECT_THAT(error_of("{\"about\": \"x\",\n\"default\": {},\n\"cases\": [" + entry + "]}"),
              AllOf(StartsWith("a.json:2: "), HasSubstr("\"default\"")));
  EXPECT_THAT(
      error_of("{\"about\": \"x\",\n\"defaults\": {\n\"heads\": 3},\n\"cases\": [" + entry + "]}"),
      AllOf(StartsWith("a.json:3: "), HasSubstr("\"heads\"")));
  EXPECT_THAT(error_of("{\"about\": \"x\", \"cases\": [\n" + entry + ",\n" + entry + "]}"),
              AllOf(StartsWith("a.json:3: "), HasSubstr("\"it\" stands twice")));
  EXPECT_THAT(error_of("[]"), AllOf(StartsWith("a.json:1: "), HasSubstr("expected an object")));
  EXPECT_THAT(error_of(""), StartsWith("a.json:1: "));
}

TEST(LoadTest, NamesMistakesInTheWordsOfAnEntry) {
  const auto with = [](const std::string& entry) {
    return error_of("{\"about\": \"x\",\n\"cases\": [\n" + entry + "]}");
  };
  EXPECT_THAT(
      with(R"({"name": "it", "clauses": ["MASK-99"], "because": "x"})"),
      AllOf(StartsWith("a.json:3: "), HasSubstr("unknown clause \"MASK-99\"; similar: MASK-")));
  EXPECT_THAT(with(R"({"name": "it", "clauses": ["SINK-1"], "because": "x"})"),
              HasSubstr("unknown clause \"SINK-1\""));  // planned: not judged yet
  EXPECT_THAT(with(R"({"name": "it", "clauses": [], "because": "x"})"),
              AllOf(StartsWith("a.json:3: "), HasSubstr("at least one clause")));
  EXPECT_THAT(with(R"({"name": "It", "clauses": ["MASK-1"], "because": "x"})"),
              HasSubstr("\"It\""));
  EXPECT_THAT(with(R"({"name": "it", "clauses": ["MASK-1"], "because": ""})"),
              HasSubstr("\"because\""));
  EXPECT_THAT(with(R"({"name": "it", "clauses": ["MASK-1"]})"),
              HasSubstr("\"because\" is missing"));
}

TEST(LoadTest, RefusesAFolderWithoutCases) {
  EXPECT_THAT(CaseFolder().error(), HasSubstr("no case files"));
  EXPECT_THROW(load_cases("/nowhere/at/all"), InputError);
}

TEST(LoadTest, RightFilesHaveNoError) {
  EXPECT_THAT(error_of(file_with(R"("problem": {"mask": {"dense": {"rows": ["x"]}}})")), IsEmpty());
}

}  // namespace
}  // namespace attest
