// The formats of the mock GPU's tensors: fp16 and bf16 for its matrix units, fp32 and int32 beside
// them. Wide numbers are floats; narrow ones are rounded to the nearest, ties to even.
#pragma once

#include <cstdint>

namespace attest::vendor::nvidia_grid {

enum class ScalarType { kFloat16, kBFloat16, kFloat32, kInt32 };

const char* name(ScalarType type);
std::int64_t bytes_of(ScalarType type);

// Of fp16 and bf16 only.
void widen(ScalarType type, const std::uint16_t* from, float* to, std::int64_t count);
void narrow(ScalarType type, const float* from, std::uint16_t* to, std::int64_t count);

// Rounds floats to the format, and leaves them floats.
void round_to(ScalarType type, float* values, std::int64_t count);

}  // namespace attest::vendor::nvidia_grid
