#include "spec/record.h"
#include "spec/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Header header() {
  return {.suite_version = "0.1",
          .testees = {{.name = "fa2",
                       .version = "2",
                       .vendor = "x",
                       .profiles = {"forward-core"},
                       .features = {"lse"},
                       .dtypes = {"f32"},
                       .arithmetic = {{"f32", {{"exp_ulp", 1}}}},
                       .beyond_caps = {{"f32", "anything"}},
                       .dispatch = {{.table = "a", .instances = 9, .met = 8, .fewest = 2}}}},
          .tier = "smoke",
          .seed = std::numeric_limits<std::uint64_t>::max(),
          .shard = "2/3",
          .filters = {"mask/**"},
          .from = "/home/me/mine.json",
          .shapes = {"llama3_8b", "/home/me/mine.csv"},
          .isolation = "user namespace",
          .profiles = {"masks"},
          .options = {.threads = 3,
                      .start_limit = 1.5,
                      .call_limit = 0.25,
                      .memory_limit = 512,
                      .env = {"MINE_*"},
                      .allow_network = true,
                      .require_isolation = "user"}};
}

VerdictRecord verdict(const std::string& id = "mask/causal") {
  return {.case_id = id,
          .testee = "fa2",
          .dtype = "f32",
          .because = "a \"quote\",\na newline",
          .verdict = {
              .outcome = Outcome::fail,
              .reason = "bound",
              .message = "O is far off",
              .clauses = {"MASK-2", "NUM-1"},
              .tensors = {{TensorName::o,
                           {.max_ratio = kInfinity,
                            .worst = {0, 1, 2, 3},
                            .actual = std::nan(""),
                            .exact = -kInfinity,
                            .bound = 0.1,
                            .rms = 5e-324,
                            .mean = -1e-9,
                            .compared = 12,
                            .elements = 40,
                            .noise = NoiseEvidence{.max_ratio = 0.2,
                                                   .worst = 3,
                                                   .ratio = 0.5,
                                                   .ratio_limit = 1.3,
                                                   .bias = -0.01,
                                                   .growth = 0.02,
                                                   .bias_limit = 0.6,
                                                   .compared = 12}}},
                          {TensorName::lse, {.actual = -0.0}}},
              .slopes = {{.tensor = TensorName::dq, .analytic = 1, .difference = 2, .allowed = 3}},
              .features = {"sink"},
              .schedule = {{.pass = "forward",
                            .threads = 2,
                            .blocks = 9,
                            .masked = 4,
                            .imbalance = 1.25,
                            .seen = true}},
              .pictures = {{.kind = "mask",
                            .of = "batch 0, head 1",
                            .rows = 2,
                            .columns = 9,
                            .letters = {"#.", "##"}}},
              .wall_s = 0.25,
              .time = {{.wall_s = 3, .cpu_s = 1, .idle_s = 2, .busy = true}},
              .repro = "attest repro mask/causal",
              .captured = "hello"}};
}

Footer footer() {
  return {.counts = {{"PASS", 3}, {"FAIL", 1}},
          .profiles = {{.testee = "fa2",
                        .profile = "masks",
                        .dtype = "f32",
                        .met = false,
                        .complete = true,
                        .demanded = 4,
                        .passed = 3,
                        .with = {"exp of 736 units"}}},
          .conclusion = "not conformant",
          .exit_code = 1,
          .wall_s = 2.5,
          .stages = {{"call", 1.5}}};
}

SearchRecord search() {
  return {.testee = "fa2",
          .seed = 3,
          .first = 5000,
          .next = 10000,
          .tried = {{"PASS", 4999}, {"INCONCLUSIVE", 1}},
          .inconclusive = {{"no element of O is specified", 1}}};
}

std::string whole() {
  return to_line(header()) + "\n" + to_line(verdict()) + "\n" + to_line(verdict("b")) + "\n" +
         to_line(search()) + "\n" + to_line(footer()) + "\n";
}

Record read(const std::string& text) {
  std::istringstream in(text);
  return read_record(in);
}

std::string record_error(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RecordTest, LinesComeBackAsTheyWere) {
  const Record record = read(whole());
  ASSERT_EQ(record.verdicts.size(), 2u);
  ASSERT_TRUE(record.footer);
  EXPECT_EQ(to_line(record.header), to_line(header()));
  EXPECT_EQ(to_line(record.verdicts[0]), to_line(verdict()));
  EXPECT_EQ(to_line(*record.footer), to_line(footer()));
  ASSERT_EQ(record.searches.size(), 1u);
  EXPECT_EQ(to_line(record.searches[0]), to_line(search()));
  EXPECT_EQ(record.searches[0].next, 10000u);
  // The text being equal would hide a field that neither side knows: look at the values too.
  EXPECT_EQ(record.header.seed, header().seed);
  EXPECT_EQ(record.header.testees[0].arithmetic, header().testees[0].arithmetic);
  const Verdict& read_back = record.verdicts[0].verdict;
  EXPECT_EQ(record.verdicts[0].because, verdict().because);
  EXPECT_EQ(read_back.outcome, Outcome::fail);
  EXPECT_EQ(read_back.clauses, verdict().verdict.clauses);
  EXPECT_EQ(read_back.captured, "hello");
  const TensorEvidence& evidence = read_back.tensors.at(TensorName::o);
  EXPECT_EQ(evidence.max_ratio, kInfinity);
  EXPECT_TRUE(std::isnan(evidence.actual));
  EXPECT_EQ(evidence.exact, -kInfinity);
  EXPECT_EQ(evidence.bound, 0.1);
  EXPECT_EQ(evidence.rms, 5e-324);
  EXPECT_EQ(evidence.mean, -1e-9);
  ASSERT_TRUE(evidence.noise);
  EXPECT_EQ(evidence.noise->bias_limit, 0.6);
  EXPECT_EQ(evidence.noise->growth, 0.02);
  EXPECT_FALSE(read_back.tensors.at(TensorName::lse).noise);
  ASSERT_EQ(read_back.slopes.size(), 1u);
  EXPECT_EQ(read_back.slopes[0].difference, 2);
  ASSERT_EQ(read_back.schedule.size(), 1u);
  EXPECT_EQ(read_back.schedule[0].imbalance, 1.25);
  EXPECT_TRUE(read_back.schedule[0].seen);
  ASSERT_EQ(read_back.pictures.size(), 1u);
  EXPECT_EQ(read_back.pictures[0].of, "batch 0, head 1");
  EXPECT_EQ(read_back.pictures[0].columns, 9);
  EXPECT_EQ(read_back.pictures[0].letters, (std::vector<std::string>{"#.", "##"}));
  ASSERT_EQ(read_back.time.size(), 1u);
  EXPECT_EQ(read_back.time[0].idle_s, 2);
  EXPECT_EQ(read_back.features, std::vector<std::string>{"sink"});
  EXPECT_EQ(evidence.worst, (std::vector<Index>{0, 1, 2, 3}));
  EXPECT_TRUE(std::signbit(read_back.tensors.at(TensorName::lse).actual));
  EXPECT_EQ(record.footer->profiles[0].demanded, 4);
  EXPECT_EQ(record.footer->profiles[0].with, std::vector<std::string>{"exp of 736 units"});
  EXPECT_EQ(record.header.testees[0].beyond_caps.at("f32"), "anything");
  EXPECT_EQ(record.footer->exit_code, 1);
}

TEST(RecordTest, HowManyElementsATensorHasAndWhichShapesWereJudgedComeBack) {
  std::istringstream in(to_line(header()) + "\n" + to_line(verdict()) + "\n");
  const Record record = read_record(in);
  EXPECT_EQ(record.header.shapes, header().shapes);
  EXPECT_EQ(record.verdicts.at(0).verdict.tensors.at(TensorName::o).elements, 40);
}

TEST(RecordTest, NumbersThatJsonLacksAreStrings) {
  EXPECT_EQ(number_to_json(kInfinity), "inf");
  EXPECT_EQ(number_to_json(-kInfinity), "-inf");
  EXPECT_EQ(number_to_json(std::nan("")), "nan");
  EXPECT_EQ(number_from_json("inf"), kInfinity);
  EXPECT_TRUE(std::isnan(number_from_json("nan")));
  EXPECT_EQ(number_from_json(3), 3.0);
  for (const json& wrong : {json("1"), json(nullptr), json(true), json::array()}) {
    EXPECT_THROW(number_from_json(wrong), InputError) << wrong;
  }
}

TEST(RecordTest, ALineIsALineWhateverATesteePrints) {
  VerdictRecord record = verdict();
  record.verdict.captured =
      std::string("\xff\xfe bad \xc3(", 9) + "\n\r\t\x01" + std::string(1, '\0');
  record.verdict.message = "\xe2\x82";
  const std::string line = to_line(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Record read_back = read(to_line(header()) + "\n" + line + "\n");
  EXPECT_THAT(read_back.verdicts.at(0).verdict.captured, HasSubstr(" bad "));
  EXPECT_EQ(to_line(read_back.verdicts[0]), line) << "stable once replaced";
}

TEST(RecordTest, WhatIsEmptyIsNotCaptured) {
  VerdictRecord record = verdict();
  record.verdict.captured = "";
  EXPECT_FALSE(parse_json(to_line(record)).contains("captured"));
}

// The writer may be stopped at any byte.
TEST(RecordTest, ATruncatedRecordKeepsItsWholeLines) {
  const std::string text = whole();
  const std::size_t header_end = to_line(header()).size();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string part = text.substr(0, size);
    if (size < header_end) {
      ASSERT_THAT(record_error(part), HasSubstr("the record is empty")) << size;
      continue;
    }
    const Record record = read(part);
    const bool ends_line = size == text.size() || text[size] == '\n';  // whole but for its newline
    const auto lines = std::count(part.begin(), part.end(), '\n') + (ends_line ? 1 : 0);
    ASSERT_EQ(static_cast<std::ptrdiff_t>(record.verdicts.size() + record.searches.size() +
                                          (record.footer ? 2 : 1)),
              lines)
        << size;
  }
}

TEST(RecordTest, MalformedLinesAreNamedByTheirNumber) {
  const std::string first = to_line(header()) + "\n";
  EXPECT_THAT(record_error(first + first), HasSubstr("line 2: there is a second header"));
  EXPECT_THAT(record_error(to_line(verdict()) + "\n"),
              HasSubstr("line 1: a record begins with its header"));
  EXPECT_THAT(record_error(whole() + to_line(verdict()) + "\n"),
              HasSubstr("line 6: there is a line behind"));
  EXPECT_THAT(record_error(first + "{\"kind\":\"verdict\"}\n"), HasSubstr("line 2: "));
  EXPECT_THAT(record_error(first + "{\"kind\":\"note\"}\n"),
              HasSubstr("line 2: no line is of kind \"note\""));
  EXPECT_THAT(record_error(first + "\n{oops\n"), HasSubstr("line 3: ")) << "empty lines count";
  EXPECT_THAT(record_error(first + "[1]\n"), HasSubstr("line 2: "));
  json wrong = parse_json(to_line(verdict()));
  wrong["outcome"] = "GREAT";
  EXPECT_THAT(record_error(first + json_text(wrong) + "\n"),
              HasSubstr("line 2: no outcome is called \"GREAT\""));
  wrong = parse_json(to_line(verdict()));
  wrong["tensors"]["P"] = wrong["tensors"]["O"];
  EXPECT_THAT(record_error(first + json_text(wrong) + "\n"),
              HasSubstr("line 2: no tensor is called P"));
  wrong = parse_json(to_line(header()));
  wrong["schema"] = kRecordSchema + 1;
  EXPECT_THAT(record_error(json_text(wrong) + "\n"), HasSubstr("line 1: the record has schema"));
  EXPECT_THAT(record_error(""), HasSubstr("the record is empty"));
}

TEST(RecordTest, WhatNoWriterLeavesAndNoReaderNeedsIsADefectWithItsLine) {
  const std::string text = whole(), first = to_line(header()) + "\n", nul(1, '\0');
  const auto defects = [&](const std::string& changed) { return read(changed).defects; };
  EXPECT_THAT(defects(text), testing::IsEmpty());
  EXPECT_THAT(defects(first + "\n" + text.substr(first.size())),
              testing::ElementsAre("line 2 is blank"));
  EXPECT_THAT(defects(text + " \n"), testing::ElementsAre("line 6 is blank"));
  EXPECT_THAT(defects(first.substr(0, first.size() - 1) + nul + "more\n"),
              testing::ElementsAre("line 1 holds NUL bytes"));
  EXPECT_THAT(defects(text + nul + nul), testing::ElementsAre("line 6 holds NUL bytes"));
  std::string spaced = text;
  spaced.insert(spaced.size() - 1, " ");
  EXPECT_THAT(defects(spaced), testing::ElementsAre("line 5 is not as a footer is written"));
  EXPECT_THAT(record_error(text + "{"), HasSubstr("line 6: there is a line behind the footer"));
}

TEST(RecordTest, EveryKeyOfAVerdictIsNeeded) {
  const json line = parse_json(to_line(verdict()));
  for (const auto& [key, value] : line.items()) {
    constexpr std::array kOptional = {"captured", "slopes",   "features",
                                      "schedule", "pictures", "time"};
    if (std::find(kOptional.begin(), kOptional.end(), key) != kOptional.end()) continue;
    json without = line;
    without.erase(key);
    EXPECT_THAT(record_error(to_line(header()) + "\n" + json_text(without) + "\n"),
                HasSubstr("line 2: "))
        << key;
  }
}

}  // namespace
}  // namespace attest
