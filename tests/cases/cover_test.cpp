// Entries that are covering arrays: what a row means, that its id stays, what its rows cover.
#include "cases/cover.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "tests/cases/case_folder.h"
#include "tests/cases/cover_file.h"
#include "tests/cases/meetings.h"

namespace attest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file with one covering array of these axes and rows.
std::string file_of(const std::string& features, const std::string& situations,
                    const std::string& rows, const std::string& strength = "2") {
  return fmt::format(
      R"({{"about": "a", "defaults": {{"dtypes": ["f32"], "data": ["normal"], "query_len": 4}},
          "cases": [{{"name": "all", "clauses": ["SOFTMAX-1"], "because": "b",
                      "cover": {{"strength": {}, "features": [{}], "situations": [{}],
                                 "rows": [{}]}}}}]}})",
      strength, features, situations, rows);
}

constexpr const char* kMask =
    R"({"of": "mask", "values": [{}, {"mask": "causal", "clauses": ["MASK-2"]}]})";
constexpr const char* kKeys = R"({"of": "keys", "values": [{"key_len": 5}, {"key_len": [7, 9]}]})";
constexpr const char* kFormat = R"({"of": "format", "values": [{}, {"dtypes": ["bf16"]}]})";

std::map<std::string, Case> by_row(const std::string& text) {
  std::map<std::string, Case> cases;
  for (Case& c : CaseFolder().write("cover.json", text).load()) {
    const auto begin = c.id.find("r=") + 2;
    cases.emplace(c.id.substr(begin, c.id.find('/', begin) - begin), std::move(c));
  }
  return cases;
}

TEST(CoverTest, ARowIsWhatItsLettersSay) {
  const auto cases =
      by_row(file_of(kMask, std::string(kKeys) + "," + kFormat, R"("0.00", "1.01", "1.11")"));
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases.at("0.00").id, "cover/all/r=0.00/dtype=f32/data=normal/s=1");
  EXPECT_EQ(cases.at("0.00").problem.key_len, 5);
  EXPECT_EQ(cases.at("1.01").problem.dtype, DType::bf16);
  EXPECT_EQ(cases.at("1.01").problem.mask.kind, Mask::Kind::band);
  EXPECT_THAT(cases.at("1.11").problem.key_len, testing::AnyOf(7, 9));
  EXPECT_THAT(cases.at("1.01").clauses, testing::Contains("MASK-2"));
}

TEST(CoverTest, LettersThatARowLacksAreFirstValues) {
  const auto cases = by_row(file_of(kMask, std::string(kKeys) + "," + kFormat, R"("1.", ".1")"));
  EXPECT_EQ(cases.at("1.").problem.key_len, 5);
  EXPECT_EQ(cases.at(".1").problem.mask.kind, Mask::Kind::full);
}

TEST(CoverTest, IdsAndProblemsStayWhenValuesAxesAndRowsAreAdded) {
  const std::string before = file_of(kMask, kKeys, R"("1.1")");
  const std::string after = file_of(
      R"({"of": "mask", "values": [{}, {"mask": "causal"}, {"mask": "window -1..1"}]},
         {"of": "softcap", "values": [{}, {"softcap": 1}]})",
      std::string(
          R"({"of": "keys", "values": [{"key_len": 5}, {"key_len": [7, 9]}, {"key_len": 1}]})") +
          "," + kFormat,
      R"("20.01", "1.1", "01.20")");
  const Case old = by_row(before).at("1.1"), now = by_row(after).at("1.1");
  EXPECT_EQ(old.id, now.id);
  EXPECT_EQ(to_string(old.problem), to_string(now.problem));
}

TEST(CoverTest, LengthsAreMadeOfTheSizesAndOneIsWhole) {
  const auto cases = by_row(file_of(kMask,
                                    R"({"of": "batch", "values": [{"batch": 3}]},
         {"of": "keys", "values": [{"key_len": 50}]},
         {"of": "storage", "values": [{"lengths": "keys"}, {"packed": true, "lengths": "both"},
                                      {"paging": {"page_size": 16}, "lengths": "keys"}]})",
                                    R"("0.000", "0.001", "0.002")"));
  for (const char* row : {"0.000", "0.001", "0.002"}) {
    const Problem& p = cases.at(row).problem;
    EXPECT_EQ(p.key_lens.size(), 3u);
    EXPECT_EQ(*std::max_element(p.key_lens.begin(), p.key_lens.end()), 50) << row;
    EXPECT_EQ(p.key_len, 50);
  }
  EXPECT_TRUE(cases.at("0.001").problem.packed);
  EXPECT_EQ(cases.at("0.001").problem.query_len, 4);
  EXPECT_EQ(cases.at("0.002").problem.paging.page_size, 16);
}

TEST(CoverTest, NamesWhatIsWrongAndWhere) {
  const auto error = [](const std::string& features, const std::string& situations,
                        const std::string& rows, const std::string& strength = "2") {
    return CaseFolder().write("c.json", file_of(features, situations, rows, strength)).error();
  };
  EXPECT_THAT(error(kMask, kKeys, R"("2.0")"), HasSubstr("\"2.0\" is no row"));
  EXPECT_THAT(error(kMask, kKeys, R"("00")"), HasSubstr("\"00\" is no row"));
  EXPECT_THAT(error(kMask, kKeys, R"("0.000")"), HasSubstr("is no row"));
  EXPECT_THAT(error(kMask, kKeys, R"("0.0", "0.0")"), HasSubstr("stands twice"));
  EXPECT_THAT(error(kMask, kMask, R"("0.0")"), HasSubstr("stands twice"));
  EXPECT_THAT(error(kMask, kKeys, R"("0.0")", "9"), HasSubstr("strength"));
  EXPECT_THAT(error(R"({"of": "mask", "values": []})", kKeys, ""), HasSubstr("values"));
  EXPECT_THAT(error(R"({"of": "mask", "values": [{"msk": "causal"}]})", kKeys, R"("0.0")"),
              HasSubstr("msk"));
  EXPECT_THAT(error(R"({"of": "m", "values": [{"lengths": "all"}]})", kKeys, R"("0.0")"),
              HasSubstr("lengths"));
}

// What no row has is impossible, beyond what a row may cost, or not seen: whether it is, is tried.
TEST(CoverTest, RowsCoverEveryMeetingOfTheirStrengthThatSomeProblemHas) {
  CoverFile file(std::string(ATTEST_CASES_DIR) + "/cover/dispatch.json");
  const Cover& cover = file.cover();
  Meetings meetings(cover, cover.strength);
  for (const std::string& row : cover.rows) meetings.add(cover.places_of(row));
  std::size_t impossible = 0;
  meetings.for_each_missing([&](const auto& axes, const auto& values) {
    // As small as it can be beside.
    CoverPlaces places(cover.axis_count(), 0);
    for (std::size_t n = 0; n < axes.size(); ++n) places[axes[n]] = values[n];
    const auto made = file.case_of(cover.row_of(places));
    std::string words;
    for (std::size_t n = 0; n < axes.size(); ++n) {
      words += fmt::format(" {} {}", cover.axis(axes[n]).of,
                           cover.axis(axes[n]).values[values[n]].dump());
    }
    EXPECT_FALSE(made && is_worth_a_case(*made)) << "no row has" << words;
    ++impossible;
  });
  Meetings threes(cover, 3);
  for (const std::string& row : cover.rows) threes.add(cover.places_of(row));
  fmt::print("{} rows: {} of {} meetings of {}, {} impossible; {} of {} of three\n",
             cover.rows.size(), meetings.met(), meetings.size(), cover.strength, impossible,
             threes.met(), threes.size());
}

}  // namespace
}  // namespace attest
