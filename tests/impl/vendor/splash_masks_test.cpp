// The masks of the mock of splash attention, the infos that are made of them, and what its model
// says of the seed's figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "impl/vendor/splash/mask_info.h"
#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- Masks

std::vector<MaskPtr> masks_of(Shape shape) {
  const MaskPtr window = local_mask(shape, {3, 2}, 1);
  const MaskPtr stripes = [&] {
    BoolArray array{shape, {}};
    for (std::int64_t n = 0; n < shape.q_seq_len * shape.kv_seq_len; ++n) {
      array.data.push_back(n % 3 == 0);
    }
    return numpy_mask(array);
  }();
  return {full_mask(shape),
          causal_mask(shape),
          causal_mask(shape, 5),
          causal_mask(shape, -3),
          window,
          local_mask(shape, {std::nullopt, 1}, -2),
          local_mask(shape, {2, std::nullopt}, 0),
          stripes,
          logical_and(causal_mask(shape), window),
          logical_or(causal_mask(shape), stripes)};
}

TEST(SplashMaskTest, ObjectsMeanWhatLoopsSay) {
  const Shape shape{6, 8};
  HostCount count;
  const auto seen = [&](const MaskPtr& mask, std::int64_t i, std::int64_t j) {
    return dense(*mask, count).data[static_cast<std::size_t>(i * 8 + j)] != 0;
  };
  const std::vector<MaskPtr> masks = masks_of(shape);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      EXPECT_TRUE(seen(masks[0], i, j));
      EXPECT_EQ(seen(masks[2], i, j), i + 5 >= j);
      EXPECT_EQ(seen(masks[4], i, j), i - 3 + 1 <= j && j <= i + 2 + 1);
      EXPECT_EQ(seen(masks[5], i, j), j <= i + 1 - 2);
      EXPECT_EQ(seen(masks[8], i, j), seen(masks[1], i, j) && seen(masks[4], i, j));
      EXPECT_EQ(seen(masks[9], i, j), seen(masks[1], i, j) || seen(masks[7], i, j));
    }
  }
}

TEST(SplashMaskTest, MasksOfOtherShapesAreNotCombined) {
  EXPECT_THROW(logical_and(full_mask({2, 2}), full_mask({2, 4})), ValueError);
  EXPECT_THROW(MultiHeadMask({full_mask({2, 2}), full_mask({4, 2})}), ValueError);
  EXPECT_THROW(MultiHeadMask({}), ValueError);
  EXPECT_THROW(numpy_mask({{2, 2}, {1, 1, 1}}), ValueError);
}

// ---- Mask infos

MaskInfo info_of(const MaskPtr& mask, ProcessMask how) {
  HostCount count;
  return process_mask(MultiHeadMask({mask, mask}), how, count);
}

TEST(SplashMaskInfoTest, AnObjectsInfoEqualsThatOfItsArray) {
  const Shape shape{12, 16};
  HostCount count;
  for (const MaskPtr& mask : masks_of(shape)) {
    for (const bool is_dkv : {false, true}) {
      for (const bool shrink_grid : {false, true}) {
        const ProcessMask how{.block = {4, 2}, .is_dkv = is_dkv, .shrink_grid = shrink_grid};
        const MaskInfo lazy = info_of(mask, how);
        const MaskInfo array = info_of(numpy_mask(dense(*mask, count)), how);
        EXPECT_EQ(lazy.data_next, array.data_next);
        EXPECT_EQ(lazy.block_mask, array.block_mask);
        EXPECT_TRUE(array.q_sequence.empty());
        if (lazy.mask_function) continue;  // the kernel computes what the array's brings
        EXPECT_EQ(lazy.mask_next, array.mask_next);
        EXPECT_EQ(lazy.partial_mask_blocks, array.partial_mask_blocks);
      }
    }
  }
}

// What JAX makes of it: `process_mask` of MultiHeadMask([NumpyMask(causal)]), 8 x 8 in blocks of 2.
TEST(SplashMaskInfoTest, ACausalMaskHasTheTablesThatJaxMakes) {
  HostCount count;
  const MaskPtr array = numpy_mask(make_causal_mask({8, 8}, 0, count));
  const MaskInfo forward = info_of(array, {.block = {2, 2}, .is_dkv = false});
  EXPECT_THAT(forward.block_mask.entries,
              ElementsAre(1, 0, 0, 0, 2, 1, 0, 0, 2, 2, 1, 0, 2, 2, 2, 1));
  EXPECT_THAT(forward.data_next.entries,
              ElementsAre(0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0, 1, 2, 3));
  EXPECT_THAT(forward.mask_next->entries, testing::Each(0));
  EXPECT_THAT(forward.partial_mask_blocks, ElementsAre(1, 0, 1, 1));
  const MaskInfo dkv = info_of(array, {.block = {2, 2}, .is_dkv = true, .shrink_grid = false});
  EXPECT_THAT(dkv.data_next.entries, ElementsAre(0, 1, 2, 3, 1, 1, 2, 3, 2, 2, 2, 3, 3, 3, 3, 3));
  EXPECT_THAT(dkv.partial_mask_blocks, ElementsAre(1, 1, 0, 1));  // keys by queries
}

TEST(SplashMaskInfoTest, AWindowShrinksTheGridToItsWidestRow) {
  const MaskPtr window = local_mask({16, 16}, {3, 0}, 0);
  const MaskInfo forward = info_of(window, {.block = {2, 2}, .is_dkv = false});
  EXPECT_EQ(forward.block_mask.rows, 8);
  EXPECT_EQ(forward.block_mask.columns, 3);
  const MaskInfo dkv = info_of(window, {.block = {2, 2}, .is_dkv = true});
  EXPECT_EQ(dkv.block_mask.rows, 3);
  EXPECT_EQ(dkv.block_mask.at(0, 0, 7), 0);  // filled up in front
}

TEST(SplashMaskInfoTest, TablesHaveTheFewestBytesThatHoldThem) {
  const MaskPtr mask = full_mask({2, 400});
  const MaskInfo narrow = info_of(mask, {.block = {2, 2}, .is_dkv = false});
  EXPECT_EQ(narrow.block_mask.itemsize, 1);
  EXPECT_EQ(narrow.data_next.itemsize, 2);
  EXPECT_EQ(narrow.smem_bytes(), 200 * (1 + 2));
  const ProcessMask wide{.block = {2, 2}, .is_dkv = false, .downcast_smem_data = false};
  EXPECT_EQ(info_of(mask, wide).smem_bytes(), 200 * (4 + 4));
}

TEST(SplashMaskInfoTest, HeadsThatDifferHaveTablesOfTheirOwn) {
  HostCount count;
  const ProcessMask how{.block = {2, 2}, .is_dkv = false};
  const MultiHeadMask two({causal_mask({4, 4}), full_mask({4, 4}), causal_mask({4, 4})});
  const MaskInfo info = process_mask(two, how, count);
  EXPECT_EQ(info.block_mask.heads, 3);
  EXPECT_THAT(info.block_mask.entries, ElementsAre(1, 0, 2, 1, 2, 2, 2, 2, 1, 0, 2, 1));
  EXPECT_FALSE(info.mask_function);  // of several masks none is computed
  EXPECT_EQ(info_of(causal_mask({4, 4}), how).block_mask.heads, 1);
}

TEST(SplashMaskInfoTest, AMaskWithoutAnyPairIsAnAssertion) {
  EXPECT_THAT(
      [] {
        info_of(causal_mask({4, 4}, -9), {.block = {2, 2}, .is_dkv = false});
      },
      ThrowsMessage<std::logic_error>(HasSubstr("assertion failed")));
}

class MockMask : public Mask {
 public:
  MOCK_METHOD(Shape, shape, (), (const, override));
  MOCK_METHOD(void, get, (Slice, Slice, std::uint8_t*, HostCount&), (const, override));
  MOCK_METHOD(bool, equals, (const Mask&), (const, override));
  MOCK_METHOD(std::size_t, hash, (HostCount&), (const, override));
  MOCK_METHOD(std::int64_t, held_bytes, (), (const, override));
};

MATCHER_P(OfSize, size, "") { return arg.size() == size; }

TEST(SplashMaskInfoTest, AMaskIsAskedForEachBlockTwiceAndForNoMoreThanABlock) {
  const auto mask = std::make_shared<testing::NiceMock<MockMask>>();
  ON_CALL(*mask, shape).WillByDefault(testing::Return(Shape{8, 12}));
  EXPECT_CALL(*mask, get(OfSize(4), OfSize(2), _, _)).Times(2 * 2 * 6).WillRepeatedly([](auto...) {
  });
  EXPECT_CALL(*mask, hash).Times(4 * 2 + 1 - 2);  // of two heads, without the cache's key
  EXPECT_THROW(info_of(mask, {.block = {4, 2}, .is_dkv = false}), std::logic_error);
}

TEST(SplashMaskInfoTest, TheCacheKeepsTwelveInfos) {
  HostSetup setup;
  const auto make = [&](std::int64_t offset) {
    make_splash_mha(MultiHeadMask({causal_mask({256, 256}, offset)}), {}, setup);
    return std::exchange(setup.count, {}).scanned;
  };
  EXPECT_GT(make(0), 0);
  EXPECT_EQ(make(0), 0);  // the next layer
  // Two of each mask: those of the forward kernel and of dq are one, if their blocks are as large.
  for (std::int64_t offset = 1; offset < 6; ++offset) EXPECT_GT(make(offset), 0);
  EXPECT_EQ(make(0), 0);
  EXPECT_GT(make(6), 0);
  EXPECT_GT(make(1), 0);
}

}  // namespace
}  // namespace attest::vendor::splash
