// <attest/device.h> in a program of its own, as a vendor has it: what goes into a stream, and in
// which order.
#include "spec/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/device/fake.h"

namespace attest::device {
namespace {

using testing::ElementsAre;

// One element of O that is to be one of V, in pages of their own.
struct OneElement {
  std::array<float, 1024> v{}, o{};
  std::array<attest_stretch, 2> there{};
  attest_problem problem{};
  attest_inputs inputs{};
  attest_outputs outputs{};
  std::array<attest_region, 2> regions{};
  attest_context context{};
  std::array<char, 256> message{};

  explicit OneElement(attest_call_mode mode) {
    v[0] = 7;
    const auto tensor = [](float* data) {
      attest_tensor t{};
      t.data = data;
      t.dtype = ATTEST_F32;
      for (int axis = 0; axis < 4; ++axis) t.shape[axis] = t.stride[axis] = 1;
      t.capacity_bytes = sizeof(float);
      return t;
    };
    problem.struct_size = sizeof(problem);
    inputs.struct_size = sizeof(inputs);
    outputs.struct_size = sizeof(outputs);
    inputs.v = tensor(v.data());
    outputs.o = tensor(o.data());
    regions[0] = {sizeof(attest_region), "v", v.data(), sizeof(v), 0,
                  sizeof(float),         0,   0,        nullptr,   0};
    regions[1] = {sizeof(attest_region), "o", o.data(), sizeof(o), 0,
                  sizeof(float),         1,   0,        nullptr,   0};
    context.struct_size = sizeof(context);
    context.message = message.data();
    context.message_bytes = message.size();
    context.mode = mode;
    context.regions = regions.data();
    context.region_count = regions.size();
  }

  attest_status run(const Pass<Fake>& pass) {
    const attest::Kernel kernel("it", declare(), on<Fake>(pass));
    return kernel.table()->forward(kernel.table(), &problem, &inputs, &outputs, &context);
  }
};

void copies(const Call<Fake>& c) {
  const auto* const v = static_cast<const float*>(c.v.data);
  auto* const o = static_cast<float*>(c.o.data);
  Fake::launch(c.stream(), [=] { *o = *v; });
}

// The same, and what it copied, in the order in which that is done.
auto copies_and_tells(std::vector<float>& seen) {
  return [&seen](const Call<Fake>& c) {
    const auto* const v = static_cast<const float*>(c.v.data);
    Fake::launch(c.stream(), [v, &seen] { seen.push_back(*v); });
    copies(c);
  };
}

TEST(DeviceHeaderTest, PoisonCopiesAndKernelGoInThisOrderIntoOneStream) {
  for (const auto mode : {ATTEST_CALL_ORDINARY, ATTEST_CALL_STREAM}) {
    Fake::begin(1, Fake::Haste::none);
    OneElement call(mode);
    ASSERT_EQ(call.run(copies), ATTEST_OK) << call.message.data();
    EXPECT_EQ(call.o[0], 7);
    if (mode == ATTEST_CALL_ORDINARY) {
      EXPECT_THAT(Fake::state().done, ElementsAre("fill", "copy", "kernel", "copy"));
    } else {
      EXPECT_THAT(Fake::state().done, ElementsAre("fill", "copy", "kernel",  // warm
                                                  "fill", "hold", "copy", "kernel", "copy", "fill",
                                                  "copy", "kernel", "copy", "hold"));
    }
  }
}

TEST(DeviceHeaderTest, TimeIsThatOfTheKernelBehindInputsThatComeBehindAHold) {
  Fake::begin(1, Fake::Haste::none);
  OneElement call(ATTEST_CALL_ORDINARY);
  double seconds = 0;
  call.context.device_seconds = &seconds;
  ASSERT_EQ(call.run(copies), ATTEST_OK) << call.message.data();
  EXPECT_EQ(call.o[0], 7);
  EXPECT_THAT(Fake::state().done,
              ElementsAre("fill", "hold", "copy", "record", "kernel", "record", "copy"));
  EXPECT_EQ(seconds, 2);
}

// As events would tell none of its time.
TEST(DeviceHeaderTest, KernelThatBeginsBeforeItIsTimedMeetsNoInputs) {
  const auto begins_early = [](const Call<Fake>& c) {
    const auto* const v = static_cast<const float*>(c.v.data);
    auto* const o = static_cast<float*>(c.o.data);
    const OwnStream<Fake> early;
    Fake::launch(early.get(), [=] { *o = *v; });
    Fake::synchronize(early.get());
  };
  for (unsigned seed = 1; seed <= 50; ++seed) {
    Fake::begin(seed, Fake::Haste::any);
    OneElement call(ATTEST_CALL_ORDINARY);
    double seconds = 0;
    call.context.device_seconds = &seconds;
    ASSERT_EQ(call.run(begins_early), ATTEST_OK) << call.message.data();
    EXPECT_NE(call.o[0], 7) << seed;
  }
}

TEST(DeviceHeaderTest, GraphIsCapturedOnNanAndReplayedOnTheInputs) {
  Fake::begin(1, Fake::Haste::none);
  std::vector<float> seen;
  OneElement call(ATTEST_CALL_GRAPH);
  ASSERT_EQ(call.run(copies_and_tells(seen)), ATTEST_OK) << call.message.data();
  ASSERT_EQ(seen.size(), 3u) << "warmed up, and replayed twice";
  EXPECT_TRUE(seen[0] != seen[0]);
  EXPECT_EQ(seen[1], 7);
  EXPECT_EQ(seen[2], 7);
  EXPECT_EQ(call.o[0], 7);
}

// Under contention: whatever order the streams are done in, a right kernel meets its inputs, and a
// kernel elsewhere never does.
TEST(DeviceHeaderTest, RightKernelIsRightAndOneInAnotherStreamIsWrongInEveryOrder) {
  const auto elsewhere = [](const Call<Fake>& c) {
    const auto* const v = static_cast<const float*>(c.v.data);
    auto* const o = static_cast<float*>(c.o.data);
    Fake::launch(Fake::default_stream(), [=] { *o = *v; });
  };
  for (unsigned seed = 0; seed < 60; ++seed) {
    for (const auto haste : {Fake::Haste::none, Fake::Haste::all, Fake::Haste::any}) {
      for (const auto mode :
           {ATTEST_CALL_ORDINARY, ATTEST_CALL_STREAM, ATTEST_CALL_TWO_STREAMS, ATTEST_CALL_GRAPH}) {
        Fake::begin(seed, haste);
        OneElement right(mode);
        ASSERT_EQ(right.run(copies), ATTEST_OK) << right.message.data();
        ASSERT_EQ(right.o[0], 7) << seed << " " << mode;
        if (mode != ATTEST_CALL_STREAM && mode != ATTEST_CALL_GRAPH) continue;
        Fake::begin(seed, haste);
        OneElement wrong(mode);
        ASSERT_EQ(wrong.run(elsewhere), ATTEST_OK) << wrong.message.data();
        ASSERT_NE(wrong.o[0], 7) << seed << " " << mode;
      }
    }
  }
}

// The second stream is at work as long as the first, on NaN.
TEST(DeviceHeaderTest, CallsInTwoStreamsOverlapAndHaveMemoryOfTheirOwn) {
  Fake::begin(3, Fake::Haste::any);
  OneElement call(ATTEST_CALL_TWO_STREAMS);
  std::vector<float> seen;
  ASSERT_EQ(call.run(copies_and_tells(seen)), ATTEST_OK) << call.message.data();
  EXPECT_EQ(call.o[0], 7);
  int changes = 0;  // of the stream whose turn it is
  for (std::size_t i = 1; i < seen.size(); ++i) changes += (seen[i] == 7) != (seen[i - 1] == 7);
  EXPECT_GE(changes, 4);
  EXPECT_THAT(seen, testing::Contains(7.0f).Times(6));
}

// O lies between holes: these are not copied, stay as they are on the host, and are looked at.
TEST(DeviceHeaderTest, HolesDoNotCrossAndAreGuarded) {
  for (const std::ptrdiff_t stray : {0, 40, 900}) {
    Fake::begin(1, Fake::Haste::none);
    OneElement call(ATTEST_CALL_ORDINARY);
    call.o.fill(3);
    call.there = {attest_stretch{0, 64}, attest_stretch{2048, 2112}};
    call.regions[1].there = call.there.data();
    call.regions[1].there_count = call.there.size();
    const auto status = call.run([=](const Call<Fake>& c) {
      copies(c);
      auto* const o = static_cast<float*>(c.o.data);
      Fake::launch(c.stream(), [=] { o[512] = 8, o[stray] = 7; });
    });
    EXPECT_EQ(status, stray == 0 ? ATTEST_OK : ATTEST_GUARD) << stray;
    if (stray > 0) {
      EXPECT_STREQ(call.message.data(), "wrote between the rows of o, in device memory");
      continue;
    }
    EXPECT_EQ(call.o[0], 7);
    EXPECT_EQ(call.o[512], 8);
    EXPECT_EQ(call.o[100], 3) << "of a hole";
  }
}

TEST(DeviceHeaderTest, LackOfMemoryIsNoErrorOfTheKernel) {
  OneElement call(ATTEST_CALL_ORDINARY);
  call.regions[1].bytes = 2 * Fake::kBytes;
  call.regions[1].there = call.there.data();  // nothing of it
  call.regions[1].there_count = 0;
  EXPECT_EQ(call.run(copies), ATTEST_NO_MEMORY);
}

TEST(DeviceHeaderTest, NoMemoryIsLeft) {
  OneElement call(ATTEST_CALL_GRAPH);
  const auto asks = [](const Call<Fake>& c) {
    c.workspace(100);
    c.workspace(5000);
    copies(c);
  };
  Fake::begin(1, Fake::Haste::any);
  ASSERT_EQ(call.run(asks), ATTEST_OK) << call.message.data();
  EXPECT_EQ(Fake::state().memory, 0);
  EXPECT_TRUE(Fake::state().streams.empty());
}

TEST(DeviceHeaderTest, OlderAttestThatTellsNoRegionsIsNamed) {
  OneElement call(ATTEST_CALL_ORDINARY);
  call.context.struct_size = offsetof(attest_context, mode);
  EXPECT_EQ(call.run(copies), ATTEST_ERROR);
  EXPECT_STREQ(call.message.data(),
               "this Attest tells no regions: it is older than <attest/device.h>");
}

}  // namespace
}  // namespace attest::device
