#include "reports/page/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "reports/page/code.h"
#include "reports/page/files.h"
#include "reports/page/growth.h"

namespace attest::page {
namespace {

using testing::HasSubstr;

TEST(PackedTest, BytesBecomeBase64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(PackedTest, HexadecimalDigitsBecomeBytes) {
  EXPECT_EQ(bytes_of_hex("00ff7a"), std::string("\0\xffz", 3));
}

TEST(PackedTest, TextOfALotAlikeTakesLittleAndNothingBreaksOut) {
  const std::string text(100000, '<');
  EXPECT_LT(packed(text).size(), 400u);
  EXPECT_EQ(packed(text).find_first_of("<>&\"'"), std::string::npos);
  EXPECT_EQ(packed(text), packed(text));
}

TEST(CodeTest, TwoDigitsNeverLookBetterThanTheNumber) {
  EXPECT_EQ(code_of(0.0), 0);
  EXPECT_EQ(code_of(std::numeric_limits<double>::quiet_NaN()), -1);
  EXPECT_EQ(code_of(std::numeric_limits<double>::infinity()), -2);
  EXPECT_EQ(code_of(1.0), 40 * 90 + 1);
  EXPECT_EQ(code_of(0.999), code_of(1.0));
  EXPECT_EQ(code_of(1.0000000001), code_of(1.1));
  EXPECT_EQ(code_of(0.1), 39 * 90 + 1);
  EXPECT_EQ(code_of(0.12), 39 * 90 + 3);
  EXPECT_EQ(code_of(0.1201), 39 * 90 + 4);
  EXPECT_EQ(code_of(99.5), code_of(100.0));
  EXPECT_EQ(code_of(1e-300), code_of(1e-40));
  EXPECT_EQ(code_of(1e300), code_of(9.9e40));
  EXPECT_EQ(code_of(-2.0), code_of(2.0));
}

TEST(CodeTest, CodesAreInTheOrderOfTheirNumbers) {
  int before = 0;
  for (double value = 1e-39; value < 1e39; value *= 1.03) {
    EXPECT_GE(code_of(value), before) << value;
    before = code_of(value);
  }
}

TEST(GrowthTest, LengthIsTheLongestThatAnIdNames) {
  EXPECT_EQ(length_in("a/sq=17,sk=300/dtype=f32/data=normal/s=1"), 300);
  EXPECT_EQ(length_in("a/sq=17/dtype=f32/s=1"), 17);
  EXPECT_EQ(length_in("a/bsq=17/s=1"), 0);
  EXPECT_EQ(length_in("sk=5"), 5);
  EXPECT_EQ(length_in("a/sk=x"), 0);
}

TEST(GrowthTest, LengthsOfAQuarterOfAnOctaveShareAPlace) {
  EXPECT_NE(piece_of(15), piece_of(16));
  EXPECT_NE(piece_of(16), piece_of(17));
  EXPECT_EQ(piece_of(64), piece_of(75));
  EXPECT_NE(piece_of(64), piece_of(77));
  EXPECT_LT(piece_of(Index(1) << 20), 100);
}

TEST(PageFilesTest, PolicyNamesEachScriptByItsDigest) {
  // SHA-256 of nothing, as RFC 6234 has it.
  const Embedded empty = {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"};
  EXPECT_EQ(source_of(empty), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
  const Scripts scripts = all_scripts();
  for (const Embedded& file : page::scripts()) {
    EXPECT_THAT(scripts.sources, HasSubstr(source_of(file)));
    EXPECT_EQ(file.text.find("</script"), std::string::npos);
  }
}

}  // namespace
}  // namespace attest::page
