// The plug-in header is read by C and C++ alike, and agrees with the vocabulary.
#include "spec/attest_plugin.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <string>

#include "spec/dtype.h"
#include "spec/mask.h"

extern "C" {
size_t c_size_of_problem(void);
size_t c_size_of_tensor(void);
size_t c_size_of_kernel(void);
}

namespace attest {
namespace {

TEST(PluginHeaderTest, IsTheSameForCAndForCpp) {
  EXPECT_EQ(c_size_of_problem(), sizeof(attest_problem));
  EXPECT_EQ(c_size_of_tensor(), sizeof(attest_tensor));
  EXPECT_EQ(c_size_of_kernel(), sizeof(attest_kernel));
}

TEST(PluginHeaderTest, DtypesAreThoseOfTheVocabulary) {
  std::ifstream file(ATTEST_SOURCE_DIR "/spec/attest_plugin.h");
  const std::string header{std::istreambuf_iterator<char>(file), {}};
  for (const DType dtype : kDTypes) {
    std::string enumerator = fmt::format("  ATTEST_{} = {},", name(dtype), static_cast<int>(dtype));
    for (char& letter : enumerator) letter = static_cast<char>(std::toupper(letter));
    EXPECT_NE(header.find(enumerator), std::string::npos) << enumerator;
    EXPECT_EQ(dtype_numbered(static_cast<attest_dtype>(dtype)), dtype);
  }
  for (const attest_dtype none : {0, int{ATTEST_FP8_E4M3}, int{ATTEST_U8}, -1}) {
    EXPECT_FALSE(dtype_numbered(none)) << none;
  }
  EXPECT_EQ(kUnbounded, ATTEST_UNBOUNDED);
}

TEST(PluginHeaderTest, TheSymbolIsTheFunctionsName) {
  const attest_plugin_get_function get = nullptr;
  EXPECT_EQ(get, nullptr);
  EXPECT_STREQ(ATTEST_PLUGIN_SYMBOL, "attest_plugin_get");
}

}  // namespace
}  // namespace attest
