// The formats that the operators take, by the names of acl, and how the vector unit casts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace attest::vendor::ascend {

enum class DataType { kFloat16, kBf16, kFloat, kUint8, kBool };

inline std::int64_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBf16:
      return 2;
    case DataType::kFloat:
      return 4;
    default:
      return 1;
  }
}

inline std::string name_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return "FLOAT16";
    case DataType::kBf16:
      return "BFLOAT16";
    case DataType::kFloat:
      return "FLOAT";
    case DataType::kUint8:
      return "UINT8";
    default:
      return "BOOL";
  }
}

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// To the nearest, ties to even; subnormal halves are kept, NaN stays NaN. (The operators' public
// source casts the output by CAST_ROUND, ties away from 0; all casts are alike here.)
inline std::uint16_t to_bf16(float value) {
  const std::uint32_t wide = bits_of(value);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(wide >> 16 | 0x40u);
  return static_cast<std::uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
}
inline float from_bf16(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_half(float value) {
  const std::uint32_t wide = bits_of(value), magnitude = wide & 0x7fffffffu;
  const std::uint32_t sign = wide >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: numbers near 0.5 have the spacing of subnormals
    const float shifted = float_of(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}
inline float from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The fields at their place in a float are 2^-112 of the value.
  return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112f));
}

// `count` numbers, from and to memory that need not be aligned.
inline void widen(const std::byte* from, DataType type, std::int64_t count, float* to) {
  if (type == DataType::kFloat) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * n, sizeof(bits));
    to[n] = type == DataType::kBf16 ? from_bf16(bits) : from_half(bits);
  }
}
inline void narrow(const float* from, std::int64_t count, DataType type, std::byte* to) {
  if (type == DataType::kFloat) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    const std::uint16_t bits = type == DataType::kBf16 ? to_bf16(from[n]) : to_half(from[n]);
    std::memcpy(to + 2 * n, &bits, sizeof(bits));
  }
}

}  // namespace attest::vendor::ascend
