#include "reports/text.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace attest {
namespace {

using testing::HasSubstr;

TEST(TextTest, CleanKeepsValidUtf8) {
  const std::string text = "a\tb\nünï \xE2\x82\xAC \xF0\x9F\x94\xA5";
  EXPECT_EQ(clean(text), text);
}

TEST(TextTest, CleanReplacesEachByteThatIsNoUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(clean("\xff"), bad);
  EXPECT_EQ(clean("\xc3"), bad);                                // cut off
  EXPECT_EQ(clean("\xc3("), bad + "(");                         // continued wrongly
  EXPECT_EQ(clean("\xc0\xaf"), bad + bad);                      // overlong
  EXPECT_EQ(clean("\xe0\x80\xaf"), bad + bad + bad);            // overlong
  EXPECT_EQ(clean("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(clean("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
}

TEST(TextTest, CleanShowsControlCharactersAsPictures) {
  EXPECT_EQ(clean("\x1b[31m"), "␛[31m");
  EXPECT_EQ(clean(std::string_view("\0", 1)), "␀");
  EXPECT_EQ(clean("\r\x7f"), "␍␡");
}

TEST(TextTest, CleanRemovesWhatTurnsTheWritingDirection) {
  EXPECT_EQ(clean("a\xe2\x80\xae"
                  "b\xe2\x81\xa6"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

RC_GTEST_PROP(TextTest, CleanIsValidUtf8WithoutControlsForAnyBytes, (const std::string& bytes)) {
  const std::string text = clean(bytes);
  (void)nlohmann::json(text).dump();  // throws for broken UTF-8
  for (const char c : text)
    RC_ASSERT(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
  RC_ASSERT(clean(text) == text);
}

TEST(TextTest, OneLineHasOneLine) { EXPECT_EQ(one_line("a\nb\tc"), "a b c"); }

TEST(TextTest, ExcerptKeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(excerpt("short"), "short");
  std::string text = "x";  // so that the cuts fall within a character
  for (int i = 0; i < 10000; ++i) text += "ü";
  const std::string cut = excerpt("begin" + text + "end");
  EXPECT_LT(cut.size(), 9000u);
  EXPECT_EQ(clean(cut), cut);
  EXPECT_EQ(cut.rfind("begin", 0), 0u);
  EXPECT_EQ(cut.substr(cut.size() - 3), "end");
  EXPECT_THAT(cut, HasSubstr("bytes left out"));
}

TEST(TextTest, LastLinesAreThoseOfTheEnd) {
  EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a\nb\nc", 3), "a\nb\nc");
  EXPECT_EQ(last_lines("\nb\n\n", 5), "\nb");
  EXPECT_EQ(last_lines("a", 1), "a");
  EXPECT_EQ(last_lines("a\nb", 0), "");
  EXPECT_EQ(last_lines("", 3), "");
}

TEST(TextTest, PaddingCountsCharactersNotBytes) {
  EXPECT_EQ(pad_right("ü", 3), "ü  ");
  EXPECT_EQ(pad_left("ü", 3), "  ü");
  EXPECT_EQ(pad_left("long", 3), "long");
}

TEST(TextTest, NumbersThatAreNotFiniteHaveNames) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(number_text(-nan), "nan");
  EXPECT_EQ(ratio_text(-nan), "nan");
  EXPECT_EQ(number_text(-inf), "-inf");
  EXPECT_EQ(ratio_text(inf), "inf");
  EXPECT_EQ(duration_text(inf), "inf s");
  EXPECT_EQ(duration_text(nan), "nan s");
}

TEST(TextTest, OfManyLinesTheFirstAndTheLastAreQuoted) {
  const std::string all = "    | a\n    | b\n    | c\n    | d\n";
  EXPECT_EQ(quoted_lines("a\nb\nc\nd\n\n", 2, 2, ""), all);
  EXPECT_EQ(quoted_lines("a\nb\nc\nd", 0, 4, ""), all);
  EXPECT_EQ(quoted_lines("a\nb\nc\nd", 1, 1, ""),
            "    | a\n    [... 2 lines left out ...]\n    | d\n");
  EXPECT_EQ(quoted_lines("a\nb\nc\nd", 0, 1, ""), "    | d\n");
  EXPECT_EQ(quoted_lines("", 1, 1, ""), "");
}

TEST(TextTest, NumbersTellNeighbouringFloatsApart) {
  EXPECT_NE(number_text(1.0f), number_text(std::nextafter(1.0f, 2.0f)));
}

TEST(TextTest, DurationsReadNaturally) {
  EXPECT_EQ(duration_text(1.25), "1.25 s");
  EXPECT_EQ(duration_text(185), "3 min 5 s");
  EXPECT_EQ(duration_text(3600 * 2 + 60), "2 h 1 min");
}

TEST(TextTest, EvidenceNamesElementValuesAndRatio) {
  const TensorEvidence evidence = {.max_ratio = 112000,
                                   .worst = {0, 1, 5, 3},
                                   .actual = 0.959,
                                   .exact = -0.158,
                                   .bound = 1e-5,
                                   .compared = 8};
  EXPECT_EQ(evidence_text(TensorName::o, evidence),
            "O[0,1,5,3] = 0.959, exact -0.158, bound 1e-05, ratio 1.12e+05");
  EXPECT_EQ(evidence_text(TensorName::o, {}), "O: nothing compared");
}

}  // namespace
}  // namespace attest
