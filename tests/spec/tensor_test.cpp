#include "spec/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "spec/json_reader.h"

namespace attest {
namespace {

using ::testing::ElementsAre;

TEST(TensorTest, DenseIndexCountsChannelsFirst) {
  const Shape shape = {2, 3, 4, 5};
  Index expected = 0;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h)
      for (Index s = 0; s < 4; ++s)
        for (Index d = 0; d < 5; ++d, ++expected) {
          ASSERT_EQ(dense_index(shape, b, h, s, d), expected);
          ASSERT_THAT(coordinates(shape, expected), ElementsAre(b, h, s, d));
        }
  EXPECT_EQ(element_count(shape), expected);
}

TEST(TensorTest, AxesOfSizeOneHoldForAllPositions) {
  EXPECT_EQ(broadcast_index({2, 3, 4, 5}, 1, 2, 3, 4), dense_index({2, 3, 4, 5}, 1, 2, 3, 4));
  EXPECT_EQ(broadcast_index({2, 1, 4, 1}, 1, 2, 3, 4), dense_index({2, 1, 4, 1}, 1, 0, 3, 0));
  EXPECT_EQ(broadcast_index({1, 1, 1, 1}, 1, 2, 3, 4), 0);
}

TEST(TensorTest, OrdersGiveTheirStrides) {
  const Shape shape = {2, 3, 4, 5};
  EXPECT_THAT(Layout::parse("bhsd").strides(shape), ElementsAre(60, 20, 5, 1));
  EXPECT_THAT(Layout::parse("bshd").strides(shape), ElementsAre(60, 5, 15, 1));
  EXPECT_THAT(Layout::parse("bsh").strides(shape), ElementsAre(60, 5, 15, 1));
  EXPECT_THAT(Layout::parse("sbhd").strides(shape), ElementsAre(15, 5, 30, 1));
  EXPECT_THAT(Layout::parse("bhds").strides(shape), ElementsAre(60, 20, 1, 4));
}

TEST(TensorTest, GapsLieBehindEachInnermostRun) {
  const Layout layout = Layout::parse("bhsd gap=3");
  EXPECT_THAT(layout.strides({2, 3, 4, 5}), ElementsAre(96, 32, 8, 1));
  EXPECT_EQ(layout.span({2, 3, 4, 5}), 2 * 3 * 4 * 8 - 3) << "no gap behind the last run";
}

TEST(TensorTest, ExpandedAxesHaveStrideZeroAndNoRoom) {
  const Layout layout = Layout::parse("bhsd expand=bh");
  EXPECT_THAT(layout.strides({2, 3, 4, 5}), ElementsAre(0, 0, 5, 1));
  EXPECT_EQ(layout.span({2, 3, 4, 5}), 20);
  EXPECT_TRUE(layout.expands(kHead));
  EXPECT_FALSE(layout.expands(kPosition));
}

TEST(TensorTest, WildLayoutsSpoilTheStridesOfSizeOneOnly) {
  const Strides strides = Layout::parse("bhsd wild").strides({1, 3, 1, 5});
  EXPECT_GT(strides[kBatch], Index(1) << 32);
  EXPECT_GT(strides[kPosition], Index(1) << 32);
  EXPECT_EQ(strides[kHead], 5);
  EXPECT_EQ(strides[kChannel], 1);
  EXPECT_EQ(Layout::parse("bhsd wild").span({1, 3, 1, 5}), 15);
}

TEST(TensorTest, TensorsWithoutElementsSpanNothing) {
  for (const char* text : {"bhsd", "bshd gap=4", "bhsd wild"}) {
    EXPECT_EQ(Layout::parse(text).span({2, 0, 4, 5}), 0) << text;
    EXPECT_EQ(Layout::parse(text).span({2, 3, 4, 0}), 0) << text;
  }
}

// All orders, gaps and expansions on all small shapes.
TEST(TensorTest, NoTwoElementsShareAnAddressUnlessTheyAreExpanded) {
  std::string order = "bdhs";
  do {
    for (const Index gap : {0, 2}) {
      for (unsigned expanded = 0; expanded < 16; ++expanded) {
        std::string text = order, axes;
        for (std::size_t axis = 0; axis < 4; ++axis) {
          if (expanded >> axis & 1) axes += "bhsd"[axis];
        }
        if (gap > 0) text += " gap=2";
        if (!axes.empty()) text += " expand=" + axes;
        const Layout layout = Layout::parse(text);
        for (Index element = 0; element < 81; ++element) {
          const auto [b, h, s, d] = coordinates({3, 3, 3, 3}, element);
          const Shape shape = {b + 1, h + 1, s + 1, d + 1};
          const Strides strides = layout.strides(shape);
          std::set<Index> addresses;
          Index distinct = 1;
          for (std::size_t axis = 0; axis < 4; ++axis) {
            if (!(expanded >> axis & 1)) distinct *= shape[axis];
          }
          for (Index e = 0; e < element_count(shape); ++e) {
            const auto place = coordinates(shape, e);
            Index address = 0;
            for (std::size_t axis = 0; axis < 4; ++axis) address += place[axis] * strides[axis];
            addresses.insert(address);
          }
          ASSERT_EQ(static_cast<Index>(addresses.size()), distinct) << text;
          ASSERT_EQ(*addresses.begin(), 0) << text;
          ASSERT_EQ(*addresses.rbegin() + 1, layout.span(shape)) << text;
        }
        ASSERT_EQ(layout.to_string(), text);
        ASSERT_EQ(Layout::parse(layout.to_string()), layout);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(TensorTest, LayoutsAreReadStrictly) {
  for (const char* text :
       {"", "bhs", "bhsdd", "bhsx", "bhsd gap", "bhsd gap=0", "bhsd gap=-1", "bhsd gap=2x",
        "bhsd expand=", "bhsd expand=x", "bhsd tame", "BHSD", "bhsd gap=1 gap=1", "bhsd wild wild",
        "bhsd expand=bb", "bhsd expand=b expand=b", "bhsd gap=4294967297"}) {
    EXPECT_THROW(Layout::parse(text), InputError) << text;
  }
  EXPECT_EQ(Layout::parse("bshd wild expand=hb gap=7").to_string(), "bshd gap=7 expand=bh wild");
  EXPECT_EQ(Layout::parse("bhsd"), Layout{});
}

TEST(TensorTest, ValuesAreInDenseOrder) {
  Values values = zeros({1, 2, 3, 4});
  EXPECT_EQ(values.data.size(), 24u);
  values.at(0, 1, 2, 3) = 7;
  EXPECT_EQ(values.data.back(), 7);
}

}  // namespace
}  // namespace attest
