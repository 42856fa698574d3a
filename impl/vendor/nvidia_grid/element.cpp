#include "impl/vendor/nvidia_grid/element.h"

#include <bit>

namespace attest::vendor::nvidia_grid {
namespace {

float wide_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t narrow_bf16(float value) {
  const auto wide = std::bit_cast<std::uint32_t>(value);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(wide >> 16 | 0x40u);
  return static_cast<std::uint16_t>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
}

float wide_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // With the exponent in place the number is 2^-112 times what it stands for, subnormal or not.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

std::uint16_t narrow_fp16(float value) {
  const auto wide = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(wide >> 16 & 0x8000u);
  const std::uint32_t size = wide & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and more
  if (size < 0x38800000u) {  // below 2^-14: beside 0.5 floats are as far apart as halves are there
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

}  // namespace

const char* name(ScalarType type) {
  switch (type) {
    case ScalarType::kFloat16:
      return "fp16";
    case ScalarType::kBFloat16:
      return "bf16";
    case ScalarType::kFloat32:
      return "fp32";
    case ScalarType::kInt32:
      break;
  }
  return "int32";
}

std::int64_t bytes_of(ScalarType type) {
  return type == ScalarType::kFloat16 || type == ScalarType::kBFloat16 ? 2 : 4;
}

void widen(ScalarType type, const std::uint16_t* from, float* to, std::int64_t count) {
  if (type == ScalarType::kBFloat16) {
    for (std::int64_t n = 0; n < count; ++n) to[n] = wide_bf16(from[n]);
  } else {
    for (std::int64_t n = 0; n < count; ++n) to[n] = wide_fp16(from[n]);
  }
}

void narrow(ScalarType type, const float* from, std::uint16_t* to, std::int64_t count) {
  if (type == ScalarType::kBFloat16) {
    for (std::int64_t n = 0; n < count; ++n) to[n] = narrow_bf16(from[n]);
  } else {
    for (std::int64_t n = 0; n < count; ++n) to[n] = narrow_fp16(from[n]);
  }
}

void round_to(ScalarType type, float* values, std::int64_t count) {
  if (type == ScalarType::kBFloat16) {
    for (std::int64_t n = 0; n < count; ++n) values[n] = wide_bf16(narrow_bf16(values[n]));
  } else {
    for (std::int64_t n = 0; n < count; ++n) values[n] = wide_fp16(narrow_fp16(values[n]));
  }
}

}  // namespace attest::vendor::nvidia_grid
