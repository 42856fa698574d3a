#include "cases/entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cases/generate.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json entry(const json& problem) {
  return {{"name", "some"},   {"clauses", {"SOFTMAX-1"}}, {"because", "It may be wrong."},
          {"bits", "any/7"},  {"problem", problem},       {"dtypes", {"bf16"}},
          {"data", {"std10"}}};
}

// Every notation that has a part of its own, and all that random numbers decide.
std::vector<json> entries() {
  std::vector<json> all;
  const json sizes = {{"batch", 2},      {"query_heads", 4}, {"key_heads", 2},
                      {"query_len", 17}, {"key_len", 33},    {"head_dim", 5}};
  for (const char* text :
       {R"({})", R"({"mask": {"dense": {"pattern": "random", "percent": 50, "axes": "bqk"}}})",
        R"({"mask": {"all_of": ["window -3..0 bottom_right offset=-2",
                                   {"block_sparse": {"block": [4, 8], "pattern": "random",
                                                     "percent": 70}}]}})",
        R"({"mask": {"prefix": [20, 5]}, "scale": 0.1, "softcap": 15, "sink": "dominant"})",
        R"({"key_lens": [33, 0], "query_lens": [3, 17], "backward": true, "d_lse": true})",
        R"({"bias": {"kind": "ramp", "axes": "hk",
                        "allows": {"pattern": "random", "percent": 30}}})",
        R"({"alibi": {"slopes": [0.1, 0.25, 1e-3, -3]}, "layouts": {"q": "bshd gap=3 wild"}})",
        R"({"dropout": {"probability": 0.1, "seed": 3}, "value_dim": 7})"}) {
    json problem = sizes;
    problem.update(parse_json(text));
    all.push_back(entry(problem));
    all.back()["name"] = "entry" + std::to_string(all.size());
  }
  all.push_back(
      entry({{"batch", 2}, {"packed", true}, {"query_lens", {3, 4}}, {"key_lens", {0, 9}}}));
  all.push_back(
      entry({{"batch", 2}, {"key_lens", {9, 4}}, {"paging", {{"page_size", 2}, {"unused", 2}}}}));
  all.back()["hidden"] = "nan";
  all.back()["name"] = "paged";
  return all;
}

void expect_same_numbers(const Inputs& a, const Inputs& b) {
  const auto values = [](const Inputs& in) {
    std::vector<double> all;
    for (const TensorName tensor : kInputValues) {
      all.insert(all.end(), in[tensor].data.begin(), in[tensor].data.end());
    }
    for (double& value : all) value = std::isnan(value) ? 1e9 : value;
    return all;
  };
  EXPECT_EQ(values(a), values(b));
  EXPECT_EQ(a.keep.kept, b.keep.kept);
}

void expect_same_case(const Case& a, const Case& b) {
  EXPECT_EQ(to_string(a.problem), to_string(b.problem));
  EXPECT_EQ(a.problem.scale, b.problem.scale);
  EXPECT_EQ(a.problem.paging.table, b.problem.paging.table);
  for (Index n = 0; n < element_count(a.problem.keep_shape()); ++n) {
    const auto [batch, head, query, key] = coordinates(a.problem.keep_shape(), n);
    const Position at = {.batch = batch, .head = head, .query = query, .key = key};
    ASSERT_EQ(visible(a.problem, at), visible(b.problem, at));
  }
  EXPECT_EQ(a.clauses, b.clauses);
  expect_same_numbers(generate(a), generate(b));
}

TEST(EntryTest, IsTheSameCaseWhenItsFileIsLoaded) {
  CaseFolder folder;
  folder.write("found.json", to_case_file("What was found.", entries()));
  const std::vector<Case> loaded = folder.load();
  ASSERT_EQ(loaded.size(), entries().size());
  for (const json& e : entries()) {
    SCOPED_TRACE(json_text(e));
    const Case made = read_entry(e, "found");
    expect_same_case(made, find_case(loaded, made.id));
  }
}

TEST(EntryTest, KeepsItsNumbersWhereverItIsMoved) {
  CaseFolder folder;
  folder.write("deep/down/moved.json", to_case_file("Moved.", entries()));
  const std::vector<Case> loaded = folder.load();
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    SCOPED_TRACE(loaded[i].id);
    EXPECT_THAT(loaded[i].id, HasSubstr("deep/down/moved/"));
    expect_same_case(read_entry(entries()[i], "found"), loaded[i]);
  }
}

TEST(EntryTest, OfEveryCaseOfAFolderIsThatCase) {
  CaseFolder folder;
  folder.write("found.json", to_case_file("What was found.", entries()));
  folder.write("mask/axes.json", R"({"about": "Axes.", "defaults": {"query_len": 4}, "cases": [
      {"name": "window", "clauses": ["MASK-4"], "because": "It may be wrong.",
       "for": {"left": [0, 3], "key_len": [5, 6]}, "problem": {"mask": "window -{left}..2"}}]})");
  const std::vector<Case> loaded = folder.load();
  const auto all = load_entries(folder.path());
  ASSERT_EQ(all.size(), loaded.size());
  EXPECT_EQ(all.size(), entries().size() + 4 * 3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(loaded[i].id);
    EXPECT_EQ(all[i].test_case.id, loaded[i].id);
    Case alone = read_entry(all[i].entry, "any");
    EXPECT_EQ(alone.problem.dtype, loaded[i].problem.dtype);
    expect_same_case(alone, loaded[i]);
  }
}

TEST(EntryTest, OfAFittedCaseWithAnySeedIsThatCase) {
  CaseFolder folder;
  folder.write("mask/axes.json", R"({"about": "Axes.", "cases": [
      {"name": "causal", "clauses": ["MASK-2", "SCORE-2"], "because": "It may be wrong.",
       "for": {"key_len": [5, 6]}, "problem": {"query_len": 3, "softcap": 3, "mask": "causal"}}]})");
  const std::vector<Case> loaded = load_cases(folder.path(), 3);
  const Case fitted = find_case(loaded, loaded.at(0).id + "/fit=sq:4,d:64,without:softcap");
  ASSERT_EQ(fitted.problem.query_len, 4);
  EXPECT_EQ(fitted.seed, 3u);
  Case alone = read_entry(entry_of(fitted), "any", 3);
  EXPECT_EQ(alone.problem.softcap, 0);
  alone.clauses = fitted.clauses;  // of which some are struck
  expect_same_case(alone, fitted);
}

TEST(EntryTest, HasOtherNumbersForAnotherSeedOrOtherBits) {
  json other_bits = entry({{"key_len", 3}});
  const Case made = read_entry(other_bits, "found");
  other_bits["bits"] = "any/8";
  EXPECT_NE(generate(made).q.data, generate(read_entry(other_bits, "found")).q.data);
  const std::string id = made.id.substr(0, made.id.rfind('=')) + "=2";
  EXPECT_NE(generate(made).q.data, generate(find_case({made}, id)).q.data);
}

TEST(EntryTest, OneFileIsLoadedAsAFolderIsThatHasNoOther) {
  CaseFolder folder;
  folder.write("found.json", to_case_file("One.", {entry(json::object())}));
  folder.write("report.json", "{}");
  const auto cases =
      load_cases(std::filesystem::temp_directory_path() /
                 "attest_cases_EntryTest_OneFileIsLoadedAsAFolderIsThatHasNoOther" / "found.json");
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].id, "found/some/dtype=bf16/data=std10/s=1");
}

TEST(EntryTest, FileReadsLikeOneWrittenByHand) {
  json long_one = entry({{"batch", 2}, {"mask", "causal"}, {"key_len", 3}});
  long_one["because"] = std::string(90, 'x') + "\xff";
  const std::string text = to_case_file("About.", {entry(json::object()), long_one});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 100 || line.find("because") != line.npos) << line;
  }
  EXPECT_THAT(text,
              testing::StartsWith("{\n  \"about\": \"About.\",\n  \"cases\": [\n    {\n      "
                                  "\"name\": \"some\",\n      \"clauses\": [\"SOFTMAX-1\"],"));
  EXPECT_THAT(text,
              HasSubstr("\"problem\": {\"batch\": 2, \"key_len\": 3, \"mask\": \"causal\"},"));
}

TEST(EntryTest, ComplainsOfWhatIsNotOneCase) {
  json two = entry(json::object());
  two["data"] = {"normal", "std10"};
  EXPECT_THROW(read_entry(two, "found"), InputError);
  EXPECT_THROW(read_entry(entry({{"key_heads", 2}, {"query_heads", 3}}), "found"), InputError);
  EXPECT_THROW(read_entry(entry({{"colour", 2}}), "found"), InputError);
}

}  // namespace
}  // namespace attest
