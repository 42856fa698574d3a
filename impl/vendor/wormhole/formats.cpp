#include "impl/vendor/wormhole/formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace attest::vendor::wormhole {
namespace {

constexpr std::uint32_t kSign = 0x80000000u, kExponent = 0x7f800000u, kMantissa = 0x007fffffu;
constexpr int kGroups = kTileElements / kGroup;
constexpr int kMagnitudeDigits = 7, kFloatDigits = 24;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint8_t exponent_of(float value) {
  return static_cast<std::uint8_t>((bits_of(value) & kExponent) >> 23);
}

// Visits the rows of the four faces in the order of the tile's bytes, each with where its 16
// elements begin in the 32 x 32 matrix.
template <class Visit>
void for_each_group(const Visit& visit) {
  for (int group = 0; group < kGroups; ++group) {
    const int face = group / kFace, row = group % kFace;
    visit(group, (face / 2 * kFace + row) * kTile + face % 2 * kFace);
  }
}

}  // namespace

std::int64_t tile_bytes(DataFormat format) {
  switch (format) {
    case DataFormat::Float32:
      return kTileElements * 4;
    case DataFormat::Float16_b:
      return kTileElements * 2;
    case DataFormat::Bfp8_b:
      break;
  }
  return kGroups + kTileElements;
}

float flush_subnormal(float value) {
  const std::uint32_t bits = bits_of(value);
  return (bits & kExponent) == 0 ? std::bit_cast<float>(bits & kSign) : value;
}

float round_to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  // A NaN stays one, whatever its digits.
  if ((bits & ~kSign) > kExponent) return std::bit_cast<float>((bits | 0x00400000u) & 0xffff0000u);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

float rounded(DataFormat format, float value) {
  return flush_subnormal(format == DataFormat::Float16_b ? round_to_bf16(value) : value);
}

std::uint8_t pack_bfp8(float value, std::uint8_t shared_exponent) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & kExponent) == 0) return 0;
  const int shift = std::max(0, shared_exponent - exponent_of(value));
  if (shift >= kFloatDigits) return 0;
  const std::uint32_t digits = ((bits & kMantissa) | (kMantissa + 1)) >> shift;

  constexpr int kDropped = kFloatDigits - kMagnitudeDigits;
  constexpr std::uint32_t kHalf = 1u << (kDropped - 1), kLargest = (1u << kMagnitudeDigits) - 1;
  const std::uint32_t rest = digits & (2 * kHalf - 1);
  std::uint32_t magnitude = digits >> kDropped;
  if (rest > kHalf || (rest == kHalf && magnitude % 2 == 1)) ++magnitude;
  magnitude = std::min(magnitude, kLargest);
  return static_cast<std::uint8_t>(magnitude | (magnitude == 0 ? 0 : (bits & kSign) >> 24));
}

float unpack_bfp8(std::uint8_t element, std::uint8_t shared_exponent) {
  const int magnitude = element & 0x7f;
  // No packer writes a zero with a sign: the unpacker takes it for an infinity.
  if (magnitude == 0) return element & 0x80 ? -std::numeric_limits<float>::infinity() : 0.0f;
  // Becomes a bf16: its exponent falls with the leading zeros, and below 1 there is none.
  const int leading_zeros = std::countl_zero(static_cast<std::uint8_t>(magnitude << 1));
  const int exponent = shared_exponent - leading_zeros;
  const float sign = element & 0x80 ? -1.0f : 1.0f;
  if (exponent < 1) return 0 * sign;
  if (shared_exponent == 255 && leading_zeros == 0) {  // what an infinity or a NaN was stored as
    const auto digits = static_cast<std::uint32_t>(magnitude & 0x3f) << 17;
    return std::bit_cast<float>((element & 0x80u) << 24 | kExponent | digits);
  }
  return sign * std::ldexp(static_cast<float>(magnitude), shared_exponent - 133);
}

Bfp8Group pack_bfp8_group(const float* values) {
  Bfp8Group group{};
  for (int n = 0; n < kGroup; ++n) {
    group.exponent = std::max(group.exponent, exponent_of(values[n]));
  }
  for (int n = 0; n < kGroup; ++n) {
    group.elements[static_cast<std::size_t>(n)] = pack_bfp8(values[n], group.exponent);
  }
  return group;
}

void pack_tile(DataFormat format, const float* values, std::uint8_t* tile) {
  for_each_group([&](int group, int first) {
    if (format == DataFormat::Bfp8_b) {
      const Bfp8Group packed = pack_bfp8_group(values + first);
      tile[group] = packed.exponent;
      std::copy(packed.elements.begin(), packed.elements.end(), tile + kGroups + group * kGroup);
      return;
    }
    for (int n = 0; n < kGroup; ++n) {
      const float value = rounded(format, values[first + n]);
      const int place = group * kGroup + n;
      if (format == DataFormat::Float32) {
        std::memcpy(tile + place * 4, &value, 4);
      } else {
        const auto upper = static_cast<std::uint16_t>(bits_of(value) >> 16);
        std::memcpy(tile + place * 2, &upper, 2);
      }
    }
  });
}

void unpack_tile(DataFormat format, const std::uint8_t* tile, float* values) {
  for_each_group([&](int group, int first) {
    for (int n = 0; n < kGroup; ++n) {
      const int place = group * kGroup + n;
      if (format == DataFormat::Bfp8_b) {
        values[first + n] = unpack_bfp8(tile[kGroups + place], tile[group]);
      } else if (format == DataFormat::Float32) {
        float value;
        std::memcpy(&value, tile + place * 4, 4);
        values[first + n] = flush_subnormal(value);
      } else {
        std::uint16_t upper;
        std::memcpy(&upper, tile + place * 2, 2);
        values[first + n] =
            flush_subnormal(std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16));
      }
    }
  });
}

}  // namespace attest::vendor::wormhole
