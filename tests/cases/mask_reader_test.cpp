#include "cases/mask_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

RC_GTEST_PROP(MaskReaderTest, TextOfABandParsesBack, ()) {
  const auto width = [] {
    return *rc::gen::oneOf(rc::gen::just(kUnbounded), rc::gen::inRange<Index>(0, 1000));
  };
  const Anchor anchor = *rc::gen::element(Anchor::top_left, Anchor::bottom_right);
  const Mask mask = Mask::window(width(), width(), anchor, *rc::gen::inRange<Index>(-1000, 1000));
  const Mask parsed = parse_mask(to_string(mask));
  RC_ASSERT(parsed.kind == mask.kind);
  RC_ASSERT(parsed.anchor == mask.anchor);
  RC_ASSERT(parsed.left == mask.left);
  RC_ASSERT(parsed.right == mask.right);
  RC_ASSERT(parsed.offset == mask.offset);
}

RC_GTEST_PROP(MaskReaderTest, TextOfADilationParsesBack, ()) {
  const Mask mask = Mask::dilated(*rc::gen::inRange<Index>(1, 100),
                                  *rc::gen::element(Anchor::top_left, Anchor::bottom_right),
                                  *rc::gen::inRange<Index>(-1000, 1000));
  const Mask parsed = parse_mask(to_string(mask));
  RC_ASSERT(parsed.kind == mask.kind);
  RC_ASSERT(parsed.anchor == mask.anchor);
  RC_ASSERT(parsed.offset == mask.offset);
  RC_ASSERT(parsed.dilation == mask.dilation);
}

TEST(MaskReaderTest, AnchorIsTopLeftUnlessGiven) {
  EXPECT_EQ(to_string(parse_mask("causal")), "causal top_left");
  EXPECT_EQ(to_string(parse_mask("window -3..*")), "window -3..* top_left");
  EXPECT_EQ(to_string(parse_mask("full")), "full");
}

TEST(MaskReaderTest, RefusesWhatIsNoMask) {
  for (const char* text : {"",
                           "full causal",
                           "causal left",
                           "window",
                           "window 3",
                           "window -3..-1",
                           "window -3..1..2",
                           "window -x..1",
                           "causal offset=",
                           "causal offset=1.5",
                           "prefix",
                           "prefix -1",
                           "prefix 3 top_left",
                           "dilated",
                           "dilated 0",
                           "dilated x",
                           "dilated 2 sideways",
                           "causal top_left bottom_right",
                           "causal offset=1 top_left offset=1",
                           "window -9223372036854775808..0",
                           "window -9223372036854775807..0",
                           "window 0..9223372036854775807"}) {
    EXPECT_THROW(parse_mask(text), InputError) << text;
  }
}

// The mask as rows of x and . for batch element `b` and head `h`.
std::string drawn(const char* json_text, const Problem& sizes, Index b = 0, Index h = 0) {
  const Mask mask = read_mask(parse_json(json_text), "", sizes, "seed");
  std::string text;
  for (Index i = 0; i < sizes.query_len; ++i) {
    for (Index j = 0; j < sizes.key_len; ++j) {
      text +=
          mask.allows({.batch = b, .head = h, .query = i, .key = j}, sizes.lengths(b)) ? 'x' : '.';
    }
    text += ' ';
  }
  return text;
}

const Problem kSizes{.batch = 2, .query_heads = 2, .key_heads = 1, .query_len = 3, .key_len = 6};

TEST(MaskReaderTest, PatternsDrawWhatTheirNamesSay) {
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "checkerboard"}})", kSizes), "x.x.x. .x.x.x x.x.x. ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "hide_first_tile", "tile": 2}})", kSizes),
            "..xxxx ..xxxx ..xxxx ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "hide_middle_tile", "tile": 2}})", kSizes),
            "xx..xx xx..xx xx..xx ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "hide_last_tile", "tile": 4}})", kSizes),
            "xxxx.. xxxx.. xxxx.. ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "keep_last_tile", "tile": 4}})", kSizes),
            "....xx ....xx ....xx ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "first_rows_empty", "tile": 2}})", kSizes),
            "...... ...... xxxxxx ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "last_rows_empty", "tile": 2}})", kSizes),
            "xxxxxx ...... ...... ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "odd_rows_empty"}})", kSizes), "xxxxxx ...... xxxxxx ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "one_key"}})", kSizes), "...x.. ....x. .....x ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "all_but_one_key"}})", kSizes), "xxx.xx xxxx.x xxxxx. ");
  EXPECT_EQ(drawn(R"({"dense": {"pattern": "nothing", "axes": ""}})", kSizes),
            "...... ...... ...... ");
  EXPECT_EQ(drawn(R"({"dense": {"rows": ["x.x...", "......", "xxxxxx"]}})", kSizes, 1, 1),
            "x.x... ...... xxxxxx ");
}

TEST(MaskReaderTest, SparseMasksDrawWhatTheirWordsSay) {
  EXPECT_EQ(drawn(R"("prefix 2")", kSizes), "xx.... xx.... xx.... ");
  EXPECT_EQ(drawn(R"({"prefix": [1, 4]})", kSizes, 1), "xxxx.. xxxx.. xxxx.. ");
  EXPECT_EQ(drawn(R"("dilated 4 bottom_right offset=-1")", kSizes), "..x... ...x.. x...x. ");
  EXPECT_EQ(drawn(R"({"block_sparse": {"block": [2, 4], "pattern": "checkerboard"}})", kSizes),
            "xxxx.. xxxx.. ....xx ");
  EXPECT_EQ(
      drawn(R"({"block_sparse": {"block": [2, 4], "pattern": "checkerboard"}})", kSizes, 0, 1),
      "....xx ....xx xxxx.. ")
      << "another head, another table";
  EXPECT_EQ(drawn(R"({"block_sparse": {"block": [2, 4], "pattern": "checkerboard", "axes": "b"}})",
                  kSizes, 0, 1),
            "xxxx.. xxxx.. ....xx ");
  EXPECT_EQ(drawn(R"({"block_sparse": {"block": [3, 3], "rows": [".x"]}})", kSizes),
            "...xxx ...xxx ...xxx ");
}

TEST(MaskReaderTest, SegmentsDrawWhatTheirWordsSay) {
  const auto segments = [](const char* members, Index b = 0) {
    return drawn((std::string(R"({"segments": {)") + members + "}}").c_str(), kSizes, b);
  };
  EXPECT_EQ(segments(R"("query": [0, 1, -1], "key": [0, 0, 1, -1, 1, 2])"),
            "xx.... ..x.x. ...... ");
  EXPECT_EQ(segments(R"("query": [0, 1, 2], "key": [[0, 0, 0, 0, 0, 0], [2, 2, 1, 1, 0, 0]])", 1),
            "....xx ..xx.. xx.... ");
  EXPECT_EQ(segments(R"("pattern": "documents", "length": 2)"), "xx.... xx.... ..xx.. ");
  EXPECT_EQ(segments(R"("pattern": "documents", "length": 2)", 1), "x..... .xx... .xx... ");
  EXPECT_EQ(segments(R"("pattern": "documents", "length": 2, "axes": "")", 1),
            "xx.... xx.... ..xx.. ");
  EXPECT_EQ(segments(R"("pattern": "falling", "length": 2)"), "xx.... xx.... ..xx.. ");
  EXPECT_EQ(segments(R"("pattern": "padded", "length": 2)"), "xx.... ...... ...... ");
  EXPECT_EQ(segments(R"("pattern": "interleaved", "length": 2)"), "x.x.x. .x.x.x x.x.x. ");
  EXPECT_EQ(segments(R"("pattern": "resumed", "length": 1)"), "x.x.x. .x.x.x x.x.x. ");
  EXPECT_EQ(segments(R"("pattern": "from_the_end", "length": 2)"), "..xx.. ....xx ....xx ");
  EXPECT_EQ(segments(R"("pattern": "from_the_end", "length": 2)", 1), "...xx. ...xx. .....x ");
  EXPECT_EQ(segments(R"("pattern": "shuffled", "length": 1)"), "...x.. ....x. x....x ");
  EXPECT_EQ(segments(R"("pattern": "nothing", "length": 1)"), "...... ...... ...... ");
}

TEST(MaskReaderTest, NumbersOfSegmentsUseAll32Bits) {
  const auto value = parse_json(R"({"segments": {"pattern": "falling", "length": 3}})");
  EXPECT_EQ(read_mask(value, "", kSizes, "seed").segments->key.number[0], 0x7fffffff);
}

TEST(MaskReaderTest, BatchElementsAndHeadsDifferUnlessBroadcast) {
  const char* own = R"({"dense": {"pattern": "hide_first_tile", "tile": 2}})";
  EXPECT_EQ(drawn(own, kSizes, 0, 1), "xx..xx xx..xx xx..xx ");
  EXPECT_EQ(drawn(own, kSizes, 1, 0), "xxxx.. xxxx.. xxxx.. ");
  const char* shared = R"({"dense": {"pattern": "random", "percent": 50, "axes": "qk"}})";
  EXPECT_EQ(drawn(shared, kSizes, 0, 0), drawn(shared, kSizes, 1, 1));
  const char* random = R"({"dense": {"pattern": "random", "percent": 50}})";
  EXPECT_NE(drawn(random, kSizes, 0, 0), drawn(random, kSizes, 1, 1));
}

TEST(MaskReaderTest, RandomTableHasItsDensity) {
  const Problem sizes{
      .batch = 2, .query_heads = 5, .key_heads = 1, .query_len = 100, .key_len = 100};
  for (const int percent : {0, 2, 30, 99, 100}) {
    const nlohmann::json value = {{"dense", {{"pattern", "random"}, {"percent", percent}}}};
    const Mask mask = read_mask(value, "", sizes, "seed");
    double sum = 0;
    for (const auto allowed : mask.table->allowed) sum += allowed;
    EXPECT_NEAR(sum / 1e5, percent / 100.0, 0.01) << percent;
  }
}

TEST(MaskReaderTest, PartsOfAnIntersectionHaveTablesOfTheirOwn) {
  const auto value = parse_json(R"({"all_of": [
      {"dense": {"pattern": "random", "percent": 50}},
      {"dense": {"pattern": "random", "percent": 50}}]})");
  const Mask mask = read_mask(value, "", kSizes, "seed");
  EXPECT_NE(mask.parts[0].table->allowed, mask.parts[1].table->allowed);
}

}  // namespace
}  // namespace attest
