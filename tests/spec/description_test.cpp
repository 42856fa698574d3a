#include "spec/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/description_text.h"
#include "spec/json_reader.h"
#include "spec/named_arithmetic.h"

namespace attest {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json sound_description() {
  return {{"name", "k"},
          {"version", "1"},
          {"vendor", "v"},
          {"profiles", {"forward-core"}},
          {"dtypes", {"f32", "bf16"}},
          {"features", {"causal", "lse"}},
          {"arithmetic", {{"f32", {{"exp_ulp", 1}}}}}};
}

std::string description_error(const json& text) {
  try {
    parse_description(text);
  } catch (const InputError& error) {
    return error.pointer() + ": " + error.what();
  }
  return "";
}

TEST(DescriptionTest, ReadsWhatATesteeSays) {
  const Description d = parse_description(sound_description());
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
  EXPECT_EQ(d.declared_arithmetic, sound_description()["arithmetic"]);
}

TEST(DescriptionTest, ArithmeticGoesByItsName) {
  json text = sound_description();
  text["arithmetic"] = "exact-f32";
  const Description d = parse_description(text);
  for (const DType dtype : d.dtypes) {
    EXPECT_EQ(d.arithmetic.at(dtype), description_by("exact-f32", dtype).arithmetic.at(dtype));
    EXPECT_EQ(d.declared_arithmetic[std::string(name(dtype))],
              declaration_named("exact-f32", dtype));
  }
  text["arithmetic"] = {{"bf16", "gpu-16bit"}, {"f32", {{"exp_ulp", 1}}}};
  EXPECT_EQ(parse_description(text).arithmetic.at(DType::bf16),
            description_by("gpu-16bit", DType::bf16).arithmetic.at(DType::bf16));
  text["arithmetic"] = "gpu-16bit";
  EXPECT_THAT(description_error(text), HasSubstr("/arithmetic/f32: gpu-16bit says nothing of f32"));
  text["arithmetic"] = "exact";
  EXPECT_THAT(description_error(text), HasSubstr("no arithmetic is called \"exact\""));
}

TEST(DescriptionTest, IsReadStrictly) {
  for (const char* key : {"name", "version", "vendor", "profiles", "dtypes", "features"}) {
    json text = sound_description();
    text.erase(key);
    EXPECT_THAT(description_error(text), HasSubstr(std::string("\"") + key + "\" is missing"));
    text[key] = 3;
    EXPECT_THAT(description_error(text), HasSubstr(std::string("/") + key + ": "));
  }
  for (const char* key : {"name", "version", "vendor"}) {
    json text = sound_description();
    text[key] = std::string(15'000'000, 'x');
    EXPECT_THAT(description_error(text),
                HasSubstr("has 15000000 characters; at most 200 are taken"));
    text[key] = "a\x1b[2J";
    EXPECT_THAT(description_error(text), HasSubstr("has control characters"));
  }
  const auto with = [](const char* key, const json& value) {
    json text = sound_description();
    text[key] = value;
    return description_error(text);
  };
  EXPECT_THAT(with("colour", "blue"), HasSubstr("/colour: unknown key"));
  EXPECT_THAT(with("profiles", {"backward"}), HasSubstr("no profile \"backward\""));
  EXPECT_THAT(with("dtypes", {"fp4"}), HasSubstr("no dtype \"fp4\""));
  EXPECT_THAT(with("features", {"casual"}), HasSubstr("no feature \"casual\""));
  EXPECT_THAT(with("features", json::array({1})), HasSubstr("/features/0: "));
  for (const int alignment : {0, -16, 24, 1024}) {
    EXPECT_THAT(with("alignment", alignment), HasSubstr("/alignment: ")) << alignment;
  }
  for (const double quantum : {-0.001, 0.008}) {
    EXPECT_THAT(with("keep_quantum", quantum), HasSubstr("/keep_quantum: ")) << quantum;
  }
  EXPECT_THAT(with("leaves_padding_unwritten", 1), HasSubstr("/leaves_padding_unwritten: "));
  EXPECT_THAT(with("empty_rows", true), HasSubstr("/empty_rows: "));
  EXPECT_THAT(with("empty_rows", {{"v", "NaN"}}), HasSubstr("/empty_rows/v: unknown key"));
  EXPECT_THAT(with("empty_rows", {{"o", ""}}), HasSubstr("/empty_rows/o: say in words"));
  for (const int alignment : {1, 64, 512}) EXPECT_EQ(with("alignment", alignment), "") << alignment;
  EXPECT_THAT(with("arithmetic", {{"f16", json::object()}}),
              HasSubstr("/arithmetic/f16: unknown key"))
      << "of a dtype that is not declared";
  EXPECT_THAT(with("arithmetic", {{"f32", {{"softmax", "bf16"}}}}),
              HasSubstr("/arithmetic/f32/softmax: "));
}

TEST(DescriptionTest, ReadsWhereATesteeDeparts) {
  const Description plain = parse_description(sound_description());
  EXPECT_FALSE(plain.leaves_padding_unwritten);
  EXPECT_EQ(plain.keep_quantum, 0);
  json text = sound_description();
  text["leaves_padding_unwritten"] = true;
  text["keep_quantum"] = 1.0 / 128;
  const Description d = parse_description(text);
  EXPECT_TRUE(d.leaves_padding_unwritten);
  EXPECT_EQ(d.keep_quantum, 1.0 / 128);
}

TEST(DescriptionTest, ReadsInWordsWhatLiesBeyondTheCaps) {
  json text = sound_description();
  EXPECT_TRUE(parse_description(text).beyond_caps.empty());
  text["beyond_caps"] = {{"bf16", "accumulates PV in bf16"}};
  const Description d = parse_description(text);
  ASSERT_EQ(d.beyond_caps.size(), 1u);
  EXPECT_EQ(d.beyond_caps.at(DType::bf16), "accumulates PV in bf16");
  text["beyond_caps"] = {{"bf16", ""}};
  EXPECT_THAT(description_error(text), HasSubstr("/beyond_caps/bf16: say in words"));
  text["beyond_caps"] = {{"bf16", true}};
  EXPECT_THAT(description_error(text), HasSubstr("/beyond_caps/bf16: "));
  text["beyond_caps"] = {{"f16", "a format that is not declared"}};
  EXPECT_THAT(description_error(text), HasSubstr("/beyond_caps/f16: unknown key"));
  text["beyond_caps"] = "all";
  EXPECT_THAT(description_error(text), HasSubstr("expected an object"));
}

TEST(DescriptionTest, AProbedOneClaimsNoProfile) {
  json text = sound_description();
  EXPECT_FALSE(parse_description(text).probed);
  text["probed"] = true;
  EXPECT_THAT(description_error(text), HasSubstr("/profiles: a declaration that was probed"));
  text["profiles"] = json::array();
  EXPECT_TRUE(parse_description(text).probed);
}

TEST(DescriptionTest, ProfilesMayBeClaimedWithWhatIsDeclared) {
  json text = sound_description();
  text["profiles"] = {"forward-core+declared", "masks"};
  EXPECT_THAT(parse_description(text).profiles, ElementsAre("forward-core+declared", "masks"));
  text["profiles"] = {"forward-core+anything"};
  EXPECT_THAT(description_error(text), HasSubstr("no profile \"forward-core+anything\""));
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
  EXPECT_EQ(missing({.query_len = 16384, .key_len = 16384}), "");
  EXPECT_EQ(missing({.key_len = 16385}), "long");
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
  EXPECT_EQ(missing({.mask = Mask::prefix({1})}), "prefix");
  EXPECT_EQ(missing({.mask = Mask::documents({})}), "segments");
  EXPECT_EQ(missing({.mask = Mask::block_sparse(1, 1, {.shape = {1, 1, 1, 1}, .allowed = {1}})}),
            "block-sparse");
  EXPECT_EQ(missing({.mask = Mask::dilated(2, Anchor::top_left)}), "dilated");
  EXPECT_EQ(missing({.softcap = 3}), "softcap");
  EXPECT_EQ(missing({.bias_shape = Shape{1, 1, 1, 1}}), "bias");
  EXPECT_EQ(missing({.bias_shape = Shape{1, 1, 1, 1}, .backward = true}), "backward, bias, dbias");
  EXPECT_EQ(missing({.slopes_shape = Shape{1, 1, 1, 1}}), "alibi");
  EXPECT_EQ(missing({.sink = true}), "sink");
  EXPECT_EQ(missing({.dropout = {.mode = Dropout::Mode::given}}), "dropout");
  EXPECT_EQ(missing({.dropout = {.mode = Dropout::Mode::generated}}), "dropout-generated");
  EXPECT_EQ(missing({.key_lens = {1}, .query_lens = {1}, .packed = true}), "packed");
  EXPECT_EQ(missing({.key_lens = {1}, .paging = {.page_size = 1, .pages = 1, .table = {{0}}}}),
            "paged");
  EXPECT_EQ(missing({.key_lens = {1},
                     .query_lens = {1},
                     .paging = {.page_size = 1, .pages = 1, .table = {{0}}}}),
            "paged, lengths")
      << "queries are padded";
  EXPECT_EQ(missing({.key_lens = {1},
                     .query_lens = {1},
                     .packed = true,
                     .paging = {.page_size = 1, .pages = 1, .table = {{0}}}}),
            "packed, paged");
  EXPECT_EQ(missing({.backward = true, .d_lse = true}), "backward, dlse");
  EXPECT_EQ(missing({.layouts = {.bias = Layout::parse("bhsd gap=1")}}), "strides");
  EXPECT_EQ(missing({.layouts = {.dv = Layout::parse("bshd")}}), "strides");
  EXPECT_EQ(missing({.layouts = {.v = Layout::parse("bhds")}}), "strides, transposed");
  EXPECT_EQ(missing({.layouts = {.k = Layout::parse("bhsd expand=bh")}}), "strides, expanded");
  EXPECT_EQ(missing({.dtype = DType::f64, .query_heads = 2, .backward = true}),
            "f64, backward, gqa");
}

TEST(DescriptionTest, ADeclaredFeatureIsNotMissing) {
  json text = sound_description();
  text["features"] = known_features();
  const Description all = parse_description(text);
  Problem problem{
      .query_heads = 2,
      .key_heads = 1,
      .query_len = 0,
      .value_dim = 3,
      .softcap = 1,
      .mask = Mask::any_of(
          {Mask::all_of({Mask::window(1, 1, Anchor::top_left), Mask::causal(Anchor::top_left)}),
           Mask::dense({.shape = {1, 1, 1, 1}, .allowed = {1}}), Mask::prefix({1}),
           Mask::documents({}), Mask::dilated(1, Anchor::top_left),
           Mask::block_sparse(1, 1, {.shape = {1, 1, 1, 1}, .allowed = {1}})}),
      .key_lens = {1},
      .bias_shape = Shape{1, 1, 1, 1},
      .slopes_shape = Shape{1, 2, 1, 1},
      .sink = true,
      .dropout = {.mode = Dropout::Mode::given, .probability = 0.5},
      .backward = true,
      .d_lse = true};
  problem.layouts.q = Layout::parse("bhsd gap=1");
  EXPECT_EQ(undeclared(problem, all), "");
}

}  // namespace
}  // namespace attest
