// The mock Wormhole: its formats, its rules, its schedules, the operator against plain loops, and
// what the seed's figures are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>

#include "impl/vendor/wormhole/figures.h"
#include "impl/vendor/wormhole/kernels.h"
#include "impl/vendor/wormhole/measures.h"
#include "impl/vendor/wormhole/perf_model.h"

namespace attest::vendor::wormhole {
namespace {

using device::DeviceError;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

auto FailsOfTheDevice(const char* what) { return ThrowsMessage<DeviceError>(HasSubstr(what)); }
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr DeviceComputeKernelConfig kWide = {MathFidelity::HiFi4, true};

std::vector<float> numbers(const Shape& shape, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (float& value : values) {
    value = round_to_bf16(static_cast<float>(static_cast<int>(bits() % 4001) - 2000) / 1000.0f);
  }
  return values;
}

Tensor tiles_of(const std::vector<float>& values, const Shape& shape,
                DataType dtype = DataType::BFLOAT16) {
  return Tensor::from_values(values, shape, dtype, Layout::TILE);
}

struct Inputs {
  Shape of_q, of_k = of_q;
  std::vector<float> q_values = numbers(of_q, 1);
  std::vector<float> k_values = numbers(of_k, 2), v_values = numbers(of_k, 3);
  Tensor q = tiles_of(q_values, of_q), k = tiles_of(k_values, of_k), v = tiles_of(v_values, of_k);
};

SdpaArguments with_chunks(std::size_t q_chunk, std::size_t k_chunk, bool is_causal = true) {
  SdpaArguments arguments = {.is_causal = is_causal, .compute_kernel_config = kWide};
  arguments.program_config = {.q_chunk_size = q_chunk, .k_chunk_size = k_chunk};
  return arguments;
}

// The definition, in plain loops: the largest distance of `o` from it, over rows that see a key.
template <class Bias>
double distance(const Inputs& in, double scale, const Bias& bias, const std::vector<float>& o) {
  const auto [batch, heads, length, head_dim] = in.of_q;
  const auto at = [d = head_dim](const std::vector<float>& values, auto row, auto channel) {
    return double{values[static_cast<std::size_t>(row * d + channel)]};
  };
  double largest = 0;
  for (std::int64_t row = 0; row < batch * heads * length; ++row) {
    const std::int64_t b = row / length / heads, h = row / length % heads, i = row % length;
    const std::int64_t keys = (b * in.of_k[1] + h * in.of_k[1] / heads) * length;
    double sum = 0;
    std::vector<double> weights;
    for (std::int64_t j = 0; j < length; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < head_dim; ++c) {
        dot += at(in.q_values, row, c) * at(in.k_values, keys + j, c);
      }
      weights.push_back(std::exp(dot * scale + bias(h, i, j)));
      sum += weights.back();
    }
    for (std::int64_t c = 0; sum > 0 && c < head_dim; ++c) {
      double exact = 0;
      for (std::int64_t j = 0; j < length; ++j) {
        exact += weights[static_cast<std::size_t>(j)] / sum * at(in.v_values, keys + j, c);
      }
      const double off = std::abs(exact - at(o, row, c));
      if (std::isnan(off)) return HUGE_VAL;
      largest = std::max(largest, off);
    }
  }
  return largest;
}

const auto kCausal = [](auto, auto i, auto j) { return j > i ? -HUGE_VAL : 0.0; };

// Another statement of bfp8: all in doubles.
double bfp8_by_definition(float value, int shared_exponent) {
  if (std::abs(value) < std::numeric_limits<float>::min()) return 0;
  const double unit = std::ldexp(1.0, shared_exponent - 133);
  // 24 digits below the shared exponent's are all that the packer sees.
  const double last = std::ldexp(unit, -17);
  const double seen = std::trunc(std::abs(double{value}) / last) * last;
  return std::copysign(std::min(std::nearbyint(seen / unit), 127.0) * unit, value);
}

TEST(WormholeTest, EveryBfp8CodeIsAMagnitudeTimesItsGroupsUnit) {
  for (int exponent = 7; exponent < 255; ++exponent) {
    for (int code = 0; code < 256; ++code) {
      if (code == 0x80) continue;
      const float sign = code & 0x80 ? -1 : 1, m = static_cast<float>(code & 0x7f);
      const float value = sign * std::ldexp(m, exponent - 133);
      const auto byte = static_cast<std::uint8_t>(code);
      const auto shared = static_cast<std::uint8_t>(exponent);
      ASSERT_EQ(unpack_bfp8(byte, shared), value) << code << " " << exponent;
      ASSERT_EQ(pack_bfp8(value, shared), byte) << code << " " << exponent;
    }
  }
  EXPECT_EQ(unpack_bfp8(0x80, 127), -kInfinity);
}

TEST(WormholeTest, EveryBf16RoundsToBfp8AsDefinedUnderEverySharedExponentNearIt) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = std::bit_cast<float>(bits << 16);
    const int own = static_cast<int>(bits >> 7 & 0xff);
    if (own == 255) continue;
    for (int shared = std::max(own, 8); shared <= std::min(own + 20, 254); ++shared) {
      const auto exponent = static_cast<std::uint8_t>(shared);
      const float stored = unpack_bfp8(pack_bfp8(value, exponent), exponent);
      ASSERT_EQ(stored, bfp8_by_definition(value, shared)) << value << " " << shared;
    }
  }
}

TEST(WormholeTest, FloatsNearEveryTieOfBfp8RoundToEvenAndSaturateAtTheTop) {
  for (int half_units = 129; half_units < 256; ++half_units) {
    for (const float to : {0.0f, 2.0f}) {
      for (int shift = 0; shift < 9; ++shift) {
        float value = std::ldexp(static_cast<float>(half_units), -7 - shift);
        for (int n = 0; n < 4; ++n, value = std::nextafter(value, to)) {
          ASSERT_EQ(unpack_bfp8(pack_bfp8(-value, 127), 127), bfp8_by_definition(-value, 127));
        }
      }
    }
  }
  EXPECT_EQ(pack_bfp8(1.9999f, 127), 127);  // 127.99 units: the exponent does not rise
  EXPECT_EQ(pack_bfp8(-0.0f, 127) + pack_bfp8(-1e-9f, 127), 0);  // a 0 has no sign
}

TEST(WormholeTest, DigitsBelowTheSharedExponents24AreCutBeforeRounding) {
  EXPECT_EQ(pack_bfp8(std::nextafter(0x1p-7f, 1.0f), 127), 0);
  EXPECT_EQ(pack_bfp8(0x1.8p-6f + 0x1p-28f, 127), 2);
  EXPECT_EQ(pack_bfp8(1e-39f, 1), rounded(DataFormat::Float32, 1e-39f));  // subnormal: both 0
}

TEST(WormholeTest, ValuesOfAGroupShareTheLargestExponent) {
  std::array<float, kTileElements> values, back;
  for (std::size_t n = 0; n < kTileElements; ++n) values[n] = static_cast<float>(1 + n / kTile);
  values[17] = 512;  // row 0, second face
  std::array<std::uint8_t, 2048> tile;
  pack_tile(DataFormat::Float16_b, values.data(), tile.data());
  EXPECT_EQ(tile[(256 + 1) * 2 + 1], 0x44);  // the upper byte of 512: faces lie in a row
  pack_tile(DataFormat::Bfp8_b, values.data(), tile.data());
  EXPECT_THAT((std::array{tile[0], tile[16], tile[32]}), ElementsAre(127, 127 + 9, 127 + 4));
  unpack_tile(DataFormat::Bfp8_b, tile.data(), back.data());
  EXPECT_THAT((std::array{back[15], back[17], back[16 * kTile]}), ElementsAre(1, 512, 17));
  EXPECT_EQ(back[16], 0);  // 1 beside 512: one large value costs its group
}

TEST(WormholeTest, TilizeAndUntilizeRestoreEveryShape) {
  for (const std::int64_t rows : {1, 31, 32, 33, 70}) {
    for (const std::int64_t columns : {1, 32, 40, 64}) {
      const Shape shape = {2, 3, rows, columns};
      const std::vector<float> values = numbers(shape, 7);
      const Tensor tilized = tiles_of(values, shape);
      EXPECT_EQ(tilized.bytes(), 6 * tilized.rows_in_tiles() * tilized.columns_in_tiles() * 2048);
      EXPECT_EQ(tilized.to_values(), values);
      const Tensor untilized = tilized.to_layout(Layout::ROW_MAJOR);
      EXPECT_EQ(untilized.to_values(), values);
      EXPECT_EQ(untilized.to_layout(Layout::TILE).to_values(), values);
    }
  }
}

TEST(WormholeTest, ChunksThatExceedL1AreAnErrorOfTheDevice) {
  const Inputs in{{1, 1, 256, 256}};
  scaled_dot_product_attention(in.q, in.k, in.v, with_chunks(128, 128));
  EXPECT_THAT([&] { scaled_dot_product_attention(in.q, in.k, in.v, with_chunks(256, 256)); },
              FailsOfTheDevice("does not fit"));
}

TEST(WormholeTest, TransfersThatBeginBetween32BytesAreAnErrorOfTheDevice) {
  DataMover mover("RISC0", 1, wormhole_rules());
  std::array<std::uint8_t, 2048> from{}, to{};
  mover.move(to.data(), from.data(), 2048, 4096);
  EXPECT_THAT([&] { mover.move(to.data(), from.data(), 2048, 4096 + 16); },
              FailsOfTheDevice("no multiple of 32"));
}

// A circular buffer between two programs.
struct OneBuffer {
  explicit OneBuffer(int chunks) : cb(stages, l1, "cb", DataFormat::Float16_b, 1, chunks) {}
  void run(const std::function<void()>& producing, const std::function<void()>& consuming) {
    stages.add(producing);
    stages.add(consuming);
    stages.run();
  }
  device::Stages stages;
  device::Memory l1{"L1", 1536 * 1024};
  CircularBuffer cb;
  device::Unit producer, consumer;
};

TEST(WormholeTest, ChunksWithoutAPlaceOrInTheWrongOrderAreErrorsOfTheDevice) {
  OneBuffer two(2), other(2);
  const auto overrun = [&] { two.cb.push_back(two.producer, 0); };
  EXPECT_THAT([&] { two.run(overrun, [] {}); }, FailsOfTheDevice("overruns the queue of 2"));
  const auto wrong = [&] {
    other.cb.reserve_back(other.producer);
    other.cb.push_back(other.producer, 1);
  };
  EXPECT_THAT([&] { other.run(wrong, [&] { other.cb.wait_front(other.consumer, 0); }); },
              FailsOfTheDevice("tile 1 comes where tile 0 is due"));
}

TEST(WormholeTest, FormatsAndLayoutsThatTheDeviceHasNotAreErrors) {
  const Inputs in{{1, 1, 32, 32}};
  const Tensor f32 = in.q.typecast(DataType::FLOAT32);
  EXPECT_THAT([&] { scaled_dot_product_attention(f32, f32, f32); },
              FailsOfTheDevice("no format FLOAT32"));
  const Tensor rows = in.k.to_layout(Layout::ROW_MAJOR);
  EXPECT_THAT([&] { scaled_dot_product_attention(in.q, rows, in.v); },
              FailsOfTheDevice("no layout ROW_MAJOR"));
  EXPECT_THROW(rows.typecast(DataType::BFLOAT8_B), std::invalid_argument);  // tiles alone
}

TEST(WormholeTest, TheOperatorRefusesWhatItHasNot) {
  const Inputs in{{1, 4, 64, 64}, {1, 2, 64, 64}}, longer{{1, 4, 96, 64}, {1, 3, 96, 64}};
  const Inputs narrow{{1, 1, 32, 40}};
  const Tensor mask = tiles_of(numbers({1, 1, 64, 64}, 1), {1, 1, 64, 64});
  const Tensor bfp8 = in.q.typecast(DataType::BFLOAT8_B);
  const auto refuses = [](auto& q, auto& k, auto& v, const SdpaArguments& given, auto why) {
    EXPECT_THAT([&] { scaled_dot_product_attention(q, k, v, given); },
                ThrowsMessage<TtFatal>(HasSubstr(why)));
  };
  SdpaArguments masked;
  masked.attn_mask = &mask;
  refuses(in.q, in.k, in.v, masked, "is_causal");
  refuses(in.q, longer.k, longer.v, {}, "heads");
  refuses(longer.q, in.k, in.v, {}, "length");
  refuses(in.q, in.k, longer.v, {}, "k and v");
  refuses(in.q, in.k, in.v, with_chunks(48, 32), "48");
  masked = with_chunks(32, 32);
  masked.program_config->compute_with_storage_grid_size = {9, 10};
  refuses(in.q, in.k, in.v, masked, "9 x 10");
  refuses(bfp8, in.k, in.v, {}, "dataformat");
  refuses(narrow.q, narrow.k, narrow.v, {}, "head_dim 40");
}

TEST(WormholeTest, CausalAttentionIsAsDefinedForEveryPairOfChunkSizes) {
  const Inputs in{{2, 4, 200, 64}, {2, 2, 200, 64}};
  for (int n = 0; n < 9; ++n) {
    const SdpaArguments arguments = with_chunks(32 << n % 3, 32 << n / 3);
    const Tensor o = scaled_dot_product_attention(in.q, in.k, in.v, arguments);
    EXPECT_LT(distance(in, 0.125, kCausal, o.to_values()), 0.02) << n;
  }
}

TEST(WormholeTest, KeysThatOnlyFillUpTheLastChunkAreHidden) {
  const auto none = [](auto, auto, auto) { return 0.0; };
  for (const std::int64_t length : {1, 31, 33, 64, 65, 100}) {
    const Inputs in{{1, 2, length, 32}, {1, 1, length, 32}};
    SdpaArguments arguments = with_chunks(64, 64, false);
    arguments.scale = 0.5f;
    const Tensor o = scaled_dot_product_attention(in.q, in.k, in.v, arguments);
    EXPECT_LT(distance(in, 0.5, none, o.to_values()), 0.02) << length;
  }
}

TEST(WormholeTest, AMaskIsAddedPerHeadAndRowsThatSeeNothingGetTheSumOfAllValues) {
  const Inputs in{{1, 2, 70, 32}};
  const Shape of_mask = {1, 2, 70, 70};
  std::vector<float> mask = numbers(of_mask, 5);
  for (std::size_t n = 0; n < mask.size(); ++n) {
    if (n % 3 == 0 || n / 70 == 4 || n % 70 < 33) mask[n] = -kInfinity;  // a whole chunk too
  }
  mask[5 * 70] = 1;
  const Tensor added = tiles_of(mask, of_mask);
  SdpaArguments arguments = with_chunks(32, 32, false);
  arguments.attn_mask = &added;
  const auto o = scaled_dot_product_attention(in.q, in.k, in.v, arguments).to_values();
  float sum = 0;
  for (std::size_t key = 0; key < 70; ++key) sum += in.v_values[key * 32];
  EXPECT_NEAR(o[4 * 32], sum / 96, 0.01);  // 96 keys with padding

  const auto bias = [&](auto h, auto i, auto j) {
    return double{mask[static_cast<std::size_t>((h * 70 + i) * 70 + j)]};
  };
  EXPECT_LT(distance(in, 1 / std::sqrt(32.0), bias, o), 0.02);
}

TEST(WormholeTest, ScoresAndSumsInBf16AreTheDefaultAndLessExact) {
  const double wide = measured_error(DataType::BFLOAT16, kWide).output;
  const double narrow = measured_error(DataType::BFLOAT16, {}).output;
  EXPECT_LT(3 * wide, narrow);
  EXPECT_LT(narrow, measured_error(DataType::BFLOAT8_B, kWide).output);
}

TEST(WormholeTest, FewerPassesOfTheMatrixUnitCutDigits) {
  device::Memory l1("L1", 1 << 20);
  Block product(l1, "product", DataFormat::Float32, 1, 1);
  std::vector<float> operand(kTileElements, 0);
  operand[0] = 0x1.fep0f;  // 8 digits
  const auto of = [&](MathFidelity fidelity) {
    MatrixUnit{fidelity, true}.multiply(product, operand, operand);
    return product.row(0)[0];
  };
  EXPECT_EQ(of(MathFidelity::HiFi4), 0x1.fep0f * 0x1.fep0f);
  EXPECT_EQ(of(MathFidelity::HiFi2), 0x1.fcp0f * 0x1.fep0f);
  EXPECT_EQ(of(MathFidelity::LoFi), 0x1.fcp0f * 0x1.fp0f);
}

constexpr SdpaShape kEightChunks = {1, 1, 1, 8, 8, 1, 1, true};

TEST(WormholeTest, LowAndHighChunksGoTogetherAndBalancePerfectly) {
  const auto keys_of_cores = [](bool balanced) {
    std::vector<std::int64_t> keys;
    for (const CoreWork& work : split_work(kEightChunks, 4, balanced)) {
      keys.push_back(0);
      for (const auto chunk : work.query_chunks) keys.back() += kEightChunks.key_chunks_of(chunk);
    }
    return keys;
  };
  EXPECT_THAT(split_work(kEightChunks, 4, true)[0].query_chunks, ElementsAre(0, 7));
  EXPECT_THAT(split_work(kEightChunks, 4, true)[1].query_chunks, ElementsAre(1, 6));
  EXPECT_THAT(keys_of_cores(true), Each(9));
  EXPECT_THAT(keys_of_cores(false), ElementsAre(3, 7, 11, 15));
}

TEST(WormholeTest, EveryChunkIsComputedOnceHoweverTheGridIsSplit) {
  for (std::int64_t n = 0; n < 27; ++n) {
    const std::int64_t batch = 1 + n % 3 * 40, heads = 1 + n / 3 % 3 * 6, chunks = 1 + n / 9 * 7;
    const SdpaShape shape = {batch, heads, 1, chunks, chunks, 1, 1, true};
    std::map<std::array<std::int64_t, 3>, int> times;
    for (const CoreWork& work : split_work(shape, 80, true)) {
      for_each_query_chunk(work, [&](auto b, auto h, auto c) { ++times[{b, h, c}]; });
    }
    EXPECT_EQ(times.size(), static_cast<std::size_t>(batch * heads * chunks));
    EXPECT_THAT(times, Each(testing::Pair(testing::_, 1)));
  }
}

TEST(WormholeTest, ChunksAboveTheDiagonalAreSkipped) {
  EXPECT_EQ(kEightChunks.key_chunks_of(0), 1);
  EXPECT_EQ(kEightChunks.key_chunks_of(1), 2);
  const SdpaShape wide_keys = {1, 1, 1, 8, 2, 1, 4, true};
  EXPECT_EQ(wide_keys.key_chunks_of(3), 1);
  EXPECT_EQ(wide_keys.key_chunks_of(4), 2);
}

TEST(WormholeTest, TheReaderReadsQThenKeysMaskAndValuesInTurn) {
  const Inputs in{{1, 1, 64, 32}};
  SdpaArguments arguments = with_chunks(32, 32);
  arguments.program_config->compute_with_storage_grid_size = {1, 1};
  std::string reads;
  arguments.choices.on_read = [&](const char* buffer, auto query, auto key) {
    reads += buffer[3] + std::to_string(query) + std::to_string(key) + ' ';
  };
  scaled_dot_product_attention(in.q, in.k, in.v, arguments);
  EXPECT_EQ(reads, "q00 k00 m00 v00 q10 k10 v10 k11 m11 v11 ");
}

TEST(WormholeTest, TheMaskIsReadOnTheDiagonalAlone) {
  const Inputs in{{1, 2, 256, 32}};
  SdpaArguments arguments = with_chunks(64, 32);
  testing::StrictMock<testing::MockFunction<void(std::int64_t, std::int64_t)>> masks_in_dram;
  for (int key = 0; key < 8; ++key) EXPECT_CALL(masks_in_dram, Call(key / 2, key)).Times(2);
  arguments.choices.on_read = [&](const std::string& buffer, auto query, auto key) {
    if (buffer == "cb_mask_in") masks_in_dram.Call(query, key);
  };
  SdpaProfile diagonal, everywhere;
  const Tensor o = scaled_dot_product_attention(in.q, in.k, in.v, arguments, &diagonal);
  arguments.choices = {};
  arguments.choices.mask_diagonal_only = false;
  const Tensor same = scaled_dot_product_attention(in.q, in.k, in.v, arguments, &everywhere);
  EXPECT_EQ(o.to_values(), same.to_values());
  EXPECT_LT(diagonal.dram_bytes_read, everywhere.dram_bytes_read);
  EXPECT_LT(diagonal.elapsed.longest(), everywhere.elapsed.longest());
}

TEST(WormholeTest, QueryHeadsOfAGroupShareKeysAndAMulticast) {
  const Inputs in{{1, 8, 128, 64}, {1, 1, 128, 64}};
  SdpaArguments arguments = with_chunks(32, 32);
  SdpaProfile alone, shared;
  const Tensor o = scaled_dot_product_attention(in.q, in.k, in.v, arguments, &alone);
  EXPECT_LT(distance(in, 0.125, kCausal, o.to_values()), 0.02);
  arguments.choices.multicast_keys = true;
  const Tensor same = scaled_dot_product_attention(in.q, in.k, in.v, arguments, &shared);
  EXPECT_EQ(o.to_values(), same.to_values());
  // Q and the mask are each core's own; of K and V one head of eight is left.
  const std::int64_t own = in.q.bytes() + 8 * 4 * tile_bytes(DataFormat::Float16_b);
  EXPECT_EQ(alone.dram_bytes_read - own, 8 * (shared.dram_bytes_read - own));
}

TEST(WormholeTest, TheThirdChunkWaitsUntilTheFirstIsConsumed) {
  OneBuffer one(2);
  std::vector<Cycles> reserved;
  const auto produce = [&] {
    for (int n = 0; n < 3; ++n) {
      one.cb.reserve_back(one.producer);
      reserved.push_back(one.producer.now);
      one.producer.spend(10);
      one.cb.push_back(one.producer, n);
    }
  };
  one.run(produce, [&] {
    for (int n = 0; n < 3; ++n) {
      one.cb.wait_front(one.consumer, n);
      one.consumer.spend(100);
      one.cb.pop_front(one.consumer);
    }
  });
  EXPECT_THAT(reserved, ElementsAre(0, 10, 110));
}

TEST(WormholeTest, ComputeWaitsForTheFirstChunksAndTheWriterForTheFirstOutput) {
  // One chunk of each: nothing but reads overlaps.
  const Shape shape = {1, 1, 32, 32};
  const SdpaArguments arguments = with_chunks(32, 32);
  const StepCycles steps = make_program(shape, shape, DataType::BFLOAT16, arguments).step_cycles();
  const Cycles tile = tile_cycles(2048, 1, {}, wormhole_rules());
  const Cycles masked = std::max(2 * tile + steps.scores, 3 * tile) + steps.mask;
  const Cycles values = std::max(masked + steps.softmax, 4 * tile) + steps.values;
  EXPECT_EQ(estimate(shape, shape, DataType::BFLOAT16, arguments).elapsed.longest(),
            values + steps.finish + tile);
}

TEST(WormholeTest, TheModelOfTimeAgreesWithTheKernels) {
  const Inputs in{{2, 4, 200, 64}, {2, 2, 200, 64}};
  for (int choice = 0; choice < 32; ++choice) {
    for (const std::size_t chunk : {32, 64, 128}) {
      SdpaArguments arguments = with_chunks(chunk, chunk == 64 ? 32 : 64, (choice & 16) != 0);
      arguments.program_config->compute_with_storage_grid_size = {chunk == 32 ? 8 : 1, 2};
      arguments.choices.balanced = (choice & 1) != 0;
      arguments.choices.mask_diagonal_only = (choice & 2) != 0;
      arguments.choices.chunks_in_buffer = choice & 4 ? 1 : 2;
      arguments.choices.multicast_keys = (choice & 8) != 0;
      SdpaProfile profile;
      scaled_dot_product_attention(in.q, in.k, in.v, arguments, &profile);
      const Estimate model = estimate(in.of_q, in.of_k, DataType::BFLOAT16, arguments);
      EXPECT_EQ(model.elapsed.of_core, profile.elapsed.of_core) << chunk << " " << choice;
      EXPECT_EQ(model.dram_bytes_read, profile.dram_bytes_read);
      EXPECT_EQ(model.l1_bytes, profile.l1_bytes);
    }
  }
}

TEST(WormholeTest, DoubleBuffersHideReadsBehindComputing) {
  for (const SizeMeasured& size : measured_sizes()) {
    EXPECT_GE(size.single_buffered.seconds(), size.best.seconds());
  }
  EXPECT_GT(measured_sizes()[0].single_buffered.seconds(),
            1.15 * measured_sizes()[0].best.seconds());
}

TEST(WormholeTest, PairsOfLowAndHighChunksAre1Point6TimesAsFastOnAverage) {
  double sum = 0, count = 0;
  for (const SizeMeasured& size : measured_sizes()) {
    if (!size.splits_heads) continue;
    sum += size.contiguous.seconds() / size.best.seconds();
    ++count;
  }
  EXPECT_NEAR(sum / count, 1.6, 0.05);
}

TEST(WormholeTest, Bfp8IsModeratelyFasterAndEverySizeFasterThanTheBaseline) {
  for (std::size_t n = 0; n < 18; ++n) {
    const SizeMeasured &bf16 = measured_sizes()[n], &bfp8 = measured_sizes()[n + 18];
    EXPECT_GE(bf16.best.seconds(), bfp8.best.seconds());
    EXPECT_LT(bf16.best.seconds(), 1.6 * bfp8.best.seconds());
    EXPECT_GT(std::min(bf16.over_baseline(), bfp8.over_baseline()), 2);
  }
  EXPECT_EQ(causal_flops({2, 3, 8, 4}), 2.0 * 2 * 64 * 3 * 4);
}

TEST(WormholeTest, NoRowOfTheFiguresIsEmptyAndTheTestsTheyNameExist) {
  std::set<std::string> tests;
  const auto* const suite = testing::UnitTest::GetInstance()->current_test_suite();
  for (int n = 0; n < suite->total_test_count(); ++n) tests.insert(suite->GetTestInfo(n)->name());
  for (const Figure& figure : wormhole_figures()) {
    EXPECT_FALSE(figure.seed.empty() || figure.where.empty()) << figure.seed;
    const bool says_why = figure.where.find("not there") == 0 || figure.where.find("preset") < 99;
    EXPECT_TRUE(figure.said.empty() || !figure.here.empty() || says_why) << figure.seed;
    const std::size_t named = figure.where.find("wormhole_test: ");
    if (named == std::string::npos) continue;
    EXPECT_EQ(tests.count(figure.where.substr(named + 15)), 1u) << figure.where;
  }
}

}  // namespace
}  // namespace attest::vendor::wormhole
