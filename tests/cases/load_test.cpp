#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/expand.h"
#include "spec/json_text.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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

TEST(LoadTest, AddsTheClausesOfEveryFeature) {
  const auto clauses_of = [](const std::string& members) {
    CaseFolder folder;
    folder.write("a.json", file_with(R"("dtypes": ["f32"], )" + members));
    auto ids = folder.load().front().clauses;
    ids.erase(ids.begin());  // the one that is cited
    return ids;
  };
  EXPECT_THAT(clauses_of(R"("problem": {"mask": {"any_of": ["prefix 1", "dilated 2",
      {"segments": {"pattern": "documents", "length": 3}},
      {"block_sparse": {"block": [2, 2], "pattern": "checkerboard"}}]}})"),
              ElementsAre("MASK-9", "MASK-10", "MASK-13", "MASK-11", "MASK-12"));
  EXPECT_THAT(clauses_of(R"("problem": {"softcap": 3, "sink": true, "alibi": {"slopes": "standard"},
      "bias": {"allows": {"pattern": "checkerboard"}}, "dropout": {"probability": 0.5}})"),
              ElementsAre("SCORE-2", "SCORE-3", "MASK-14", "SCORE-4", "SINK-1", "DROP-1"));
  EXPECT_THAT(clauses_of(R"("problem": {"softcap": 3, "sink": true, "bias": {}, "d_lse": true,
      "dropout": {"probability": 0.5}, "backward": true})"),
              ElementsAre("GRAD-1", "GRAD-2", "GRAD-3", "SCORE-2", "GRAD-6", "SCORE-3", "GRAD-4",
                          "SINK-1", "SINK-2", "GRAD-5", "DROP-1", "DROP-2"));
  EXPECT_THAT(clauses_of(R"("problem": {"dropout": {"probability": 0.5, "mode": "generated"}})"),
              ElementsAre("DROP-3"));
  EXPECT_THAT(clauses_of(R"("problem": {"packed": true, "query_lens": [1], "key_lens": [2]})"),
              ElementsAre("LAYOUT-5"));
  EXPECT_THAT(clauses_of(R"("problem": {"paging": {"page_size": 2}, "key_lens": [2]})"),
              ElementsAre("PAGE-1"));
  EXPECT_THAT(clauses_of(R"("problem": {"paging": {"page_size": 2}, "key_lens": [2],
      "query_lens": [1]})"),
              ElementsAre("PAGE-1", "MASK-6"));
  EXPECT_THAT(clauses_of(R"("problem": {"layouts": {"o": "sbhd"}})"), ElementsAre("LAYOUT-4"));
  EXPECT_THAT(clauses_of(R"("hidden": "nan_query")"), ElementsAre("FINITE-1"));
  EXPECT_THAT(clauses_of(R"("check": "threads")"), ElementsAre("DET-3"));
  EXPECT_THAT(clauses_of(R"("check": "neighbours")"), ElementsAre("DET-2"));
  EXPECT_THAT(clauses_of(R"("laws": ["ones", "wide_window"])"),
              ElementsAre("LAW-4", "LAW-8", "MASK-4"));
  EXPECT_THAT(clauses_of(R"("laws": ["split_keys"], "problem": {"mask": "causal"})"),
              ElementsAre("LAW-6", "MASK-7"));
}

TEST(LoadTest, ForwardCasesCiteNoClausesOfTheBackwardPass) {
  const auto citing = [](const char* clauses, const char* passes) {
    return std::string(R"({"about": "a test", "cases": [{"name": "it", "because": "x",
        "dtypes": ["f32"], "clauses": [)") +
           clauses + R"(], "for": {"backward": )" + passes + "}}]}";
  };
  CaseFolder folder;
  folder.write("a.json", citing(R"("GRAD-1", "MASK-1", "HEAD-2")", "[true, false]"));
  const std::vector<Case> cases = folder.load();
  ASSERT_THAT(cases, SizeIs(2));
  EXPECT_THAT(cases[0].clauses, Contains("GRAD-1"));
  EXPECT_THAT(cases[1].clauses, Contains("MASK-1"));
  EXPECT_THAT(cases[1].clauses, Not(Contains("GRAD-1")));
  EXPECT_THAT(cases[1].clauses, Not(Contains("HEAD-2")));
  folder.write("a.json", citing(R"("GRAD-1")", "[true, false]"));
  EXPECT_THAT(folder.error(), HasSubstr("has no backward pass"));
}

TEST(LoadTest, CaseAboutARecommendedClauseCitesItFirst) {
  const auto error_of = [](const std::string& members) {
    CaseFolder folder;
    folder.write("a.json", file_with(R"("dtypes": ["f32"], )" + members));
    return folder.error();
  };
  EXPECT_THAT(error_of(R"("hidden": "nan_masked")"), HasSubstr("tries HIDE-3, which is recomm"));
  EXPECT_THAT(error_of(R"("hidden": "nan_value")"), HasSubstr("FINITE-2"));
  EXPECT_THAT(error_of(R"("hidden": "nan_query", "problem": {"backward": true})"),
              HasSubstr("FINITE-3"));
  EXPECT_EQ(error_of(R"("hidden": "nan_query")"), "");
}

TEST(LoadTest, ReadsWhatTheTensorsBesideHold) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 2, "query_heads": 2,
      "query_len": 3, "key_len": 4, "softcap": 2.5, "sink": "dominant", "d_lse": true,
      "bias": {"kind": "ramp", "axes": "hk", "allows": {"rows": ["xx.x"]}},
      "alibi": {"slopes": [1, 2, 3, 4], "axes": "bh"}, "backward": true,
      "dropout": {"probability": 0.25, "seed": 18446744073709551615, "offset": 3}})"));
  const std::string error = folder.error();
  EXPECT_THAT(error, HasSubstr("[1,2,1,4] is needed"));
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 2, "query_heads": 2,
      "query_len": 3, "key_len": 4, "softcap": 2.5, "sink": "dominant", "d_lse": true,
      "bias": {"kind": "ramp", "axes": "hk", "allows": {"pattern": "one_key"}},
      "alibi": {"slopes": [1, 2, 3, 4], "axes": "bh"}, "backward": true,
      "dropout": {"probability": 0.25, "seed": 18446744073709551615, "offset": 3}},
      "check": "neighbours")"));
  const Case only = folder.load().front();
  const Problem& p = only.problem;
  EXPECT_EQ(p.softcap, 2.5);
  EXPECT_EQ(p.bias_shape, (Shape{1, 2, 1, 4}));
  EXPECT_EQ(only.extras.bias, "ramp");
  EXPECT_EQ(only.extras.bias_allows.shape, (Shape{1, 2, 1, 4}));
  EXPECT_THAT(only.extras.bias_allows.allowed, ElementsAre(0, 0, 0, 1, 1, 0, 0, 0));
  EXPECT_EQ(p.slopes_shape, (Shape{2, 2, 1, 1}));
  EXPECT_THAT(only.extras.slopes, ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(p.sink && p.d_lse && p.backward);
  EXPECT_EQ(only.extras.sink, "dominant");
  EXPECT_EQ(p.dropout.mode, Dropout::Mode::given);
  EXPECT_EQ(p.dropout.probability, 0.25);
  EXPECT_EQ(p.dropout.seed, 18446744073709551615u);
  EXPECT_EQ(p.dropout.offset, 3u);
  EXPECT_EQ(only.check, Check::neighbours);
}

TEST(LoadTest, PackedAndPagedProblemsTakeTheLongestLengths) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 3,
      "query_lens": [4, 0, 2], "key_lens": [1, 9, 0], "packed": true})",
                                   R"({"key_len": 5})"));
  const Problem packed = folder.load().front().problem;
  EXPECT_EQ(packed.query_len, 4);
  EXPECT_EQ(packed.key_len, 9);
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 3, "query_len": 2,
      "key_lens": [1, 9, 0], "paging": {"page_size": 4}})"));
  const Problem paged = folder.load().front().problem;
  EXPECT_EQ(paged.query_len, 2);
  EXPECT_EQ(paged.key_len, 9);
}

TEST(LoadTest, LengthsMayBeAListThatIsRepeated) {
  CaseFolder folder;
  folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 4, "packed": true,
      "query_lens": {"repeat": [3, 1], "times": 2}, "key_lens": [1, 9, 0, 2]})"));
  const Case repeated = folder.load().front();
  EXPECT_EQ(repeated.problem.query_lens, (std::vector<Index>{3, 1, 3, 1}));
  EXPECT_EQ(entry_of(repeated)["problem"]["query_lens"], (std::vector<Index>{3, 1, 3, 1}));
}

// All pages that the table names, and how many rows name each.
std::map<Index, int> uses_of(const Paging& paging) {
  std::map<Index, int> uses;
  for (const auto& row : paging.table) {
    for (const Index page : row) ++uses[page];
  }
  return uses;
}

TEST(LoadTest, PageTablesAreOrderedAsTheySay) {
  const auto paging = [](const std::string& members) {
    CaseFolder folder;
    folder.write("a.json", file_with(R"("dtypes": ["f32"], "problem": {"batch": 3,
        "key_lens": [30, 9, 0], "paging": {"page_size": 4, )" +
                                     members + "}}"));
    return folder.load().front().problem.paging;
  };
  using Rows = std::vector<std::vector<Index>>;
  EXPECT_EQ(paging(R"("order": "in_order")").table,
            (Rows{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10}, {}}));
  EXPECT_EQ(paging(R"("order": "reversed", "unused": 2)").table,
            (Rows{{12, 11, 10, 9, 8, 7, 6, 5}, {4, 3, 2}, {}}));
  EXPECT_EQ(paging(R"("order": "in_order", "spare_entries": 2)").table,
            (Rows{{0, 1, 2, 3, 4, 5, 6, 7, -1, -1}, {8, 9, 10, -1, -1}, {-1, -1}}));
  const Paging shuffled = paging(R"("order": "shuffled", "unused": 5)");
  EXPECT_EQ(shuffled.pages, 16);
  EXPECT_EQ(uses_of(shuffled).size(), 11u) << "no page twice";
  EXPECT_GT(uses_of(shuffled).rbegin()->first, 10) << "unused ones lie between the others";
  EXPECT_FALSE(std::is_sorted(shuffled.table[0].begin(), shuffled.table[0].end()));
  EXPECT_EQ(shuffled.table, paging(R"("order": "shuffled", "unused": 5)").table);
  const Paging shared = paging(R"("order": "shared")");
  EXPECT_EQ(shared.pages, 9) << "two of the second element's pages are the first's";
  EXPECT_EQ(shared.table[1][0], shared.table[0][0]);
  EXPECT_EQ(shared.table[1][1], shared.table[0][1]);
  EXPECT_EQ(uses_of(shared)[shared.table[1][2]], 1);
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
  std::vector<int> sizes(200);
  std::iota(sizes.begin(), sizes.end(), 1);
  const std::string many_points =
      "\"for\": " + json_text({{"query_len", sizes}, {"key_len", sizes}});
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
      {R"("problem": {"key_lens": {"repeat": [1]}})", "a.json:4: ", "\"times\""},
      {R"("problem": {"key_lens": {"repeat": [1], "times": 0}})", "a.json:4: ", "2^20"},
      {R"("problem": {"key_lens": {"repeat": [1], "times": 2000000}})", "a.json:4: ", "2^20"},
      {R"("problem": [])", "a.json:4: ", "expected an object"},
      {R"("problem": {"mask": "casual"})", "a.json:4: ", "\"casual\""},
      {R"("problem": {"mask": "causal offset=x"})", "a.json:4: ", "offset=x"},
      {R"("problem": {"mask": "window 3..4"})", "a.json:4: ", "window 3..4"},
      {R"("problem": {"mask": {"dense": {"pattern": "randon", "percent": 3}}})",
       "a.json:4: ", "did you mean random?"},
      {R"("problem": {"mask": {"dense": {"pattern": "random"}}})", "a.json:4: ", "\"percent\""},
      {R"("problem": {"mask": {"dense": {"rows": ["x.", "x"]}}})",
       "a.json:4: ", "differ in length"},
      {R"("problem": {"mask": {"all_of": []}})", "a.json:4: ", "combination of masks"},
      {R"("problem": {"layouts": "bhsx"})", "a.json:4: ", "bhsx"},
      {R"("problem": {"layouts": {"x": "bhsd"}})", "a.json:4: ", "\"x\""},
      {R"("problem": {"query_heads": 3, "key_heads": 2})", "a.json:4: ", "HEAD-1"},
      {R"("problem": {"key_len": 3, "key_lens": [4]})", "a.json:4: ", "MASK-5"},
      {R"("problem": {"layouts": {"o": "bhsd expand=b"}})", "a.json:4: ", "LAYOUT-1"},
      // An ill-formed problem is blamed on the key at fault, in whichever line it stands.
      {R"("problem": {"key_len": 3,
           "mask": {"prefix": [4]}})",
       "a.json:5: ", "MASK-10"},
      {R"("problem": {"query_len": 2,
           "softcap": -1})",
       "a.json:5: ", "SCORE-2"},
      {R"("problem": {"scale": 1,
           "d_lse": true})",
       "a.json:5: ", "GRAD-5"},
      {R"("problem": {"query_len": 3, "query_lens": [2], "key_lens": [1],
           "packed": true})",
       "a.json:5: ", "LAYOUT-5"},
      {R"("problem": {"key_lens": [1], "backward": true,
           "paging": {"page_size": 4}})",
       "a.json:5: ", "PAGE-1"},
      {R"("problem": {"scale": 1,
           "dropout": {"probability": 1}})",
       "a.json:5: ", "DROP-1"},
      {R"("for": {"softcap": [
           -3]})",
       "a.json:5: ", "SCORE-2"},
      {R"("problem": {"softcap": "3"})", "a.json:4: ", "\"softcap\""},
      {R"("problem": {"bias": {"kind": "norml"}})",
       "a.json:4: ", "unknown kind \"norml\"; did you mean normal?"},
      {R"("problem": {"bias": {"axes": "bx"}})", "a.json:4: ", "'x' is no axis"},
      {R"("problem": {"bias": {"colour": 1}})", "a.json:4: ", "unknown key \"colour\""},
      {R"("problem": {"bias": {"allows": {"pattern": "one"}}})", "a.json:4: ", "unknown pattern"},
      {R"("problem": {"bias": {"allows": {"rows": ["xx"]}}})", "a.json:4: ", "[1,1,1,1] is needed"},
      {R"("problem": {"alibi": {}})", "a.json:4: ", "\"slopes\" is missing"},
      {R"("problem": {"alibi": {"slopes": [1, 2]}})", "a.json:4: ", "a list of 1 numbers"},
      {R"("problem": {"alibi": {"slopes": "usual"}})", "a.json:4: ", "\"standard\""},
      {R"("problem": {"alibi": {"slopes": "standard", "axes": "b"}})", "a.json:4: ", "h or bh"},
      {R"("problem": {"sink": "small"})", "a.json:4: ", "unknown sink \"small\"; there are "},
      {R"("problem": {"sink": 3})", "a.json:4: ", "\"sink\""},
      {R"("problem": {"dropout": {}})", "a.json:4: ", "\"probability\" is missing"},
      {R"("problem": {"dropout": {"probability": 0.5, "mode": "none"}})",
       "a.json:4: ", "unknown mode"},
      {R"("problem": {"dropout": {"probability": 0.5, "seed": -1}})", "a.json:4: ", "\"seed\""},
      {R"("problem": {"packed": 1})", "a.json:4: ", "\"packed\""},
      {R"("problem": {"paging": {"page_size": 4}})", "a.json:4: ", "\"key_lens\""},
      {R"("problem": {"key_lens": [1], "paging": {"page_size": 0}})", "a.json:4: ", "too small"},
      {R"("problem": {"key_lens": [1], "paging": {"page_size": 1, "order": "any"}})",
       "a.json:4: ", "unknown order"},
      {R"("problem": {"mask": "prefix"})", "a.json:4: ", "a number of at least 0"},
      {R"("problem": {"mask": "dilated 0"})", "a.json:4: ", "a number of at least 1"},
      {R"("problem": {"mask": {"segments": {"pattern": "documents"}}})",
       "a.json:4: ", "\"length\""},
      {R"("problem": {"mask": {"segments": {"query": [0]}}})", "a.json:4: ", "\"key\" is missing"},
      {R"("problem": {"mask": {"segments": {"query": [0], "key": [4294967296]}}})",
       "a.json:4: ", "32 bits"},
      {R"("problem": {"mask": {"block_sparse": {"block": [4], "pattern": "nothing"}}})",
       "a.json:4: ", "two sizes"},
      {R"("problem": {"mask": {"block_sparse": {"block": [1, 1], "pattern": "nothing", "axes": "q"}}})",
       "a.json:4: ", "'q' is no axis"},
      {R"("problem": {"mask": {"prefix": [1], "all_of": ["full"]}})",
       "a.json:4: ", "an object with one of"},
      {R"("problem": {"mask": {}})", "a.json:4: ", "an object with one of"},
      {R"("check": "thread")", "a.json:4: ", "there is no check \"thread\""},
      {R"("laws": ["one"])", "a.json:4: ", "there is no law \"one\"; did you mean ones?"},
      {R"("pin": ["key_length"])",
       "a.json:4: ", "there is no size \"key_length\"; there are batch, query_heads, key_heads, "},
      {R"("pin": ["batch", "batch"])", "a.json:4: ", "stands twice"},
      {R"("excerpt": 2, "laws": ["permuted_keys"])", "a.json:4: ", "too long for either"},
      {R"("hidden": "nan_rows")", "a.json:4: ", "query_lens"},
      {R"("hidden": "nan_scales", "problem": {"stored": "kv int8 s"})", "a.json:4: ", "key_lens"},
      {R"("hidden": "nan_scales", "problem": {"stored": "kv int8 h", "key_len": 3, "key_lens": [1]})",
       "a.json:4: ", "a scale for each position"},
      {R"("hidden": "nan_gradient")", "a.json:4: ", "backward"},
      {R"("hidden": "nan_query", "problem": {"layouts": {"q": "bhsd expand=b"}})",
       "a.json:4: ", "expanded"},
      {R"("hidden": "nan", "problem": {"query_lens": [1], "key_lens": [1], "packed": true})",
       "a.json:4: ", "key_lens"},
      {R"("for": {"query_len": []})", "a.json:4: ", "\"query_len\""},
      {R"("for": {"query_len": 3})", "a.json:4: ", "\"query_len\""},
      {R"("for": {})", "a.json:4: ", "\"for\""},
      {R"("for": [])", "a.json:4: ", "\"for\""},
      {R"("for": [{"query_len": 3},
           {"key_len": 3}])",
       "a.json:5: ", "same keys"},
      {R"("for": {"quer_len": [3]})", "a.json:4: ", "\"quer_len\""},
      {R"("for": {"left": [3]})", "a.json:4: ", "\"left\""},
      {R"("for": {"key_len": [3, 3]})", "a.json:4: ", "\"for\": sk=3 stands twice"},
      {many_points, "a.json:4: ", "makes 40000 cases or more of one entry"},
      {R"("for": {"batch": [1], "key_len": [3, "3"]})", "a.json:4: ", "b=1,sk=3 stands twice"},
      {R"("for": [{"key_len": 3}, {"key_len": 3}])", "a.json:4: ", "sk=3 stands twice"},
      {R"("problem": {"mask": "prefix {a/b}"}, "for": {"a/b": [1]})", "a.json:4: ", "\"a/b\""},
      // Letters and words that stand twice.
      {R"("problem": {"bias": {"axes": "qq"}})", "a.json:4: ", "\"axes\": 'q' stands twice"},
      {R"("problem": {"batch": 2,
           "mask": {"dense": {"pattern": "nothing", "axes": "bhqkb"}}})",
       "a.json:5: ", "\"axes\": 'b' stands twice"},
      {R"("problem": {"mask": {"segments": {"pattern": "nothing", "length": 1, "axes": "bb"}}})",
       "a.json:4: ", "'b' stands twice"},
      {R"("problem": {"alibi": {"slopes": "standard", "axes": "hh"}})", "a.json:4: ", "h or bh"},
      {R"("problem": {"mask": "causal bottom_right bottom_right"})",
       "a.json:4: ", "\"bottom_right\" is one anchor"},
      {R"("problem": {"mask": "dilated 2 offset=1 offset=1"})",
       "a.json:4: ", "\"offset=1\" is one anchor or one offset too many"},
      {R"("problem": {"layouts": "bhsd gap=1 gap=2"})", "a.json:4: ", "gap stands twice"},
      {R"("problem": {"layouts": {"q": "bhsd expand=bb"}})", "a.json:4: ", "expand=b stands twice"},
      // Tensors that the problem doesn't have.
      {R"("problem": {"layouts": {"dq": "bshd"}})", "a.json:4: ", "\"dq\""},
      {R"("problem": {"layouts": {"bias": "bshd"}})", "a.json:4: ", "\"bias\""},
      // Numbers that are too large or too small.
      {R"("problem": {"head_dim": 4,
           "value_dim": -1})",
       "a.json:5: ", "\"value_dim\" is negative"},
      {R"("problem": {"batch": 4294967297})", "a.json:4: ", "\"batch\" is beyond 2^32"},
      {R"("problem": {"query_len": 18446744073709551616})", "a.json:4: ", "\"query_len\""},
      {R"("problem": {"key_lens": [-1]})", "a.json:4: ", "MASK-5"},
      {R"("problem": {"query_lens": [1], "key_lens": [9223372036854775807], "packed": true})",
       "a.json:4: ", "\"key_lens\""},
      {R"("problem": {"key_lens": [4294967296],
           "paging": {"page_size": 1}})",
       "a.json:5: ", "more than 2^20 pages"},
      {R"("problem": {"key_lens": [1], "paging": {"page_size": 9223372036854775807}})",
       "a.json:4: ", "\"page_size\""},
      {R"("problem": {"key_lens": [1], "paging": {"page_size": 4, "unused": 1048577}})",
       "a.json:4: ", "\"unused\""},
      {R"("problem": {"query_len": 65536, "key_len": 65536,
           "mask": {"dense": {"pattern": "checkerboard"}}})",
       "a.json:5: ", "a table of [1,1,65536,65536] is too large"},
      {R"("problem": {"key_len": 4294967296,
           "mask": {"segments": {"pattern": "documents", "length": 1}}})",
       "a.json:5: ", "too large"},
      {R"("problem": {"query_len": 4294967296, "batch": 4294967296, "head_dim": 0, "value_dim": 0})",
       "a.json:4: ", "SHAPE-1"},
      {R"("problem": {"key_len": 4294967296, "batch": 3, "head_dim": 0})", "a.json:4: ", "SHAPE-1"},
      {R"("problem": {"query_len": 1048576, "key_len": 1048576,
           "bias": {"kind": "normal"}})",
       "a.json:5: ", "SCORE-3"},
      {R"("problem": {"query_len": 1048576, "key_len": 1048576,
           "dropout": {"probability": 0.5}})",
       "a.json:5: ", "DROP-1"},
      {R"("problem": {"mask": {"dense": {"pattern": "hide_last_tile",
           "tile": 9223372036854775807}}})",
       "a.json:5: ", "\"tile\""},
      {R"("problem": {"mask": {"block_sparse": {"pattern": "nothing",
           "block": [1, 9223372036854775807]}}})",
       "a.json:5: ", "\"block\""},
      {R"("problem": {"mask": "window -9223372036854775808..0"})",
       "a.json:4: ", "a window reaches"},
      {R"("problem": {"layouts": "bhsd gap=9223372036854775807"})", "a.json:4: ", "gap takes"},
      {R"("problem": {"alibi": {"slopes": [1e39]}})", "a.json:4: ", "1e+39 is beyond f32"},
      {R"("problem": {"scale": 1e999})", "a.json:4: ", "1e999"},
      {R"("dtypes": ["f31"])", "a.json:4: ", "there is no dtype \"f31\"; did you mean f32"},
      {R"("dtypes": [])", "a.json:4: ", "at least one dtype"},
      {R"("dtypes": ["f32", "f32"])", "a.json:4: ", "stands twice"},
      {R"("data": ["norml"])",
       "a.json:4: ", "there is no data class \"norml\"; did you mean normal?"},
      {R"("data": "normal")", "a.json:4: ", "at least one data class"},
      {R"("hidden": "inf")", "a.json:4: ", "there is no way to hide \"inf\""},
      {R"("hidden": "nan")", "a.json:4: ", "key_lens"},
      {R"("hidden": "huge", "problem": {"layouts": {"k": "bhsd expand=b"}})",
       "a.json:4: ", "expanded"},
      {R"("tier": "quick")", "a.json:4: ", "there is no tier \"quick\""},
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

TEST(LoadTest, RefusesToTryABatchElementAloneWhoseKeepMaskIsDrawn) {
  const char* problem = R"("check": "neighbours",
      "problem": {"batch": 2, "dropout": {"probability": 0.5, "mode": "MODE"}})";
  std::string drawn = problem, given = problem;
  drawn.replace(drawn.find("MODE"), 4, "generated");
  given.replace(given.find("MODE"), 4, "given");
  EXPECT_THAT(error_of(file_with(drawn)), HasSubstr("\"neighbours\" needs the same keep-mask"));
  EXPECT_EQ(error_of(file_with(given)), "");
}

// The mask "full" within `depth` combinations.
std::string nested(int depth) {
  std::string text = "\"full\"";
  for (int level = 0; level < depth; ++level) {
    text = (level % 2 == 0 ? "{\"any_of\": [" : "{\"all_of\": [") + text + "]}";
  }
  return text;
}

TEST(LoadTest, MasksNestAsDeepAsTheStandardSaysAndNoDeeper) {
  const auto file = [](int depth) {
    return file_with("\"dtypes\": [\"f32\"],\n\"problem\": {\"mask\": " + nested(depth) + "}");
  };
  CaseFolder folder;
  folder.write("a.json", file(kDeepestMask));
  const Case only = folder.load().front();
  int depth = 0;
  for (const Mask* mask = &only.problem.mask; !mask->parts.empty(); mask = &mask->parts.front()) {
    ++depth;
  }
  EXPECT_EQ(depth, kDeepestMask);
  EXPECT_THAT(error_of(file(kDeepestMask + 1)), AllOf(StartsWith("a.json:5: "), HasSubstr("MASK-9"),
                                                      HasSubstr(std::to_string(kDeepestMask))));
}

TEST(LoadTest, FilesNestSoDeepAndNoDeeper) {
  // Root, list and entry are 3 levels; of the 253 that are left the mask is not told apart.
  const auto file = [](int levels) {
    return file_with("\"problem\":\n" + std::string(static_cast<std::size_t>(levels), '[') +
                     std::string(static_cast<std::size_t>(levels), ']'));
  };
  EXPECT_THAT(error_of(file(253)), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(file(254)), AllOf(StartsWith("a.json:5: "), HasSubstr("deeper than 256")));
  EXPECT_THAT(error_of(file(1'000'000)), HasSubstr("deeper than 256"));
}

// A value in braces that holds its own name is put in once.
TEST(LoadTest, NamesInBracesAreFilledInOnce) {
  EXPECT_THAT(error_of(file_with(R"("problem": {"mask": "window {a}"}, "for": {"a": ["x{a}"]})")),
              HasSubstr("window x{a}"));
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
  EXPECT_THAT(with(R"({"name": "it", "clauses": ["MASK-99"], "because": "x"})"),
              AllOf(StartsWith("a.json:3: "),
                    HasSubstr("there is no clause \"MASK-99\"; did you mean MASK-")));
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

TEST(LoadTest, StatisticalVerdictsAreForGenericInputsOnly) {
  const auto with = [](const std::string& members) {
    return file_with("\"problem\": {\"query_len\": 4, \"key_len\": 9}, \"statistical\": true" +
                     members);
  };
  EXPECT_EQ(error_of(with("")), "");
  EXPECT_THAT(error_of(with(", \"data\": [\"near_ties\"]")),
              AllOf(HasSubstr("a.json:"), HasSubstr("near_ties"), HasSubstr("not random enough")));
  EXPECT_THAT(error_of(with(", \"excerpt\": 2")), HasSubstr("all elements"));
  EXPECT_THAT(error_of(file_with(R"("problem": {"head_dim": 4, "scale": 0.01},
                                    "statistical": true)")),
              HasSubstr("scores that vary"));
  EXPECT_THAT(error_of(file_with("\"problem\": {}, \"statistical\": 1")), HasSubstr("statistical"));
}

}  // namespace
}  // namespace attest
