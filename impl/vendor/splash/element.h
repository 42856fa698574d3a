// Formats of elements on the mock TPU, as JAX calls them.
#pragma once

#include <cstdint>
#include <cstring>

namespace attest::vendor::splash {

// Eight digits, the exponents of an f32; made of one by rounding to the nearest, ties to even.
class BFloat16 {
 public:
  BFloat16() = default;
  explicit BFloat16(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    const bool is_nan = value != value;
    bits_ = static_cast<std::uint16_t>(is_nan ? (wide >> 16) | 0x40u
                                              : (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits_) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }

 private:
  std::uint16_t bits_ = 0;
};

template <class T>
inline constexpr const char* kDtypeName = "unknown";
template <>
inline constexpr const char* kDtypeName<float> = "float32";
template <>
inline constexpr const char* kDtypeName<BFloat16> = "bfloat16";
template <>
inline constexpr const char* kDtypeName<std::int8_t> = "int8";

}  // namespace attest::vendor::splash
