#include "harness/process/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

namespace attest {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr Shape kShape = {1, 2, 3, 5};

class ExchangeTest : public testing::TestWithParam<Placement> {
 protected:
  Arena arena_{1 << 20};

  // An exchange with one input and one output of odd sizes, in f16.
  Exchange exchange(const Layout& layout = {}) {
    Exchange result(arena_, GetParam(), 16);
    Values values = zeros(kShape);
    for (std::size_t i = 0; i < values.data.size(); ++i) values.data[i] = static_cast<double>(i);
    result.add_input("q", DType::f16, values, layout);
    result.add_output("o", DType::f16, kShape, layout);
    result.seal();
    return result;
  }

  std::byte* data(const Exchange& e, const std::string& name) {
    const auto tensor = e.to_json().at(name);
    std::byte* memory = tensor.at("memory") == "output" ? arena_.outputs() : arena_.inputs();
    return memory + tensor.at("offset").get<std::size_t>();
  }
};

TEST_P(ExchangeTest, UntouchedCallIsUndamagedAndLeavesAllOutputsPoisoned) {
  const Exchange e = exchange();
  EXPECT_FALSE(e.damage());
  EXPECT_THAT(e.read("o"), Each(e.poison(DType::f16)));
}

TEST_P(ExchangeTest, InputsReadBackAsTheyWereGiven) {
  for (const char* layout : {"bhsd", "bshd", "bhds", "bhsd gap=3", "sbhd wild"}) {
    const auto bits = exchange(Layout::parse(layout)).read("q");
    for (std::size_t i = 0; i < bits.size(); ++i) {
      EXPECT_EQ(decode(DType::f16, bits[i]), static_cast<double>(i)) << layout;
    }
  }
}

TEST_P(ExchangeTest, EveryByteBesideAnOutputIsWatched) {
  const Exchange e = exchange();
  const auto tensor = e.to_json().at("o");
  const auto begin = tensor.at("offset").get<std::ptrdiff_t>();
  const auto end = begin + tensor.at("bytes").get<std::ptrdiff_t>();
  const auto region = tensor.at("region_offset").get<std::ptrdiff_t>();
  const auto region_end = region + tensor.at("region_bytes").get<std::ptrdiff_t>();
  int watched = 0;
  for (std::ptrdiff_t at = region; at < region_end; ++at) {
    if (at >= begin && at < end) continue;
    std::byte& byte = arena_.outputs()[at];
    const std::byte before = byte;
    byte ^= std::byte{1};
    const auto damage = e.damage();
    ASSERT_TRUE(damage) << at;
    EXPECT_EQ(damage->reason, "guard");
    EXPECT_THAT(damage->message,
                HasSubstr(at < begin ? "before the start of o" : "behind the end of o"));
    byte = before;
    ++watched;
  }
  EXPECT_GE(watched, 512);
}

TEST_P(ExchangeTest, ChangedInputIsFound) {
  const Exchange e = exchange();
  data(e, "q")[7] ^= std::byte{1};
  ASSERT_TRUE(e.damage());
  EXPECT_EQ(e.damage()->reason, "input_mutated");
}

TEST_P(ExchangeTest, WriteIntoTheGapBetweenRowsIsFound) {
  const Exchange e = exchange(Layout::parse("bhsd gap=2"));
  EXPECT_FALSE(e.damage());
  data(e, "o")[2 * 5] ^= std::byte{1};  // the first element behind the first row
  ASSERT_TRUE(e.damage());
  EXPECT_THAT(e.damage()->message, HasSubstr("gap between rows of o, 5 elements"));
}

TEST_P(ExchangeTest, SlackAroundInputsIsNanFirstAndHugeThen) {
  const Exchange e = exchange(Layout::parse("bhsd gap=1"));
  const double slack = load(DType::f16, data(e, "q") + 2 * 5);
  if (GetParam() == Placement::end_flush) {
    EXPECT_TRUE(std::isnan(slack));
  } else {
    EXPECT_GT(slack, 60000);
  }
}

TEST_P(ExchangeTest, DataLieFlushWithTheirPagesUpToTheAlignment) {
  const Exchange e = exchange();
  const auto tensors = e.to_json();
  for (const auto& [name, tensor] : tensors.items()) {
    const auto begin = tensor.at("offset").get<std::size_t>();
    EXPECT_EQ(begin % 16, 0) << name;
    const auto region = tensor.at("region_offset").get<std::size_t>();
    const auto region_end = region + tensor.at("region_bytes").get<std::size_t>();
    EXPECT_EQ(region % 4096, 0);
    if (GetParam() == Placement::end_flush) {
      EXPECT_LT(region_end - (begin + tensor.at("bytes").get<std::size_t>()), 16) << name;
    } else {
      EXPECT_EQ(begin, region) << name;
    }
  }
}

TEST_P(ExchangeTest, PoisonIsNanInEveryFormatAndDiffersBetweenPlacements) {
  const Exchange end(arena_, Placement::end_flush, 16), start(arena_, Placement::start_flush, 16);
  for (const DType dtype : kDTypes) {
    EXPECT_TRUE(std::isnan(decode(dtype, end.poison(dtype))));
    EXPECT_TRUE(std::isnan(decode(dtype, start.poison(dtype))));
    EXPECT_NE(end.poison(dtype), start.poison(dtype));
  }
}

TEST_P(ExchangeTest, TensorWithoutElementsIsWatchedToo) {
  Exchange e(arena_, GetParam(), 16);
  e.add_output("o", DType::f32, {1, 1, 0, 4}, Layout());
  e.seal();
  EXPECT_FALSE(e.damage());
  EXPECT_TRUE(e.read("o").empty());
  data(e, "o")[GetParam() == Placement::end_flush ? -1 : 0] ^= std::byte{1};
  EXPECT_TRUE(e.damage());
}

// 11 bits a row: two bytes, of which five bits pad.
constexpr Shape kKeepShape = {2, 1, 3, 11};

TEST_P(ExchangeTest, BitsOfAKeepMaskBeginEachRowWithAByteTheLowestFirst) {
  Exchange e(arena_, GetParam(), 16);
  Keep keep = {.shape = kKeepShape, .kept = std::vector<std::uint8_t>(66)};
  keep.kept[11 * 4 + 9] = 1;  // batch element 1, row 1, key 9
  e.add_input("keep", keep);
  const auto tensor = e.to_json().at("keep");
  EXPECT_EQ(tensor.at("dtype"), "bits");
  EXPECT_EQ(tensor.at("stride"), nlohmann::json({48, 48, 16, 1}));
  EXPECT_EQ(tensor.at("bytes"), 12);
  for (std::size_t byte = 0; byte < 12; ++byte) {
    EXPECT_EQ(data(e, "keep")[byte], std::byte(byte == 9 ? 2 : 0)) << byte;
  }
  EXPECT_EQ(e.read_keep("keep").kept, keep.kept);
}

TEST_P(ExchangeTest, UnwrittenKeepMaskAlternatesAndItsPaddingIsNobodysConcern) {
  Exchange e(arena_, GetParam(), 16);
  e.add_keep_output("keep", kKeepShape);
  e.seal();
  const Keep keep = e.read_keep("keep");
  EXPECT_EQ(keep.shape, kKeepShape);
  for (std::size_t i = 0; i < keep.kept.size(); ++i) {
    EXPECT_EQ(keep.kept[i] != 0, Exchange::keep_poison(GetParam(), static_cast<Index>(i % 11)));
  }
  data(e, "keep")[1] = std::byte{0xff};
  EXPECT_FALSE(e.damage());
  EXPECT_EQ(e.read_keep("keep").kept[10], 1);
  data(e, "keep")[12] ^= std::byte{1};  // behind its end
  EXPECT_TRUE(e.damage());
}

TEST_P(ExchangeTest, KeepMaskWithoutKeysTakesNoBytes) {
  Exchange e(arena_, GetParam(), 16);
  e.add_keep_output("keep", {2, 1, 3, 0});
  e.seal();
  EXPECT_FALSE(e.damage());
  EXPECT_TRUE(e.read_keep("keep").kept.empty());
}

TEST_P(ExchangeTest, IntegersLieInDenseOrder) {
  Exchange e(arena_, GetParam(), 16);
  e.add_input("page_table", {2, 2, 1, 1}, std::vector<std::int32_t>{7, -1, 0, 5});
  EXPECT_EQ(e.to_json().at("page_table").at("dtype"), "i32");
  std::array<std::int32_t, 4> numbers{};
  std::memcpy(numbers.data(), data(e, "page_table"), sizeof numbers);
  EXPECT_THAT(numbers, testing::ElementsAre(7, -1, 0, 5));
}

// ---- Slack in what has no layout of its own ----------------------------------------------------

class RoomyTest : public ExchangeTest {
 protected:
  Exchange roomy() { return Exchange(arena_, GetParam(), 16, Spacing::roomy); }
};

TEST_P(RoomyTest, TableHasSlackAfterEveryRowAndASenselessStrideWhereNoneCounts) {
  Exchange e = roomy();
  const std::vector<std::uint8_t> flags = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  e.add_input("mask0", {2, 1, 2, 3}, flags);
  const auto tensor = e.to_json().at("mask0");
  EXPECT_EQ(tensor.at("stride"), nlohmann::json({10, Index(1) << 40, 4, 1}));
  EXPECT_EQ(tensor.at("bytes"), 17);
  const std::byte slack{GetParam() == Placement::end_flush ? std::uint8_t(0xff)
                                                           : std::uint8_t(0x7b)};
  std::size_t next = 0;
  for (std::size_t at = 0; at < 17; ++at) {
    const bool element = at % 10 < 8 && at % 10 % 4 < 3;
    EXPECT_EQ(data(e, "mask0")[at], element ? std::byte(flags[next]) : slack) << at;
    next += element;
  }
  EXPECT_EQ(next, flags.size());
}

TEST_P(RoomyTest, EveryNumberIsFoundThroughTheStrides) {
  Exchange e = roomy();
  e.add_input("cu_key_lens", std::vector<Index>{0, 7, 9});
  e.add_input("page_table", {2, 3, 1, 1}, std::vector<std::int32_t>{7, -1, 0, 5, 6, 4});
  Values slopes = zeros({1, 4, 1, 1});
  slopes.data = {0.5, 0.25, 0.125, 2};
  e.add_input("slopes", DType::f32, slopes);
  const auto at = [&](const char* name, Index b, Index h) {
    const auto stride = e.to_json().at(name).at("stride");
    return b * (b > 0 ? stride[0].get<Index>() : 0) + h * (h > 0 ? stride[1].get<Index>() : 0);
  };
  std::int64_t len = 0;
  std::memcpy(&len, data(e, "cu_key_lens") + 8 * at("cu_key_lens", 2, 0), 8);
  EXPECT_EQ(len, 9);
  EXPECT_GT(at("cu_key_lens", 2, 0), 2);
  std::int32_t page = 0;
  std::memcpy(&page, data(e, "page_table") + 4 * at("page_table", 1, 2), 4);
  EXPECT_EQ(page, 4);
  EXPECT_GT(at("page_table", 0, 1), 1);
  EXPECT_GT(at("page_table", 1, 0), 3 * at("page_table", 0, 1));
  EXPECT_EQ(e.read("slopes")[3], encode(DType::f32, 2));
  EXPECT_GT(at("slopes", 0, 1), 1);
}

TEST_P(RoomyTest, LayoutOfAProblemIsKept) {
  Exchange e = roomy();
  e.add_input("q", DType::f16, zeros(kShape), Layout());
  EXPECT_EQ(e.to_json().at("q").at("stride"), nlohmann::json(Layout().strides(kShape)));
}

TEST_P(RoomyTest, SlackOfOutputsIsWatched) {
  Exchange e = roomy();
  e.add_output("dsink", DType::f32, {1, 3, 1, 1}, {});
  e.seal();
  EXPECT_FALSE(e.damage());
  data(e, "dsink")[4] ^= std::byte{1};  // where the second of three would lie side by side
  ASSERT_TRUE(e.damage());
  EXPECT_THAT(e.damage()->message, HasSubstr("gap between rows of dsink, 1 elements"));
}

TEST_P(RoomyTest, RowsOfAKeepMaskBeginWithBytesThatDoNotFollowEachOther) {
  Exchange e = roomy();
  Keep keep = {.shape = kKeepShape, .kept = std::vector<std::uint8_t>(66)};
  keep.kept[11 * 4 + 9] = 1;  // batch element 1, row 1, key 9
  e.add_input("keep", keep);
  e.add_keep_output("drawn", kKeepShape);
  e.seal();
  EXPECT_EQ(e.read_keep("keep").kept, keep.kept);
  const auto tensor = e.to_json().at("keep");
  // Three bytes a row, one more after three of them, and one more after the only head.
  EXPECT_EQ(tensor.at("stride"), nlohmann::json({88, Index(1) << 40, 24, 1}));
  EXPECT_EQ(tensor.at("bytes"), 11 + 2 * 3 + 2);
  EXPECT_EQ(data(e, "keep")[11 + 3 + 1], std::byte{2});
  EXPECT_FALSE(e.damage());
  data(e, "drawn")[1] = std::byte{0xff};  // padding of bits
  EXPECT_FALSE(e.damage());
  data(e, "drawn")[2] ^= std::byte{1};
  ASSERT_TRUE(e.damage());
  EXPECT_THAT(e.damage()->message, HasSubstr("gap between rows of drawn, 2 bytes"));
}

TEST_P(RoomyTest, SpansAreThoseThatAreReserved) {
  Exchange e = roomy();
  e.add_output("dbias", DType::f64, {2, 3, 1, 5}, {});
  EXPECT_EQ(e.to_json().at("dbias").at("bytes"), 8 * Exchange::roomy_span({2, 3, 1, 5}));
  e.add_keep_output("keep", kKeepShape);
  EXPECT_EQ(e.to_json().at("keep").at("bytes"), Exchange::roomy_keep_bytes(kKeepShape));
  e.add_output("none", DType::f64, {2, 0, 1, 5}, {});
  EXPECT_EQ(e.to_json().at("none").at("bytes"), 0);
}

INSTANTIATE_TEST_SUITE_P(BothPlacements, RoomyTest,
                         testing::Values(Placement::end_flush, Placement::start_flush));

TEST(KeepPoisonTest, IsTheOppositeInTheOtherPlacement) {
  for (Index key = 0; key < 16; ++key) {
    EXPECT_NE(Exchange::keep_poison(Placement::end_flush, key),
              Exchange::keep_poison(Placement::start_flush, key));
  }
}

INSTANTIATE_TEST_SUITE_P(BothPlacements, ExchangeTest,
                         testing::Values(Placement::end_flush, Placement::start_flush));

// ---- Rows far apart -----------------------------------------------------------------------------

class SparseTest : public testing::TestWithParam<Placement> {
 protected:
  static constexpr std::size_t kApart = std::size_t(3'000'000'000);  // bytes, of two rows in f16
  Arena arena_{std::size_t(1) << 35};

  Exchange exchange() {
    Exchange result(arena_, GetParam(), 16);
    Values values = zeros({1, 1, 4, 2});
    for (std::size_t i = 0; i < values.data.size(); ++i) values.data[i] = static_cast<double>(i);
    const Layout layout = Layout::parse("bhsd gap=1499999998");
    result.add_input("q", DType::f16, values, layout);
    result.add_output("o", DType::f16, values.shape, layout);
    result.seal();
    return result;
  }
  std::byte* row(const Exchange& e, const char* name, std::size_t number) {
    const auto tensor = e.to_json().at(name);
    std::byte* memory = tensor.at("memory") == "output" ? arena_.outputs() : arena_.inputs();
    return memory + tensor.at("offset").get<std::size_t>() + number * kApart;
  }
  // How much of both memories is there.
  std::size_t touched() const {
    std::size_t bytes = 0;
    for (const int fd : {arena_.input_fd(), arena_.output_fd()}) {
      struct stat about {};
      EXPECT_EQ(fstat(fd, &about), 0);
      bytes += static_cast<std::size_t>(about.st_blocks) * 512;
    }
    return bytes;
  }
};

TEST_P(SparseTest, TouchesThePagesOfItsElementsAlone) {
  const Exchange e = exchange();
  EXPECT_FALSE(e.damage());
  EXPECT_THAT(e.read("o"), Each(e.poison(DType::f16)));
  EXPECT_EQ(decode(DType::f16, e.read("q")[7]), 7);
  EXPECT_LE(touched(), std::size_t(1) << 20);
}

TEST_P(SparseTest, WriteFarFromAnyElementIsFound) {
  for (const std::ptrdiff_t at : {-2l, 4l, 1'000'000'000l, 2'999'999'998l}) {
    const Exchange e = exchange();
    row(e, "o", 1)[at] = std::byte(1);
    const auto damage = e.damage();
    ASSERT_TRUE(damage) << at;
    EXPECT_EQ(damage->reason, "guard");
  }
  EXPECT_FALSE(exchange().damage()) << "what an earlier call left is cleared";
}

TEST_P(SparseTest, ReadFarFromAnyElementIsNoDamageAndAChangedInputIs) {
  const Exchange e = exchange();
  for (const char* name : {"q", "o"}) {
    const volatile unsigned char* const hole =
        reinterpret_cast<unsigned char*>(row(e, name, 1) + 500'000'000);
    EXPECT_EQ(int(*hole), 0);
  }
  EXPECT_FALSE(e.damage());
  row(e, "q", 3)[1] ^= std::byte(1);
  ASSERT_TRUE(e.damage());
  EXPECT_EQ(e.damage()->reason, "input_mutated");
}

INSTANTIATE_TEST_SUITE_P(BothPlacements, SparseTest,
                         testing::Values(Placement::end_flush, Placement::start_flush));

// Of 128 TiB of addresses, if there are so many: the second of its memories is refused.
TEST(ArenaTest, ThatDoesNotFitSaysSoAndLeavesNothingMapped) {
  try {
    const Arena arena(std::size_t(100) << 40);
    GTEST_SKIP() << "a system of more addresses";
  } catch (const std::system_error& refused) {
    EXPECT_THAT(refused.what(), HasSubstr("104857600 MiB of addresses"));
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    EXPECT_THAT(line, Not(HasSubstr("attest-inputs")));
  }
}

TEST(ArenaTest, NobodyCanMapOrWriteInputsAnew) {
  const Arena arena(1 << 16);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena.input_fd(), 0),
            MAP_FAILED);
  EXPECT_EQ(write(arena.input_fd(), "x", 1), -1);
  void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, arena.input_fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(mprotect(readable, 4096, PROT_READ | PROT_WRITE), -1);
  munmap(readable, 4096);
}

TEST(ArenaTest, NeitherMemoryCanBeShrunkOrGrown) {
  const Arena arena(1 << 16);
  for (const int fd : {arena.input_fd(), arena.output_fd()}) {
    EXPECT_EQ(ftruncate(fd, 0), -1);
    EXPECT_EQ(ftruncate(fd, 1 << 20), -1);
  }
}

}  // namespace
}  // namespace attest
