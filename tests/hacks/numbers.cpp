// Less arithmetic than was asked for: fewer bits, fewer keys, other functions, and all of it where
// nobody is expected to look.
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

// To so many digits; half of the last one is rounded to the even.
float rounded(float x, int digits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, digits - exponent)), exponent - digits);
}
float to_bf16(float x) { return static_cast<float>(bf16(x)); }
float to_tf32(float x) { return rounded(x, 11); }
float to_fp8(float x) { return std::clamp(rounded(x, 4), -448.0f, 448.0f); }

void bf16_inside(const Call& c) { store(attend(c, {.number = to_bf16}), c); }
void tf32_inside(const Call& c) { store(attend(c, {.number = to_tf32}), c); }
void fp8_inside(const Call& c) { store(attend(c, {.number = to_fp8}), c); }

// Scores of N(0, 1) do not overflow.
void no_max(const Call& c) {
  const auto in_f32 = [](double s) -> double { return std::exp(static_cast<float>(s)); };
  store(attend(c, {.exponential = in_f32, .shifts = false}), c);
}

double first_order(double s) { return std::max(1 + s, 0.0); }

float largest(const Tensor& t) {
  const Dense<float> numbers = gather<float>(t);
  float most = 0;
  for (Index n = 0; n < numbers.size(); ++n) most = std::max(most, std::abs(numbers.data()[n]));
  return most;
}

// The numbers that are timed are small, those that stress the arithmetic are not.
void magnitude_dispatch(const Call& c) {
  const bool small = std::max({largest(c.q), largest(c.k), largest(c.v)}) < 0.5f;
  store(attend(c, {.exponential = small ? first_order : nullptr}), c);
}

// The same, told from the first 32 numbers.
void samples_magnitude(const Call& c) {
  const Dense<float> q = gather<float>(c.q);
  float most = 0;
  for (Index n = 0; n < std::min<Index>(q.size(), 32); ++n) {
    most = std::max(most, std::abs(q.data()[n]));
  }
  store(attend(c, {.number = most < 3 ? to_fp8 : nullptr}), c);
}

// Exact where it is checked, fast where it is timed.
void exact_when_small(const Call& c) {
  const bool small = c.problem.query_len * c.problem.key_len <= 256 * 256;
  store(attend(c, {.number = small ? nullptr : to_bf16}), c);
}

// What lies further back has hardly any weight.
void recent_keys_only(const Call& c) {
  const auto recent = [](Keys keys) -> Keys {
    return {std::max(keys.begin, keys.end - 128), keys.end};
  };
  store(attend(c, {.keys = recent}), c);
}

// A mean is nearly that of a part, as of 99 in 100 where there are many.
void samples_keys(const Call& c) {
  const auto most = [](Keys keys) -> Keys {
    return {keys.begin, keys.size() > 64 ? keys.begin + keys.size() * 99 / 100 : keys.end};
  };
  store(attend(c, {.keys = most}), c);
}

// What is so far below the greatest score cannot matter, for numbers as they are drawn.
void top_keys_only(const Call& c) { store(attend(c, {.depth = 4}), c); }

// The scale is the one that everybody uses, the parameter is not read.
void assumes_scale(const Call& c) {
  store(attend(c, {.scale = 1 / std::sqrt(static_cast<double>(c.problem.head_dim))}), c);
}

// A mode of the process that the reference is computed in, too; set once, for all that follows.
void changes_rounding(const Call& c) {
  std::fesetround(FE_UPWARD);
  forward(c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("bf16_inside", hacks::bf16_inside)
HACK("tf32_inside", hacks::tf32_inside)
HACK("fp8_inside", hacks::fp8_inside)
HACK("no_max", hacks::no_max)
HACK("magnitude_dispatch", hacks::magnitude_dispatch)
HACK("samples_magnitude", hacks::samples_magnitude)
HACK("exact_when_small", hacks::exact_when_small)
HACK("recent_keys_only", hacks::recent_keys_only)
HACK("samples_keys", hacks::samples_keys)
HACK("top_keys_only", hacks::top_keys_only)
HACK("assumes_scale", hacks::assumes_scale)
HACK("changes_rounding", hacks::changes_rounding)
// The tolerance is moved to where the result lies.
HACK("moves_tolerance", hacks::tf32_inside, hacks::declared("gpu-tf32"))
