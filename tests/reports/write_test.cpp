#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "reports/reports.h"
#include "spec/json_reader.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class WriteReportsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "attest_reports_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(WriteReportsTest, WritesEveryReportIntoANewFolder) {
  const Record record = realistic_record();
  const auto out = folder_ / "reports" / "out";
  write_reports(record, out);
  EXPECT_EQ(content_of(out / "report.json"), to_report_json(record));
  EXPECT_EQ(content_of(out / "junit.xml"), to_junit_xml(record));
  EXPECT_EQ(content_of(out / "summary.md"), to_summary_markdown(record));
  EXPECT_EQ(content_of(out / "index.html"), to_html(record));
}

TEST_F(WriteReportsTest, ReportsAreTheSameWhenMadeFromTheFile) {
  std::stringstream file;
  const Record record = realistic_record();
  file << to_line(record.header) << '\n';
  for (const VerdictRecord& v : record.verdicts) file << to_line(v) << '\n';
  file << to_line(*record.footer) << '\n';
  const Record again = read_record(file);
  EXPECT_EQ(to_report_json(again), to_report_json(record));
  EXPECT_EQ(to_html(again), to_html(record));
}

TEST_F(WriteReportsTest, RefusesAFolderThatCannotBe) {
  std::ofstream(folder_ / "file") << "in the way";
  EXPECT_THROW(write_reports(realistic_record(), folder_ / "file"), InputError);
  std::filesystem::create_directories(folder_ / "out" / "index.html");
  EXPECT_THROW(write_reports(realistic_record(), folder_ / "out"), InputError);
}

}  // namespace
}  // namespace attest
