#include "harness/run/seal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/run/sha256.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

VerdictRecord a_verdict(const std::string& id, const std::string& testee = "fa2") {
  VerdictRecord v{.case_id = id, .testee = testee, .dtype = "f32", .verdict = {}};
  v.verdict.outcome = Outcome::pass;
  v.verdict.tensors[TensorName::o] = {.max_ratio = 0.1, .compared = 3};
  return v;
}

Record sealed_record(std::vector<VerdictRecord> verdicts) {
  Record record{.header = {.suite_version = "1", .testees = {{.name = "fa2"}}, .tier = "smoke"},
                .verdicts = std::move(verdicts),
                .footer = Footer()};
  seal(record);
  return record;
}

Digests digests_in(const std::string& text) {
  Seal seal;
  std::istringstream in(text);
  read_record(in, [&](std::string_view line, const nlohmann::json& json) { seal.add(line, json); });
  return seal.digests();
}

std::string lines_of(const Record& record) {
  std::string text = to_line(record.header) + "\n";
  for (const VerdictRecord& v : record.verdicts) text += to_line(v) + "\n";
  return text + to_line(*record.footer) + "\n";
}

TEST(Sha256Test, IsThatOfTheStandard) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// Whoever reads a pipe that nobody writes, or terabytes, never ends.
TEST(Sha256Test, OfWhatIsNoFileOfReasonableSizeIsAnError) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "sha256_of_files";
  fs::remove_all(folder);
  fs::create_directories(folder);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(sha256_of_file(folder / "pipe"), InputError);
  std::ofstream(folder / "sparse") << "";
  fs::resize_file(folder / "sparse", std::uintmax_t(1) << 40);
  EXPECT_THROW(sha256_of_file(folder / "sparse"), InputError);
  fs::remove_all(folder);
}

TEST(Sha256Test, OfCasesDependsOnNamesAndContentsAndOnNothingElse) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "sha256_of_cases";
  fs::remove_all(root);
  fs::create_directories(root / "mask");
  std::ofstream(root / "mask" / "a.json") << "{}";
  const std::string before = sha256_of_cases(root);
  EXPECT_EQ(before, sha256(sha256("{}") + "  mask/a.json\n"));
  std::ofstream(root / "notes.txt") << "no case";
  EXPECT_EQ(sha256_of_cases(root), before);
  fs::rename(root / "mask" / "a.json", root / "mask" / "b.json");
  EXPECT_NE(sha256_of_cases(root), before);
  EXPECT_THROW(sha256_of_file(root / "none"), InputError);
  EXPECT_THROW(sha256_of_file(root), InputError) << "a folder has no bytes";
  fs::remove_all(root);
}

TEST(SealTest, IsThatOfTheLinesThatAreWritten) {
  const Record record = sealed_record({a_verdict("a"), a_verdict("b")});
  EXPECT_EQ(digests_in(lines_of(record)), record.footer->digests);
  EXPECT_EQ(record.footer->digests.record.size(), 64u);
}

TEST(SealTest, OrderPartsAndTimesChangeNothingOfWhatWasFound) {
  const Record whole = sealed_record({a_verdict("a"), a_verdict("b"), a_verdict("a", "naive")});
  Record other = sealed_record({a_verdict("b"), a_verdict("a", "naive"), a_verdict("a")});
  EXPECT_EQ(whole.footer->digests, other.footer->digests);
  other.header.shard = "1/2";
  other.verdicts[0].verdict.wall_s = 7;
  other.verdicts[0].verdict.repro = "attest repro b --testee /elsewhere/fa2.so";
  seal(other);
  EXPECT_EQ(whole.footer->digests.verdicts, other.footer->digests.verdicts);
  EXPECT_NE(whole.footer->digests.record, other.footer->digests.record);
}

// Whatever byte of it is changed.
TEST(SealTest, AnyChangeAnywhereIsSeen) {
  Record record = sealed_record({a_verdict("a"), a_verdict("b")});
  record.verdicts[0].verdict.captured = "hello";
  record.verdicts[0].verdict.message = "it is said";
  seal(record);
  const std::string text = lines_of(record);
  const Digests whole = record.footer->digests;
  int seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '1' ? '2' : changed[i] == 'a' ? 'b' : '1';
    try {
      std::istringstream in(changed);
      const Record read = read_record(in);
      if (!read.footer) continue;  // truncated
      EXPECT_NE(digests_in(changed), read.footer->digests) << text.substr(i, 40);
      ++seen;
    } catch (const InputError&) {  // no record any more
    }
  }
  EXPECT_GT(seen, 100);
  EXPECT_EQ(digests_in(text), whole);
}

TEST(SealTest, WhatWasFoundChangesTheDigestOfTheVerdicts) {
  const Digests before = sealed_record({a_verdict("a")}).footer->digests;
  for (int what = 0; what < 4; ++what) {
    VerdictRecord v = a_verdict("a");
    if (what == 0) v.verdict.outcome = Outcome::warn;
    if (what == 1) v.verdict.reason = "bound";
    if (what == 2) v.verdict.tensors[TensorName::o].max_ratio = 0.2;
    if (what == 3) v.verdict.clauses = {"MASK-1"};
    EXPECT_NE(sealed_record({v}).footer->digests.verdicts, before.verdicts) << what;
  }
}

}  // namespace
}  // namespace attest
