#include "cases/stored_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cases/generate.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The case of an entry with these fields of its problem.
std::string stored_file(const std::string& fields, const std::string& data = "normal") {
  return R"({"about": "x", "cases": [{"name": "it", "clauses": ["FORMAT-5"], "because": "x.",
             "problem": {"batch": 2, "query_heads": 4, "key_heads": 2, "query_len": 5,
                         "key_len": 9, "head_dim": 6, )" +
         fields + R"(}, "dtypes": ["bf16"], "data": [")" + data + R"("]}]})";
}
Case stored_case(const std::string& fields, const std::string& data = "normal") {
  const std::vector<Case> cases = CaseFolder().write("a.json", stored_file(fields, data)).load();
  EXPECT_THAT(cases, SizeIs(1));
  return cases.at(0);
}
std::string stored_error(const std::string& fields) {
  return CaseFolder().write("a.json", stored_file(fields)).error();
}

double largest_magnitude(const Values& values) {
  double largest = 0;
  for (const double value : values.data) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST(StoredInputsTest, WhatIsMeantIsANumberOfTheFormatTimesAScaleOfF32) {
  for (const char* const data : {"normal", "std50", "heavy_tail", "key_names", "subnormal"}) {
    const Case c = stored_case(R"("stored": "qkv e4m3.e5m2.int8 hs")", data);
    const Inputs in = generate(c);
    const StoredInputs& stored = c.problem.stored;
    for (const auto& [how, meant, scales] :
         {std::tuple{*stored.q, &in.q, &in.q_scale}, std::tuple{*stored.k, &in.k, &in.k_scale},
          std::tuple{*stored.v, &in.v, &in.v_scale}}) {
      EXPECT_EQ(scales->shape, how.scale_shape(meant->shape));
      for (const double scale : scales->data) {
        EXPECT_EQ(scale, round_to(DType::f32, scale));
        EXPECT_TRUE(scale >= kLeastScale && scale <= kMostScale) << scale;
      }
      for (const double number : unscaled(*meant, *scales).data) {
        ASSERT_EQ(number, round_to(how.dtype, number)) << name(how.dtype) << " " << data;
      }
      EXPECT_EQ(scaled(unscaled(*meant, *scales), *scales).data, meant->data);
    }
  }
}

TEST(StoredInputsTest, TheLargestNumberIsInTheUpperHalfOfTheRangeOrAmongTheSubnormalOnes) {
  const auto largest_stored = [](const std::string& stored) {
    const Inputs in = generate(stored_case(R"("stored": ")" + stored + R"(")"));
    return largest_magnitude(unscaled(in.k, in.k_scale));
  };
  EXPECT_GE(largest_stored("qkv e4m3"), 224);
  EXPECT_LE(largest_stored("qkv e4m3"), 448);
  EXPECT_GE(largest_stored("kv e5m2 h"), 28672);
  EXPECT_LE(largest_stored("qkv e4m3 least"), smallest_normal(DType::e4m3));
  EXPECT_GT(largest_stored("qkv e5m2 s least"), 0);
  // As far as scales go.
  EXPECT_LE(largest_stored("qkv e5m2 s least"), 2 * smallest_normal(DType::e5m2));
}

TEST(StoredInputsTest, NumbersOfInt8ReachBothEndsOfItsRange) {
  const Inputs in = generate(stored_case(R"("stored": "qkv int8 hs")"));
  const Values stored = unscaled(in.k, in.k_scale);
  const auto [least, most] = std::minmax_element(stored.data.begin(), stored.data.end());
  EXPECT_EQ(*least, -128);
  EXPECT_EQ(*most, 127);
}

TEST(StoredInputsTest, NoTwoScalesAreTheSameAndNumbersThatOneElementHoldsHaveOne) {
  const Inputs in = generate(stored_case(R"("stored": "qkv e4m3 bhs")"));
  std::set<double> scales;
  for (const Values* each : {&in.q_scale, &in.k_scale, &in.v_scale}) {
    scales.insert(each->data.begin(), each->data.end());
  }
  EXPECT_THAT(scales, SizeIs(2 * 4 * 5 + 2 * (2 * 2 * 9)));
  const Case expanded = stored_case(R"("stored": "qkv e4m3 h", "layouts": {"k": "bhsd expand=h"})");
  const Inputs shared = generate(expanded);
  const Values stored = unscaled(shared.k, shared.k_scale);
  EXPECT_EQ(shared.k_scale.data[0], shared.k_scale.data[1]);
  EXPECT_EQ(stored.at(1, 0, 3, 2), stored.at(1, 1, 3, 2));
}

TEST(StoredInputsTest, WhatIsHiddenIsNaNWhereTheFormatHasNoInfinity) {
  const std::string lens = R"("key_lens": [9, 4], )";
  for (const char* const format : {"e4m3", "e5m2"}) {
    Case c = stored_case(lens + R"("stored": "qkv )" + format + R"(")");
    c.hidden = Hidden::nan;
    const Inputs in = generate(c);
    EXPECT_TRUE(std::isfinite(in.k.at(1, 0, 3, 0)));
    bool some_infinite = false;
    for (Index s = 4; s < 9; ++s) {
      for (Index d = 0; d < 6; ++d) {
        EXPECT_FALSE(std::isfinite(in.k.at(1, 0, s, d)));
        some_infinite |= std::isinf(in.k.at(1, 0, s, d));
      }
    }
    EXPECT_EQ(some_infinite, format == std::string("e5m2"));
  }
}

TEST(StoredInputsTest, ScalesOfNoKeyAreNaNAndTheNumbersThatHaveThemFinite) {
  for (const char* const axes : {"bs", "bhs"}) {
    Case c = stored_case(std::string(R"("key_lens": [9, 4], "stored": "kv int8 )") + axes + R"(")");
    c.hidden = Hidden::nan_scales;
    const Inputs in = generate(c);
    const Values stored = unscaled(in.v, in.v_scale);
    for (Index b = 0; b < 2; ++b) {
      for (Index s = 0; s < 9; ++s) {
        EXPECT_EQ(std::isnan(in.k_scale.at(b, 0, s, 0)), b == 1 && s >= 4) << b << " " << s;
        EXPECT_EQ(std::isnan(in.v.at(b, 1, s, 0)), b == 1 && s >= 4) << b << " " << s;
        EXPECT_TRUE(std::isfinite(stored.at(b, 1, s, 0)));
      }
    }
  }
  Case shared = stored_case(R"("key_lens": [9, 4], "stored": "kv int8 s")");
  shared.hidden = Hidden::nan_scales;
  for (const double scale : generate(shared).k_scale.data) EXPECT_TRUE(std::isfinite(scale));
}

// The exponent that formats of blocks share, by its definition: that of the largest magnitude less
// that of the largest number of the format (OCP Microscaling v1.0, section 6.3), and up to three
// more.
TEST(StoredInputsTest, BlocksOfChannelsShareAPowerOfTwo) {
  for (const auto& [format, block, top, digits] :
       {std::tuple{"e4m3", 32, 8, 4}, std::tuple{"e5m2", 32, 15, 3},
        std::tuple{"int8", 16, 6, 8}}) {
    const Case c =
        stored_case(R"("value_dim": 72, "stored": "qkv )" + std::string(format) + " c\"");
    const Inputs in = generate(c);
    const Index blocks = (72 + block - 1) / block;
    ASSERT_EQ(in.v_scale.shape, (Shape{2, 2, 9, blocks})) << format;
    ASSERT_EQ(in.k_scale.shape, (Shape{2, 2, 9, 1})) << "six channels are one block";
    std::set<int> distances;
    for (Index s = 0; s < 9; ++s) {
      for (Index n = 0; n < blocks; ++n) {
        const double scale = in.v_scale.at(1, 0, s, n);
        int exponent = 0;
        EXPECT_EQ(std::frexp(scale, &exponent), 0.5) << format;
        double most = 0;
        for (Index d = n * block; d < std::min<Index>(72, (n + 1) * block); ++d) {
          const double number = in.v.at(1, 0, s, d) / scale;
          most = std::max(most, std::abs(number));
          EXPECT_LE(std::abs(number), largest_finite(c.problem.stored.v->dtype));
          EXPECT_EQ(number,
                    std::ldexp(std::nearbyint(std::ldexp(
                                   number, digits - 1 - std::ilogb(number == 0 ? 1 : number))),
                               std::ilogb(number == 0 ? 1 : number) - (digits - 1)))
              << format << ": of so many digits";
        }
        distances.insert(top - std::ilogb(most));
      }
    }
    // Rounding up may take the largest one to the next power of two.
    EXPECT_GE(*distances.begin(), -1) << format;
    EXPECT_LE(*distances.rbegin(), 3) << format;
    EXPECT_GE(distances.size(), 3u) << format;
  }
}

TEST(StoredInputsTest, BfpHasNoNumberBelowMinus127) {
  for (const char* const data : {"normal", "std50", "heavy_tail"}) {
    const Inputs in = generate(stored_case(R"("stored": "qkv int8 c")", data));
    for (const double number : unscaled(in.k, in.k_scale).data) EXPECT_GE(number, -127);
  }
}

TEST(StoredInputsTest, MistakesAreNamed) {
  for (const auto& [text, what] : {std::pair{"qkv", "two to four words"},
                                   {"qkv e4m3 h least more", "two to four words"},
                                   {"qkv f16", "other formats"},
                                   {"qkx e4m3", "other tensors"},
                                   {"kk e4m3", "a tensor twice"},
                                   {"kv e4m3.e5m2.e4m3", "more formats than tensors"},
                                   {"kv e4m3 d", "other axes"},
                                   {"kv e4m3 hc", "other axes"},
                                   {"kv int8 least", "int8, all of whose numbers are alike"},
                                   {"kv e4m3 h most", "other words"}}) {
    EXPECT_THAT(stored_error(R"("stored": ")" + std::string(text) + R"(")"),
                AllOf(HasSubstr("a.json:"), HasSubstr("\"stored\" is such as"), HasSubstr(what)))
        << text;
  }
  EXPECT_THAT(stored_error(R"("stored": "q e4m3")"), HasSubstr("Q and K, K and V, or all three"));
  EXPECT_THAT(stored_error(R"("stored": "kv e4m3", "backward": true)"),
              HasSubstr("has no backward pass"));
  EXPECT_THAT(stored_error(R"("stored": "kv e4m3")"), IsEmpty());
}

}  // namespace
}  // namespace attest
