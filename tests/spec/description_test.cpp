#include "spec/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json sound() {
  return {{"name", "k"},
          {"version", "1"},
          {"vendor", "v"},
          {"profiles", {"forward-core"}},
          {"dtypes", {"f32", "bf16"}},
          {"features", {"causal", "lse"}},
          {"arithmetic", {{"f32", {{"exp_ulp", 1}}}}}};
}

std::string error_of(const json& text) {
  try {
    parse_description(text);
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(DescriptionTest, ReadsWhatATesteeSays) {
  const Description d = parse_description(sound());
  EXPECT_EQ(d.name, "k");
  EXPECT_EQ(d.version, "1");
  EXPECT_EQ(d.vendor, "v");
  EXPECT_THAT(d.profiles, ElementsAre("forward-core"));
  EXPECT_THAT(d.dtypes, ElementsAre(DType::f32, DType::bf16));
  EXPECT_TRUE(d.has("causal"));
  EXPECT_FALSE(d.has("window"));
  EXPECT_EQ(d.alignment, 16);
  EXPECT_LT(d.arithmetic.at(DType::f32).exp_error, loosest(DType::f32).exp_error);
  EXPECT_EQ(d.arithmetic.at(DType::bf16), loosest(DType::bf16)) << "not declared: the loosest";
  EXPECT_EQ(d.declared_arithmetic, sound()["arithmetic"]);
}

TEST(DescriptionTest, IsReadStrictly) {
  for (const char* key : {"name", "version", "vendor", "profiles", "dtypes", "features"}) {
    json text = sound();
    text.erase(key);
    EXPECT_THAT(error_of(text), HasSubstr(std::string("\"") + key + "\" is missing"));
    text[key] = 3;
    EXPECT_THAT(error_of(text), HasSubstr(std::string("/") + key + ": "));
  }
  const auto with = [](const char* key, const json& value) {
    json text = sound();
    text[key] = value;
    return error_of(text);
  };
  EXPECT_THAT(with("colour", "blue"), HasSubstr("/colour: unknown key"));
  EXPECT_THAT(with("profiles", {"backward"}), HasSubstr("no profile \"backward\""));
  EXPECT_THAT(with("dtypes", {"fp4"}), HasSubstr("no dtype \"fp4\""));
  EXPECT_THAT(with("features", {"casual"}), HasSubstr("no feature \"casual\""));
  EXPECT_THAT(with("features", json::array({1})), HasSubstr("/features/0: "));
  for (const int alignment : {0, -16, 24, 1024}) {
    EXPECT_THAT(with("alignment", alignment), HasSubstr("/alignment: ")) << alignment;
  }
  for (const int alignment : {1, 64, 512}) EXPECT_EQ(with("alignment", alignment), "") << alignment;
  EXPECT_THAT(with("arithmetic", {{"f16", json::object()}}),
              HasSubstr("/arithmetic/f16: unknown key"))
      << "of a dtype that is not declared";
  EXPECT_THAT(with("arithmetic", {{"f32", {{"softmax", "bf16"}}}}),
              HasSubstr("/arithmetic/f32/softmax: "));
}

TEST(DescriptionTest, NamesWhatAProblemNeedsBeyondTheDeclaration) {
  const auto missing = [](const Problem& problem) {
    return undeclared(problem, parse_description({{"name", "k"},
                                                  {"version", "1"},
                                                  {"vendor", "v"},
                                                  {"profiles", json::array()},
                                                  {"dtypes", {"f32"}},
                                                  {"features", json::array()}}));
  };
  EXPECT_EQ(missing({}), "");
  EXPECT_EQ(missing({.dtype = DType::f16}), "f16");
  EXPECT_EQ(missing({.query_heads = 2}), "gqa");
  EXPECT_EQ(missing({.value_dim = 2}), "value-dim");
  EXPECT_EQ(missing({.query_len = 0}), "zero-sizes");
  EXPECT_EQ(missing({.mask = Mask::causal(Anchor::top_left, 3)}), "causal");
  EXPECT_EQ(missing({.mask = Mask::window(1, 0, Anchor::top_left)}), "window");
  EXPECT_EQ(missing({.mask = Mask::dense({.shape = {1, 1, 1, 1}, .allowed = {1}})}), "dense-mask");
  EXPECT_EQ(missing({.mask = Mask::all_of(
                         {Mask::causal(Anchor::top_left), Mask::causal(Anchor::top_left)})}),
            "mask-and, causal");
  EXPECT_EQ(missing({.mask = Mask::any_of({Mask::full()})}), "mask-or");
  EXPECT_EQ(missing({.key_lens = {1}}), "lengths");
  EXPECT_EQ(missing({.query_lens = {0}}), "lengths");
  EXPECT_EQ(missing({.backward = true}), "backward");
  EXPECT_EQ(missing({.layouts = {.dv = Layout::parse("bshd")}}), "strides");
  EXPECT_EQ(missing({.layouts = {.v = Layout::parse("bhds")}}), "strides, transposed");
  EXPECT_EQ(missing({.layouts = {.k = Layout::parse("bhsd expand=bh")}}), "strides, expanded");
  EXPECT_EQ(missing({.dtype = DType::f64, .query_heads = 2, .backward = true}),
            "f64, backward, gqa");
}

TEST(DescriptionTest, ADeclaredFeatureIsNotMissing) {
  json text = sound();
  text["features"] = known_features();
  const Description all = parse_description(text);
  Problem problem{.query_heads = 2,
                  .key_heads = 1,
                  .query_len = 0,
                  .value_dim = 3,
                  .mask = Mask::any_of({Mask::all_of({Mask::window(1, 1, Anchor::top_left),
                                                      Mask::causal(Anchor::top_left)}),
                                        Mask::dense({.shape = {1, 1, 1, 1}, .allowed = {1}})}),
                  .key_lens = {1},
                  .backward = true};
  problem.layouts.q = Layout::parse("bhsd gap=1");
  EXPECT_EQ(undeclared(problem, all), "");
}

}  // namespace
}  // namespace attest
