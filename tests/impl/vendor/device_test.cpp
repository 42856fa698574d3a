// The mock device of the mock vendors: whatever breaks a rule of it is its error, and its clocks
// are the same on every run.
#include "impl/vendor/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "impl/vendor/device/queue.h"

namespace attest::vendor::device {
namespace {

using testing::HasSubstr;

// What the device says; empty if nothing.
std::string error_of(const std::function<void()>& program) {
  try {
    program();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(VendorDeviceTest, WhatDoesNotFitIntoMemoryIsAnErrorAndWhatIsFreedFitsAgain) {
  Memory buffer("UB", 1024);
  {
    const auto scores = buffer.take<float>("scores", 200);
    EXPECT_EQ(error_of([&] { buffer.take<float>("values", 57); }),
              "UB: values of 228 bytes does not fit: 800 of 1024 bytes are taken");
    EXPECT_EQ(buffer.used(), 800u);
  }
  EXPECT_EQ(error_of([&] { buffer.take<float>("values", 256); }), "");
  EXPECT_EQ(buffer.most_used(), 1024u);
  auto few = buffer.take<int>("few", 3);
  EXPECT_THAT(error_of([&] { few[3] = 1; }), HasSubstr("few has 3 elements, and none 3"));
}

constexpr DmaRules kRules = {
    .burst = 512, .misaligned_burst = 128, .alignment = 512, .bytes_per_cycle = 64, .setup = 10};

TEST(VendorDeviceTest, AMisalignedRunTakesMoreBurstsOrIsAnError) {
  Dma aligned("MTE2", kRules), misaligned("MTE2", kRules);
  aligned.count(1024, 1000);
  EXPECT_EQ(aligned.bursts(), 2);
  EXPECT_EQ(aligned.unit().now, 10 + 2 * 8);
  misaligned.count(1056, 1000);
  EXPECT_EQ(misaligned.bursts(), 8);
  EXPECT_EQ(misaligned.unit().now, 10 + 8 * 2);

  DmaRules strict = kRules;
  strict.misaligned_burst = 0;
  Dma mover("NoC", strict);
  char to[64] = {}, from[64] = {1};
  EXPECT_EQ(error_of([&] { mover.move(to, 32, from, 32, 2, 32, 0, 32); }),
            "NoC: a run begins at byte 32, no multiple of 512");
  EXPECT_EQ(mover.bursts(), 1);
}

TEST(VendorDeviceTest, FormatsLayoutsAndCoresThatItLacksAreErrors) {
  const Device device(
      {.name = "mock", .model = "", .cores = 2, .formats = {"bf16"}, .layouts = {"BSH"}});
  EXPECT_EQ(error_of([&] { device.check_format("bf16"); }), "");
  EXPECT_THAT(error_of([&] { device.check_format("f64"); }), HasSubstr("f64"));
  EXPECT_THAT(error_of([&] { device.check_layout("SBH"); }), HasSubstr("SBH"));
  EXPECT_THAT(error_of([&] { device.run(3, [](int) { return Cycles(1); }); }),
              HasSubstr("3 cores are asked for, of 2"));
  EXPECT_EQ(device.run(2, [](int core) { return Cycles(5 + core); }).longest(), 6);
}

// A reader of 4 cycles a tile and a computer of `work` over a queue of that depth.
Cycles piped(std::size_t depth, Cycles work) {
  Stages stages;
  Queue<int> tiles(stages, "cb", depth);
  Unit reader{.name = "reader"}, matrix{.name = "matrix"};
  stages.add([&] {
    for (int n = 0; n < 6; ++n) {
      tiles.reserve(reader);
      reader.spend(4);
      tiles.push(reader, n, n);
    }
  });
  stages.add([&] {
    for (int n = 0; n < 6; ++n) {
      EXPECT_EQ(tiles.front(matrix, n), n);
      matrix.spend(work);
      tiles.pop(matrix);
    }
  });
  stages.run();
  return matrix.now;
}

TEST(VendorDeviceTest, TwoPlacesHideReadingBehindComputingWhateverTheHostRunsFirst) {
  for (int n = 0; n < 50; ++n) {
    EXPECT_EQ(piped(1, 5), 6 * (4 + 5));
    EXPECT_EQ(piped(2, 5), 4 + 6 * 5);
    EXPECT_EQ(piped(2, 3), 6 * 4 + 3);
  }
}

TEST(VendorDeviceTest, OverrunsWrongOrdersAndStagesThatWaitForEachOtherAreErrors) {
  const auto run = [](const std::function<void(Queue<int>&, Unit&)>& producer,
                      const std::function<void(Queue<int>&, Unit&)>& consumer) {
    return error_of([&] {
      Stages stages;
      Queue<int> tiles(stages, "cb", 2);
      Unit one, other;
      stages.add([&] { producer(tiles, one); });
      stages.add([&] { consumer(tiles, other); });
      stages.run();
    });
  };
  const auto push = [](std::int64_t number) {
    return [=](Queue<int>& tiles, Unit& unit) {
      tiles.reserve(unit);
      tiles.push(unit, number, 0);
    };
  };
  const auto none = [](Queue<int>&, Unit&) {};
  const auto front = [](Queue<int>& tiles, Unit& unit) { tiles.front(unit, 0); };
  EXPECT_EQ(run(push(0), front), "");
  EXPECT_EQ(run([](auto& tiles, auto& unit) { tiles.push(unit, 7, 0); }, none),
            "cb: tile 7 overruns the queue of 2");
  EXPECT_EQ(run(push(1), front), "cb: tile 1 comes where tile 0 is due");
  EXPECT_EQ(run(none, [](auto& tiles, auto& unit) { tiles.pop(unit); }),
            "cb: there is no tile to pop");
  EXPECT_EQ(run(none, front), "cb: all stages wait for each other");
}

}  // namespace
}  // namespace attest::vendor::device
