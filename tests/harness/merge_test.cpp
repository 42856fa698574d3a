#include "harness/run/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/run/conclude.h"
#include "harness/run/seal.h"
#include "harness/run/selection.h"
#include "spec/json_reader.h"
#include "spec/mask.h"

namespace attest {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kFormats = {"bf16", "f32", "f32", "bf16", "f32", "f16", "bf16"};

// Verdicts on those cases of two testees, of which the second declares what lies beyond the caps of
// f32 and bf16; each names the first case of the format.
Record record_of(const std::string& shard) {
  Record record{.header = {.suite_version = "1",
                           .testees = {{.name = "a"}, {.name = "b"}},
                           .tier = "standard",
                           .seed = 1,
                           .shard = shard},
                .verdicts = {},
                .footer = {}};
  const auto places = shard_places(kFormats.size(), shard);
  const auto add = [&](const std::string& id, const char* testee, const std::string& dtype,
                       const std::string& repro) {
    VerdictRecord v{.case_id = id, .testee = testee, .dtype = dtype, .verdict = {}};
    v.verdict.outcome = Outcome::fail;
    v.verdict.repro = repro;
    record.verdicts.push_back(v);
  };
  for (const char* dtype : {"f32", "bf16"}) {
    const auto first = std::find_if(places.begin(), places.end(),
                                    [&](std::size_t i) { return kFormats[i] == dtype; });
    if (first == places.end()) continue;
    add(std::string("declaration/beyond_caps/dtype=") + dtype, "b", dtype, std::to_string(*first));
  }
  for (const std::size_t i : places) {
    const std::string id = "case/" + std::to_string(i);
    for (const char* testee : {"a", "b"}) add(id, testee, kFormats[i], "");
    if (i % 3 != 1) continue;
    add(id + "/fit=d:65", "b", kFormats[i], "");  // which it is asked besides
    ++record.header.testees[1].besides;
  }
  record.header.cases.selected = static_cast<Index>(places.size());
  record.footer = conclude(record.header, record.verdicts);
  record.footer->wall_s = 2;
  seal(record);
  return record;
}

std::vector<Part> parts_of(int count) {
  std::vector<Part> parts;
  for (int i = 1; i <= count; ++i) {
    const std::string shard = std::to_string(i) + "/" + std::to_string(count);
    parts.push_back({.name = "part " + std::to_string(i), .record = record_of(shard)});
  }
  return parts;
}

std::string lines_of(const Record& record) {
  std::string text = to_line(record.header) + "\n";
  for (const VerdictRecord& v : record.verdicts) text += to_line(v) + "\n";
  return text + to_line(*record.footer);
}

std::string complaint(const std::vector<Part>& parts, const std::string& whole = "1/1") {
  try {
    merged(parts, whole);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(MergeTest, ShardsInAnyOrderGiveTheRecordOfTheWholeButForTimes) {
  Record whole = record_of("1/1");
  for (const int count : {1, 2, 3, 7, 9}) {  // of 9, two are empty
    whole.footer->wall_s = 2 * count;
    seal(whole);
    std::vector<Part> parts = parts_of(count);
    EXPECT_EQ(lines_of(merged(parts)), lines_of(whole)) << count;
    std::reverse(parts.begin(), parts.end());
    EXPECT_EQ(lines_of(merged(parts)), lines_of(whole)) << count;
  }
}

TEST(MergeTest, ShardsThatMakeALargerOneGiveItsRecord) {
  Record half = record_of("2/2");
  half.footer->wall_s = 6;
  seal(half);
  const std::vector<Part> parts = parts_of(6);
  std::vector<Part> even = {parts[5], parts[1], parts[3]};
  EXPECT_EQ(lines_of(merged(even, "2/2")), lines_of(half));
  EXPECT_EQ(complaint(even, "1/2"), "part 6, shard 6/6, is no part of shard 1/2");
  EXPECT_EQ(complaint(even, "2/4"), "6 shards make no shard 2/4");
  EXPECT_EQ(complaint(even), "of 6 shards there is no 1, 3, 5");
  even.erase(even.begin());
  EXPECT_EQ(complaint(even, "2/2"), "of 6 shards there is no 6");
}

TEST(MergeTest, ShardsThatAreMissingOrDoubledAreNamed) {
  std::vector<Part> parts = parts_of(4);
  parts.erase(parts.begin() + 1, parts.begin() + 3);
  EXPECT_EQ(complaint(parts), "of 4 shards there is no 2, 3");
  parts.push_back({.name = "again", .record = record_of("4/4")});
  EXPECT_EQ(complaint(parts), "part 4 and again are the same shard, 4/4");
  parts.back().record = record_of("2/3");
  EXPECT_EQ(complaint(parts), "again is of 3 shards, and part 1 of 4");
  EXPECT_EQ(complaint({}), "there is no record to merge");
  parts.resize(1);
  parts[0].record.header.shard = "1/18446744073709551615";
  EXPECT_EQ(complaint(parts),
            "of 18446744073709551615 shards there is no 2, 3, 4, 5, 6, 7, 8, 9 "
            "and 18446744073709551606 more");
  parts[0].record.header.shard = "1/18446744073709551616";
  EXPECT_THAT(complaint(parts), HasSubstr("is not I/N"));
}

TEST(MergeTest, CountsOfCasesAreHeldToTheVerdicts) {
  const auto with = [](const auto& change) {
    std::vector<Part> parts = parts_of(2);
    change(parts);
    return complaint(parts);
  };
  for (const Index selected : {Index(3), Index(5), Index(0), kUnbounded, Index(-1)}) {
    EXPECT_EQ(with([&](auto& parts) { parts[0].record.header.cases.selected = selected; }),
              "part 1 is inconsistent: 8 verdicts on " + std::to_string(selected) +
                  " cases by 2 testees");
  }
  EXPECT_THAT(with([](auto& parts) { parts[0].record.header.testees.clear(); }),
              HasSubstr("by 0 testees"));
  EXPECT_EQ(with([](auto& parts) {
              std::swap(parts[0].record.header.shard, parts[1].record.header.shard);
            }),
            "part 1 has 4 cases; as shard 2/2 of 7 cases it has 3");
}

TEST(MergeTest, OtherRunsAreRefusedByWhatDiffers) {
  const auto with = [](const auto& change) {
    std::vector<Part> parts = parts_of(2);
    change(parts[1].record.header);
    return complaint(parts);
  };
  EXPECT_EQ(with([](Header& h) { h.seed = 2; }),
            "part 1 and part 2 are of different runs: their headers differ in \"seed\" (1) (2)");
  EXPECT_THAT(with([](Header& h) { h.suite_commit = "0123"; }), HasSubstr("\"suite_commit\""));
  EXPECT_THAT(with([](Header& h) { h.testees[1].files["k.so"] = "0"; }), HasSubstr("\"testees\""));
  EXPECT_THAT(with([](Header& h) { h.cases.digest = "0123"; }), HasSubstr("\"cases\""));
  EXPECT_THAT(with([](Header& h) { h.tier = "smoke"; }), HasSubstr("\"tier\""));
  EXPECT_THAT(with([](Header& h) { h.shapes = {"mine"}; }), HasSubstr("\"shapes\""));
  EXPECT_THAT(with([](Header& h) { h.tier = kSearchTier; }), HasSubstr("of a random search"));
}

TEST(MergeTest, TruncatedAndInconsistentRecordsAreRefused) {
  std::vector<Part> parts = parts_of(2);
  parts[1].record.defects = {"line 3 is blank"};
  EXPECT_EQ(complaint(parts), "part 2 is inconsistent: line 3 is blank");
  parts[1].record.footer.reset();
  EXPECT_EQ(complaint(parts), "part 2 is truncated");
}

TEST(MergeTest, ChangedFilesOfAnyShardLeaveNothingToConclude) {
  std::vector<Part> parts = parts_of(3);
  parts[2].record.footer->changed = {"the file k.so changed"};
  EXPECT_EQ(merged(parts).footer->changed, parts[2].record.footer->changed);
  EXPECT_EQ(merged(parts).footer->exit_code, kIncomplete);
}

}  // namespace
}  // namespace attest
