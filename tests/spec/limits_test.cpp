#include "spec/limits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/description.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of a kernel that declares most of what limits speak of.
const std::vector<std::string> kMany = {"causal", "window", "backward", "gqa",
                                        "paged",  "bias",   "strides",  "lengths"};

json description_with(const json& limits, const std::vector<std::string>& features) {
  return {{"name", "k"},
          {"version", "1"},
          {"vendor", "v"},
          {"profiles", {"forward-core"}},
          {"dtypes", {"f16", "f32"}},
          {"features", features},
          {"limits", limits}};
}

KernelLimits limits_of(const char* text, const std::vector<std::string>& features = kMany) {
  return parse_description(description_with(json::parse(text), features)).limits;
}

std::string error_of(const json& limits, const std::vector<std::string>& features = kMany) {
  try {
    parse_description(description_with(limits, features));
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}
std::string error_of(const char* limits, const std::vector<std::string>& features = kMany) {
  return error_of(json::parse(limits), features);
}

// ---- What is wrong, and where -------------------------------------------------------------------

struct WrongLimit {
  const char* limits;
  const char* where;
  const char* what;
};

void PrintTo(const WrongLimit& wrong, std::ostream* out) { *out << wrong.limits; }

class WrongLimitTest : public testing::TestWithParam<WrongLimit> {};

TEST_P(WrongLimitTest, IsToldWithWhatAndWhere) {
  const WrongLimit& wrong = GetParam();
  EXPECT_THAT(error_of(wrong.limits),
              AllOf(StartsWith(fmt::format("{}: ", wrong.where)), HasSubstr(wrong.what)));
}

INSTANTIATE_TEST_SUITE_P(
    OfForm, WrongLimitTest,
    testing::Values(
        WrongLimit{"3", "/limits", "expected an object, found 3"},
        WrongLimit{R"({"querry_len": 1})", "/limits/querry_len", "did you mean query_len?"},
        WrongLimit{R"({"query_len": "many"})", "/limits/query_len", "\"many\" is no size"},
        WrongLimit{R"({"query_len": 1.5})", "/limits/query_len", "1.5 is no size"},
        WrongLimit{R"({"key_len": -16})", "/limits/key_len",
                   "-16 is no size: a whole number from 0 to 2^40"},
        WrongLimit{R"({"key_len": [64, -1]})", "/limits/key_len/1", "-1 is no size"},
        WrongLimit{R"({"key_len": 2000000000000})", "/limits/key_len", "from 0 to 2^40"},
        WrongLimit{R"({"batch": []})", "/limits/batch", "a list of sizes is empty"},
        WrongLimit{R"({"batch": {}})", "/limits/batch", "\"min\", \"max\" or \"multiple\""},
        WrongLimit{R"({"batch": {"mim": 1}})", "/limits/batch/mim", "did you mean min?"},
        WrongLimit{R"({"batch": {"min": 9, "max": 8}})", "/limits/batch",
                   "\"min\" 9 is above \"max\" 8"},
        WrongLimit{R"({"batch": {"multiple": 0}})", "/limits/batch/multiple", "from 1 to 2^40"},
        WrongLimit{R"({"batch": {"multiple": "8"}})", "/limits/batch/multiple", "wrong type"},
        WrongLimit{R"({"batch": {"min": 17, "max": 31, "multiple": 16}})", "/limits/batch",
                   "no multiple of 16 lies within 17..31"},
        WrongLimit{R"({"head_dim": [[64, 64], 32]})", "/limits/head_dim/1",
                   "32 is no pair [D, Dv]"},
        WrongLimit{R"({"head_dim": [[64]]})", "/limits/head_dim/0", "[64] is no pair [D, Dv]"},
        WrongLimit{R"({"head_dim": [64, [64, 64]]})", "/limits/head_dim/1", "[64,64] is no size"},
        WrongLimit{R"({"square": "yes"})", "/limits/square", "wrong type: \"yes\""},
        WrongLimit{R"({"masks": "causal"})", "/limits/masks", "a list of at least one form"},
        WrongLimit{R"({"masks": []})", "/limits/masks", "a list of at least one form"},
        WrongLimit{R"({"masks": ["full", 3]})", "/limits/masks/1", "a text"},
        WrongLimit{R"({"masks": ["casual"]})", "/limits/masks/0", "did you mean causal?"},
        WrongLimit{R"({"masks": ["full top_left"]})", "/limits/masks/0", "no form of a mask"},
        WrongLimit{R"({"lengths": ["keys"]})", "/limits/lengths/0", "did you mean key?"},
        WrongLimit{R"({"lengths": "key"})", "/limits/lengths", "a list of at least one"},
        WrongLimit{R"({"bias_axes": ["kq"]})", "/limits/bias_axes/0", "in this order"},
        WrongLimit{R"({"layouts": ["bhsd", "bshd gap=3"]})", "/limits/layouts/1",
                   "no order of axes"},
        WrongLimit{R"({"backward": true})", "/limits/backward", "expected an object"},
        WrongLimit{R"({"backward": {"never": []}})", "/limits/backward/never", "unknown key"},
        WrongLimit{R"({"dtypes": ["f16"]})", "/limits/dtypes", "expected an object"},
        WrongLimit{R"({"dtypes": {"f16": {"features": "causal"}}})", "/limits/dtypes/f16/features",
                   "a list of at least one feature"},
        WrongLimit{R"({"features": ["causal"]})", "/limits/features", "unknown key"},
        WrongLimit{R"({"never": {"square": true}})", "/limits/never", "a list of objects"},
        WrongLimit{R"({"never": [{"square": true}, 3]})", "/limits/never/1", "expected an object"},
        WrongLimit{R"({"never": [{"dtypes": "f16"}]})", "/limits/never/0/dtypes",
                   "a list of at least one"}));

INSTANTIATE_TEST_SUITE_P(
    OfWhatIsNotDeclared, WrongLimitTest,
    testing::Values(WrongLimit{R"({"masks": ["prefix"]})", "/limits/masks/0",
                               "\"prefix\" is not declared"},
                    WrongLimit{R"({"head_dim": [[192, 128]]})", "/limits/head_dim/0",
                               "D and Dv differ, and \"value-dim\" is not declared"},
                    WrongLimit{R"({"dtypes": {"bf16": {"square": true}}})", "/limits/dtypes/bf16",
                               "there is no declared dtype \"bf16\""},
                    WrongLimit{R"({"dtypes": {"f16": {"features": ["softcap"]}}})",
                               "/limits/dtypes/f16/features/0", "\"softcap\" is not declared"},
                    WrongLimit{R"({"never": [{"features": ["softcap"]}]})",
                               "/limits/never/0/features/0", "\"softcap\" is not declared"},
                    WrongLimit{R"({"never": [{"lacks": ["casual"]}]})", "/limits/never/0/lacks/0",
                               "there is no feature \"casual\"; did you mean causal?"},
                    WrongLimit{R"({"never": [{"dtypes": ["bf16"]}]})", "/limits/never/0/dtypes/0",
                               "there is no declared dtype \"bf16\""}));

INSTANTIATE_TEST_SUITE_P(
    OfWhatNoProblemMeets, WrongLimitTest,
    testing::Values(
        WrongLimit{R"({"batch": 0})", "/limits", "\"batch\" takes 0, and at least 1"},
        WrongLimit{R"({"square": true, "query_len": 64, "key_len": {"min": 65}})", "/limits",
                   "\"square\", and \"query_len\" takes 64, \"key_len\" takes at least 65"},
        WrongLimit{R"({"keys_at_least_queries": true, "query_len": {"min": 9}, "key_len": 8})",
                   "/limits", "\"keys_at_least_queries\", and \"query_len\" takes at least 9"},
        WrongLimit{R"({"head_dim": 64, "value_dim": 128})", "/limits",
                   "\"value-dim\" is not declared, and \"head_dim\" takes 64"},
        WrongLimit{R"({"head_dim": [[64, 64]], "value_dim": 128})", "/limits",
                   "no pair of \"head_dim\""},
        WrongLimit{R"({"query_heads": 8, "key_heads": 3})", "/limits",
                   "\"query_heads\" takes 8, \"key_heads\" takes 3"},
        WrongLimit{R"({"query_heads": 8, "key_heads": [1, 2], "group": {"max": 3}})", "/limits",
                   "\"group\" takes at most 3"},
        WrongLimit{R"({"query_len": {"min": 128}, "key_len": {"min": 128}, "pairs": {"max": 99}})",
                   "/limits", "\"pairs\" takes at most 99"},
        WrongLimit{R"({"head_dim": 64, "backward": {"head_dim": {"min": 65}}})", "/limits/backward",
                   "\"head_dim\" takes 64, and at least 65"},
        WrongLimit{R"({"dtypes": {"f16": {"batch": 2}}, "batch": [1, 4]})", "/limits/dtypes/f16",
                   "\"batch\" takes one of 1, 4, and 2"},
        WrongLimit{R"({"dtypes": {"f16": {"batch": 2, "backward": {"batch": 3}}}})",
                   "/limits/dtypes/f16/backward", "\"batch\" takes 2, and 3"},
        WrongLimit{R"({"masks": ["full"], "backward": {"masks": ["causal"]}})", "/limits/backward",
                   "no form of a mask"},
        WrongLimit{R"({"never": [{}]})", "/limits/never/0", "nothing would ever be asked"},
        WrongLimit{R"({"batch": [1, 2], "never": [{"batch": {"max": 2}}]})", "/limits/never/0",
                   "every problem meets it"},
        WrongLimit{R"({"never": [{"square": true}, {"dtypes": ["f16", "f32"]}]})",
                   "/limits/never/1", "every problem meets it"},
        WrongLimit{R"({"never": [{"query_len": {"min": 0}, "dtypes": ["f32", "f16"]}]})",
                   "/limits/never/0", "every problem meets it"},
        WrongLimit{R"({"query_heads": 0})", "/limits", "that is not empty"},
        WrongLimit{R"({"batch": 0})", "/limits", "that is not empty"},
        WrongLimit{R"({"group": 0})", "/limits", "that is not empty"},
        WrongLimit{R"({"key_len": 0})", "/limits", "that is not empty"},
        WrongLimit{R"({"query_len": 2, "pairs": 5})", "/limits", "\"pairs\" takes 5"},
        WrongLimit{R"({"never": [{"backward": true}, {"backward": false}]})", "/limits/never",
                   "every problem meets one of them"},
        WrongLimit{R"({"never": [{"backward": false}, {"dtypes": ["f16"], "backward": true},
                                 {"dtypes": ["f32"]}]})",
                   "/limits/never", "every problem meets one of them"},
        WrongLimit{R"({"never": [{"lacks": ["causal"]}, {"features": ["causal"]}]})",
                   "/limits/never", "every problem meets one of them"},
        WrongLimit{R"({"never": [{"lacks": ["causal", "gqa"]}, {"features": ["causal", "gqa"]},
                                 {"features": ["causal"], "lacks": ["gqa"]},
                                 {"features": ["gqa"], "batch": {"min": 0}}]})",
                   "/limits/never", "every problem meets one of them"},
        WrongLimit{
            R"({"never": [{"key_len": {"max": 9}}, {"key_len": {"min": 9}, "batch": {"min": 1}}]})",
            "/limits/never", "every problem meets one of them"}));

INSTANTIATE_TEST_SUITE_P(
    OfAnotherTwenty, WrongLimitTest,
    testing::Values(
        WrongLimit{R"({"query_len": null})", "/limits/query_len", "null is no size"},
        WrongLimit{R"({"query_len": true})", "/limits/query_len", "true is no size"},
        WrongLimit{R"({"query_len": {"min": "1"}})", "/limits/query_len/min", "\"1\" is no size"},
        WrongLimit{R"({"query_len": {"multiple": 1.5}})", "/limits/query_len/multiple",
                   "\"multiple\" is of the wrong type: 1.5"},
        WrongLimit{R"({"query_len": {"step": 16}})", "/limits/query_len/step",
                   "there are max, min, multiple"},
        WrongLimit{R"({"masks": ["causal bottom"]})", "/limits/masks/0",
                   "did you mean causal bottom_right?"},
        WrongLimit{R"({"bias_axes": [1]})", "/limits/bias_axes/0", "1 is no set of axes"},
        WrongLimit{R"({"layouts": "bhsd"})", "/limits/layouts", "needed, not \"bhsd\""},
        WrongLimit{R"({"backward": {"backward": {}}})", "/limits/backward/backward",
                   "unknown key \"backward\""},
        WrongLimit{R"({"dtypes": {"f16": {"never": []}}})", "/limits/dtypes/f16/never",
                   "unknown key \"never\""},
        WrongLimit{R"({"dtypes": {"fp16": {}}})", "/limits/dtypes/fp16", "did you mean f16?"},
        WrongLimit{R"({"page_size": 0})", "/limits", "\"page_size\" takes 0"},
        WrongLimit{R"({"never": [{"features": []}]})", "/limits/never/0/features", "not []"},
        WrongLimit{R"({"never": [{"square": false}]})", "/limits/never/0/square",
                   "\"square\" is true, or left out"},
        WrongLimit{R"({"never": [{"batch": 1, "keys_at_least_queries": false}]})",
                   "/limits/never/0/keys_at_least_queries", "is true, or left out"},
        WrongLimit{R"({"never": [{"backward": {"head_dim": 64}}]})", "/limits/never/0/backward",
                   "wrong type: {\"head_dim\":64}"},
        WrongLimit{R"({"pairs": {"max": 0}})", "/limits", "\"pairs\" takes at most 0"},
        WrongLimit{R"({"value_dim": [[64, 64]]})", "/limits/value_dim/0", "[64,64] is no size"},
        WrongLimit{R"({"head_dim": {"max": 0}})", "/limits",
                   "\"head_dim\" takes at most 0, and at least 1"},
        WrongLimit{R"({"mask_offset": "0"})", "/limits/mask_offset", "from -2^40 to 2^40"},
        WrongLimit{R"({"lacks": ["causal"]})", "/limits/lacks", "unknown key \"lacks\""},
        WrongLimit{R"({"masks": ["causal"], "dtypes": {"f16": {"masks": ["full"]}}})",
                   "/limits/dtypes/f16", "no form of a mask"}));

TEST(LimitsTest, WhatSpeaksOfAFeatureNeedsItDeclared) {
  const std::pair<const char*, const char*> kSpeaking[] = {
      {"page_size", R"({"page_size": 16})"},
      {"lengths", R"({"lengths": ["key"]})"},
      {"bias_axes", R"({"bias_axes": ["hqk"]})"},
      {"layouts", R"({"layouts": ["bhsd"]})"},
      {"backward", R"({"backward": {"head_dim": 64}})"}};
  for (const auto& [key, limits] : kSpeaking) {
    EXPECT_EQ(error_of(limits), "") << limits;
    EXPECT_THAT(error_of(limits, {"causal"}),
                AllOf(StartsWith(fmt::format("/limits/{}: ", key)), HasSubstr("is not declared")));
  }
  EXPECT_THAT(error_of(R"({"never": [{"backward": true}]})", {}),
              StartsWith("/limits/never/0/backward: "));
  EXPECT_THAT(error_of(R"({"never": [{"lacks": ["lse"]}]})", {"lse"}),
              StartsWith("/limits/never/0: every problem meets it"))
      << "no problem needs it";
  EXPECT_THAT(error_of(R"({"group": 2})", {}), HasSubstr("\"group\" takes 2, and 1"));
  EXPECT_THAT(error_of(R"({"query_heads": 8, "key_heads": 4})", {}),
              HasSubstr("\"gqa\" is not declared"));
}

TEST(LimitsTest, WhatIsNarrowButPossibleIsTaken) {
  for (const char* limits :
       {R"({})", R"({"never": []})", R"({"batch": {"min": 1}})",
        R"({"query_heads": 7, "key_heads": [2, 7]})",
        R"({"square": true, "query_len": {"multiple": 48}, "key_len": {"multiple": 36}})",
        R"({"mask_offset": {"max": -1}, "masks": ["causal"]})",
        R"({"never": [{"batch": {"max": 1000000}}]})", R"({"never": [{"backward": false}]})",
        R"({"never": [{"backward": false}, {"dtypes": ["f16"], "backward": true}]})",
        R"({"never": [{"key_len": {"max": 9}}, {"key_len": {"min": 11}}]})",
        R"({"never": [{"lacks": ["causal"]}, {"features": ["causal"], "batch": 2}]})",
        R"({"never": [{"lacks": ["causal", "gqa"]}, {"features": ["causal", "gqa"]}]})",
        R"({"never": [{"key_len": {"max": 9}}, {"query_len": {"min": 10}}]})",
        R"({"masks": ["causal"], "backward": {"masks": ["causal top_left"]}})",
        R"({"head_dim": [[64, 64], [128, 128]], "backward": {"head_dim": {"max": 64}}})"}) {
    EXPECT_EQ(error_of(limits), "") << limits;
  }
}

// ---- Sets of sizes ------------------------------------------------------------------------------

TEST(SizeSetTest, SaysWhatItTakes) {
  EXPECT_EQ(SizeSet::listed({128, 64}).to_string(), "one of 64, 128");
  EXPECT_EQ(SizeSet::listed({1}).to_string(), "1");
  EXPECT_EQ(SizeSet::range(16, 4096, 16).to_string(),
            "a multiple of 16, at least 16, at most 4096");
}

RC_GTEST_PROP(SizeSetTest, FindsTheNearestOfWhatItHas, ()) {
  const auto size = [] { return *rc::gen::inRange<Index>(-40, 41); };
  const bool listed = *rc::gen::arbitrary<bool>();
  const Index least = size(), multiple = *rc::gen::inRange<Index>(1, 9);
  const SizeSet set = listed ? SizeSet::listed({least, size(), size()})
                             : SizeSet::range(least, least + 20, multiple);
  const Index from = size();
  std::optional<Index> above, below;
  for (Index n = 100; n >= from; --n) {
    if (set.has(n)) above = n;
  }
  for (Index n = -100; n <= from; ++n) {
    if (set.has(n)) below = n;
  }
  RC_ASSERT(set.at_least(from) == above);
  RC_ASSERT(set.at_most(from) == below);
}

// ---- What lies within ---------------------------------------------------------------------------

// Within most limits, of f16.
Problem usual() {
  Problem p = {.dtype = DType::f16,
               .batch = 2,
               .query_heads = 4,
               .key_heads = 2,
               .query_len = 64,
               .key_len = 128,
               .head_dim = 64};
  p.value_dim = 64;
  p.mask = Mask::causal(Anchor::top_left);
  return p;
}

std::string why(const char* limits, const Problem& problem) {
  return beyond(limits_of(limits), problem);
}

TEST(LimitsTest, EachTermSaysWhatItObjectsTo) {
  const Problem p = usual();
  const std::pair<const char*, const char*> kObjections[] = {
      {R"({"batch": 1})", "batch 2: takes 1"},
      {R"({"query_heads": {"max": 3}})", "query_heads 4: takes at most 3"},
      {R"({"key_heads": [1, 4]})", "key_heads 2: takes one of 1, 4"},
      {R"({"group": {"max": 1}})", "group 2: takes at most 1"},
      {R"({"query_len": {"multiple": 48}})", "query_len 64: takes a multiple of 48"},
      {R"({"key_len": {"min": 129}})", "key_len 128: takes at least 129"},
      {R"({"head_dim": [32, 128]})", "head_dim 64: takes one of 32, 128"},
      {R"({"head_dim": [[32, 32], [128, 128]]})", "head_dim [64, 64]: takes [32, 32], [128, 128]"},
      {R"({"pairs": {"max": 8191}})", "pairs 8192: takes at most 8191"},
      {R"({"mask_offset": 1})", "mask_offset 0: takes 1"},
      {R"({"square": true})", "query_len 64, key_len 128: takes square ones"},
      {R"({"masks": ["full", "causal bottom_right"]})",
       "mask causal top_left: takes full, causal bottom_right"},
      {R"({"dtypes": {"f16": {"features": ["gqa"]}}})", "causal: not taken in f16"},
      {R"({"dtypes": {"f16": {"batch": 1}}})", "batch 2: takes 1"},
      {R"({"never": [{"features": ["causal", "gqa"], "batch": 2}]})",
       R"(never {"batch":2,"features":["causal","gqa"]})"}};
  for (const auto& [limits, objection] : kObjections) EXPECT_EQ(why(limits, p), objection);
  EXPECT_EQ(why(R"({"dtypes": {"f32": {"batch": 1}}, "backward": {"batch": 1}})", p), "");
}

TEST(LimitsTest, KeysAtLeastQueriesAndSquareAreOfEachPackedSequence) {
  Problem p = usual();
  p.query_lens = {40, 64};
  p.key_lens = {128, 64};
  p.packed = true;
  EXPECT_EQ(why(R"({"keys_at_least_queries": true})", p), "");
  p.query_lens = {40, 65};
  p.query_len = 65;
  EXPECT_THAT(why(R"({"keys_at_least_queries": true})", p), HasSubstr("at least as many keys"));
  p.query_lens = p.key_lens;
  p.query_len = 128;
  EXPECT_EQ(why(R"({"square": true})", p), "");
  EXPECT_EQ(why(R"({"lengths": ["key"]})", p), "") << "packing has lengths of its own";
}

TEST(LimitsTest, LengthsAxesLayoutsAndPagesAreTakenAsListed) {
  Problem p = usual();
  p.query_lens = {40, 64};
  EXPECT_EQ(why(R"({"lengths": ["key"]})", p), "query lengths: not taken");
  EXPECT_EQ(why(R"({"lengths": ["key", "query"]})", p), "");
  p = usual();
  p.bias_shape = Shape{1, 4, 1, 128};
  EXPECT_EQ(why(R"({"bias_axes": ["hqk", "k"]})", p), "bias over \"hk\": takes hqk, k");
  EXPECT_EQ(why(R"({"bias_axes": ["hk"]})", p), "");
  p = usual();
  p.layouts[TensorName::v] = Layout::parse("bshd");
  EXPECT_EQ(why(R"({"layouts": ["bhsd"]})", p), "layout bshd: takes bhsd");
  p.layouts[TensorName::v] = {};
  p.layouts[TensorName::dv] = Layout::parse("bshd");
  EXPECT_EQ(why(R"({"layouts": ["bhsd"]})", p), "") << "it has no dV";
  p = usual();
  EXPECT_EQ(why(R"({"page_size": 16})", p), "") << "it has no pages";
  p.paging.page_size = 8;
  EXPECT_EQ(why(R"({"page_size": 16})", p), "page_size 8: takes 16");
}

TEST(LimitsTest, FormsOfMasksTellCornersAndWindowsApart) {
  Problem p = usual();
  const auto takes = [&](const char* form, const Mask& mask) {
    p.mask = mask;
    return why(fmt::format(R"({{"masks": ["{}"]}})", form).c_str(), p).empty();
  };
  const Mask causal = Mask::causal(Anchor::bottom_right);
  const Mask window = Mask::window(8, 0, Anchor::top_left);
  const Mask ahead = Mask::window(8, 2, Anchor::top_left);
  EXPECT_TRUE(takes("causal", causal));
  EXPECT_FALSE(takes("causal top_left", causal));
  EXPECT_TRUE(takes("causal bottom_right", causal));
  EXPECT_FALSE(takes("window", causal));
  EXPECT_TRUE(takes("window", ahead));
  EXPECT_TRUE(takes("window causal", window));
  EXPECT_FALSE(takes("window causal", ahead));
  EXPECT_FALSE(takes("full", window));
  EXPECT_FALSE(takes("window", Mask::all_of({window, causal}))) << "each part counts";
}

TEST(LimitsTest, NeverIsMetByAllOfItsTermsTogether) {
  const char* const limits =
      R"({"never": [{"features": ["gqa"], "backward": true, "query_len": 64},
                    {"lacks": ["causal"], "key_len": {"max": 100}}]})";
  Problem p = usual();
  EXPECT_EQ(why(limits, p), "");
  p.backward = true;
  EXPECT_THAT(why(limits, p), StartsWith("never {\"backward\":true"));
  p.query_len = 65;
  EXPECT_EQ(why(limits, p), "");
  p.key_len = 100;
  EXPECT_EQ(why(limits, p), "");
  p.mask = Mask::full();
  EXPECT_THAT(why(limits, p), HasSubstr("lacks"));
}

TEST(LimitsTest, AbsentFeaturesAreLimitsOfSizesAndLayouts) {
  Problem p = usual();
  const std::vector<std::string> all = {"gqa", "value-dim", "strides", "zero-sizes", "long"};
  const auto without = [&](const char* feature) {
    std::vector<std::string> some = all;
    std::erase(some, feature);
    return beyond(implied_by_absent(some), p);
  };
  EXPECT_EQ(without("gqa"), "group 2: takes 1");
  p.key_heads = 4;
  EXPECT_EQ(without("gqa"), "");
  p.value_dim = 32;
  EXPECT_EQ(without("value-dim"), "value_dim 32: takes head_dim's 64");
  p.layouts[TensorName::q] = Layout::parse("bshd");
  EXPECT_EQ(without("strides"), "layout bshd: takes dense bhsd");
  p.batch = 0;
  EXPECT_EQ(without("zero-sizes"), "batch 0: takes at least 1");
  p.key_len = 16385;
  EXPECT_EQ(without("long"), "key_len 16385: takes at most 16384");
  EXPECT_EQ(beyond(implied_by_absent(all), p), "");
}

}  // namespace
}  // namespace attest
