// The plug-in header is read by C and C++ alike, and agrees with the vocabulary.
#include "spec/attest_plugin.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(static_cast<attest_dtype>(DType::f64), ATTEST_F64);
  EXPECT_EQ(static_cast<attest_dtype>(DType::f32), ATTEST_F32);
  EXPECT_EQ(static_cast<attest_dtype>(DType::f16), ATTEST_F16);
  EXPECT_EQ(static_cast<attest_dtype>(DType::bf16), ATTEST_BF16);
  EXPECT_EQ(kUnbounded, ATTEST_UNBOUNDED);
}

TEST(PluginHeaderTest, TheSymbolIsTheFunctionsName) {
  const attest_plugin_get_function get = nullptr;
  EXPECT_EQ(get, nullptr);
  EXPECT_STREQ(ATTEST_PLUGIN_SYMBOL, "attest_plugin_get");
}

}  // namespace
}  // namespace attest
