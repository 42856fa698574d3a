// The steps, for a machine that has tiles. A Machine has, all static:
//
//   configure(), release()      eight tiles of 16 rows of 64 bytes each, for this thread
//   zero<t>()                   tile t = 0
//   load<t>(from, stride)       from memory; rows lie `stride` bytes apart
//   store<t>(to, stride)        to memory
//   multiply<c, a, b>()         c += a b: TDPBF16PS
//   narrow(x, y, to)            to[0, 32) = the 16 elements of x and of y, rounded to bf16
//   narrow_pairs(x, y, to)      the same, interleaved: x0 y0 x1 y1 ...
//
// Vectors are the compiler's. Nothing here has a name outside of the file that includes it, nor
// calls an inline function of the library: the linker must not take for all what has been compiled
// for one instruction set.
#pragma once

#include <cstdint>
#include <limits>

#include "impl/amx/steps.h"

// How vectors are passed matters to nobody else.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace attest::impl::amx {
namespace {

// ---- Products beside other work ----------------------------------------------------------------

// Computes products in small pieces, between which its owner does something else. The processor
// runs both at once: a piece is two loads of each side and four multiplications of tiles, which
// keep the matrix unit busy for 64 cycles while they take 8 instructions.
template <class Machine>
class Pieces {
 public:
  // `pauses`: how often the owner will come by.
  Pieces(const Beside& beside, std::int64_t pauses) : next_(beside.products), pauses_(pauses) {
    end_ = beside.products + beside.count;
    for (const Product* p = next_; p < end_; ++p) {
      pieces_ += (p->rows / kEdge) * (p->columns / kEdge) * (p->inner / kEdge);
    }
  }

  // Computes the share of one pause.
  void pause() {
    for (due_ += pieces_; due_ >= pauses_ && next_ < end_; due_ -= pauses_) compute();
  }

  void finish() {
    while (next_ < end_) compute();
  }

 private:
  void compute() {
    const Product& p = *next_;
    const std::int64_t stride = p.c_stride * static_cast<std::int64_t>(sizeof(float));
    float* const c = p.c + row_ * p.c_stride + column_;
    float* const below = c + kPanel * p.c_stride;
    if (k_ == 0 && p.adds) {
      Machine::template load<0>(c, stride);
      Machine::template load<1>(c + kPanel, stride);
      Machine::template load<2>(below, stride);
      Machine::template load<3>(below + kPanel, stride);
    } else if (k_ == 0) {
      Machine::template zero<0>();
      Machine::template zero<1>();
      Machine::template zero<2>();
      Machine::template zero<3>();
    }
    constexpr std::int64_t kBytes = sizeof(Bits);
    const Bits* const a = p.a.data + row_ * p.a.stride + k_;
    const Bits* const b = p.b.data + Right::index(p.b.rows, k_, column_);
    Machine::template load<4>(a, p.a.stride * kBytes);
    Machine::template load<6>(b, 2 * kPanel * kBytes);
    Machine::template load<7>(b + kPanel * p.b.rows, 2 * kPanel * kBytes);
    Machine::template load<5>(a + kPanel * p.a.stride, p.a.stride * kBytes);
    Machine::template multiply<0, 4, 6>();
    Machine::template multiply<1, 4, 7>();
    Machine::template multiply<2, 5, 6>();
    Machine::template multiply<3, 5, 7>();
    k_ += kEdge;
    if (k_ < p.inner) return;
    Machine::template store<0>(c, stride);
    Machine::template store<1>(c + kPanel, stride);
    Machine::template store<2>(below, stride);
    Machine::template store<3>(below + kPanel, stride);
    k_ = 0;
    row_ += kEdge;
    if (row_ < p.rows) return;
    row_ = 0;
    column_ += kEdge;
    if (column_ < p.columns) return;
    column_ = 0;
    ++next_;
  }

  const Product* next_;
  const Product* end_;
  std::int64_t row_ = 0, column_ = 0, k_ = 0;  // in *next_
  std::int64_t pieces_ = 0, pauses_, due_ = 0;
};

// ---- Vectors -----------------------------------------------------------------------------------

using Vector = float __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
constexpr std::int64_t kLanes = 16;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

inline Vector load(const float* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline void store(const Vector& v, float* to) { __builtin_memcpy(to, &v, sizeof v); }
inline Vector broadcast(float x) { return Vector{} + x; }

// Calls join(v, v with its lanes moved) until all lanes have met.
template <class Join>
inline float reduced(const Vector& all, const Join& join) {
  Vector v = all;
  v = join(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = join(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = join(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = join(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}
inline float sum_of(const Vector& v) {
  return reduced(v, [](const Vector& a, const Vector& b) { return a + b; });
}
inline float max_of(const Vector& v) {
  return reduced(v, [](const Vector& a, const Vector& b) { return a > b ? a : b; });
}

// exp(x) = 2^n e^r with n = round(x log2(e)) and r = x - n ln2, |r| <= ln2 / 2; ln2 is taken in two
// parts, the first so short that n times it is exact. e^r = 1 + (r + r^2 q(r)). Within 1 ulp,
// subnormal results included; 0 for -inf, NaN for NaN; e^43 for all that is larger than 43, which
// no difference of a score and its LSE is.
inline Vector exp_of(const Vector& of) {
  Vector x = of < -104.0f ? broadcast(-104.0f) : of;
  x = x > 43.0f ? broadcast(43.0f) : x;
  // Adding this rounds to an integer, and leaves n + 64 and the exponent's bias in the last bits.
  // 2^n takes two steps, the last of which rounds: the result may be subnormal.
  constexpr float kRound = 0x1.8p23f + 64 + 127;
  const Vector shifted = x * 0x1.715476p0f + kRound;
  const Vector n = shifted - kRound;
  Vector r = x - n * 0x1.63p-1f;
  r = r + n * 0x1.bd0106p-13f;
  Vector q = r * 0x1.6b7c9p-10f + 0x1.123056p-7f;
  q = q * r + 0x1.55567cp-5f;
  q = q * r + 0x1.5554a2p-3f;
  q = q * r + 0.5f;
  const Vector e = 1.0f + (r * r * q + r);
  return e * (Vector)((Words)shifted << 23) * 0x1p-64f;
}

// ---- Rows of scores ----------------------------------------------------------------------------

inline float widened(Bits bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

// Computes the elements of a row that are not finite once more, with a larger range.
void remake_row(const Product& p, std::int64_t row, std::int64_t columns, float factor, float* c) {
  for (std::int64_t j = 0; j < columns; ++j) {
    if (c[j] - c[j] == 0) continue;
    double sum = 0;
    for (std::int64_t k = 0; k < p.inner; ++k) {
      sum += static_cast<double>(widened(p.a.data[row * p.a.stride + k])) *
             static_cast<double>(widened(p.b.data[Right::index(p.b.rows, k, j)]));
    }
    c[j] = static_cast<float>(static_cast<double>(factor) * sum);
  }
}

inline void scale_row(const Scores& s, std::int64_t row, float factor) {
  float* const c = s.product.c + row * s.product.c_stride;
  Vector check = {};
  for (std::int64_t j = 0; j < s.product.columns; j += kLanes) {
    const Vector scaled = load(c + j) * factor;
    check += 0 * scaled;  // 0, or NaN
    store(scaled, c + j);
  }
  if (sum_of(check) != 0) remake_row(s.product, row, s.columns, factor, c);
}

// What fills up a row has no weight.
inline void hide_padding(const Scores& s, float* row) {
  for (std::int64_t j = s.columns; j < s.product.columns; ++j) row[j] = kMinusInfinity;
}

// max(top, the row), passing over NaN.
inline float max_of_row(const float* row, std::int64_t columns, float top) {
  Vector max[2] = {broadcast(top), broadcast(top)};
  for (std::int64_t j = 0; j < columns; j += 2 * kLanes) {
    for (int v = 0; v < 2; ++v) {
      const Vector x = load(row + j + v * kLanes);
      max[v] = x > max[v] ? x : max[v];
    }
  }
  return max_of(max[0] > max[1] ? max[0] : max[1]);
}

template <class Machine>
inline void narrow_row(const float* row, std::int64_t columns, Bits* to) {
  for (std::int64_t j = 0; j < columns; j += 2 * kLanes) {
    Machine::narrow(load(row + j), load(row + j + kLanes), to + j);
  }
}

// A row of scores is worked on in parts, with a pause after each.
constexpr std::int64_t kPart = 128;

template <class Machine>
void absorb(const SoftmaxUnit& unit, const Beside& beside) {
  const Scores& s = unit.scores;
  const std::int64_t columns = s.product.columns;
  Pieces<Machine> pieces(beside, s.rows * (1 + (columns + kPart - 1) / kPart));
  constexpr std::int64_t kMostRows = kEdge;
  float rescale[kMostRows];
  for (std::int64_t i = 0; i < s.rows; ++i) {
    float* const row = s.product.c + i * s.product.c_stride;
    if (unit.factor != 0) scale_row(s, i, unit.factor);
    hide_padding(s, row);
    const float old = unit.max[i], top = max_of_row(row, columns, old);
    unit.max[i] = top;
    pieces.pause();
    // Before the first visible key exp is taken relative to 0, for (-inf) - (-inf) is not a number.
    const float base = top == kMinusInfinity ? 0 : top;
    rescale[i] = old == top && old != kMinusInfinity ? 1 : exp_of(broadcast(old - base))[0];
    Vector sum[2] = {};
    for (std::int64_t part = 0; part < columns; part += kPart) {
      const std::int64_t end = part + kPart < columns ? part + kPart : columns;
      for (std::int64_t j = part; j < end; j += 2 * kLanes) {
        for (int v = 0; v < 2; ++v) {
          const Vector weight = exp_of(load(row + j + v * kLanes) - base);
          sum[v] += weight;
          store(weight, row + j + v * kLanes);
        }
      }
      if (unit.p) narrow_row<Machine>(row + part, end - part, unit.p + i * unit.p_stride + part);
      pieces.pause();
    }
    unit.sum[i] = unit.sum[i] * rescale[i] + sum_of(sum[0] + sum[1]);
  }
  pieces.finish();
  for (std::int64_t i = 0; i < s.rows; ++i) {
    if (rescale[i] == 1) continue;
    float* const o = unit.o + i * unit.o_stride;
    for (std::int64_t c = 0; c < unit.o_columns; c += kLanes)
      store(load(o + c) * rescale[i], o + c);
  }
}

template <class Machine>
void narrow(const SoftmaxUnit& unit) {
  const Scores& s = unit.scores;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    narrow_row<Machine>(s.product.c + i * s.product.c_stride, s.product.columns,
                        unit.p + i * unit.p_stride);
  }
}

// Two rows of P and dS, or one and zeros.
template <class Machine>
inline void narrow_pair_of_rows(const GradientUnit& unit, std::int64_t i) {
  const NarrowGradient& to = unit.narrow;
  const std::int64_t stride = unit.s.product.c_stride, columns = unit.s.product.columns;
  const float* const p = unit.s.product.c + i * stride;
  const float* const ds = unit.dp.product.c + i * stride;
  const bool first = i < unit.s.rows, second = i + 1 < unit.s.rows;
  for (std::int64_t j = 0; j < columns; j += kLanes) {
    const std::int64_t at = Right::index(to.pair_rows, i, j);
    const Vector none = {};
    Machine::narrow_pairs(first ? load(p + j) : none, second ? load(p + stride + j) : none,
                          to.p + at);
    Machine::narrow_pairs(first ? load(ds + j) : none, second ? load(ds + stride + j) : none,
                          to.ds + at);
  }
  if (first) narrow_row<Machine>(ds, columns, to.ds_rows + i * to.ds_stride);
  if (second) narrow_row<Machine>(ds + stride, columns, to.ds_rows + (i + 1) * to.ds_stride);
}

template <class Machine>
void narrow_gradient(const GradientUnit& unit) {
  for (std::int64_t i = 0; i < unit.s.product.rows; i += 2) narrow_pair_of_rows<Machine>(unit, i);
}

inline void differentiate_row(const GradientUnit& unit, std::int64_t i) {
  float* const p = unit.s.product.c + i * unit.s.product.c_stride;
  float* const ds = unit.dp.product.c + i * unit.dp.product.c_stride;
  if (unit.factor != 0) {
    scale_row(unit.s, i, unit.factor);
    scale_row(unit.dp, i, 1);
  }
  hide_padding(unit.s, p);
  const float lse = unit.lse[i], delta = unit.delta[i];
  for (std::int64_t j = 0; j < unit.s.product.columns; j += kLanes) {
    const Vector score = load(p + j), none = {};
    const Vector weight = score == kMinusInfinity ? none : exp_of(score - lse);
    const Vector gradient = weight * (load(ds + j) - delta);
    store(weight, p + j);
    store(score == kMinusInfinity ? none : gradient, ds + j);
  }
}

template <class Machine>
void differentiate(const GradientUnit& unit, const Beside& beside) {
  const std::int64_t rows = unit.s.rows;
  Pieces<Machine> pieces(beside, unit.s.product.rows);
  for (std::int64_t i = 0; i < unit.s.product.rows; i += 2) {
    if (i < rows) differentiate_row(unit, i);
    pieces.pause();
    if (i + 1 < rows) differentiate_row(unit, i + 1);
    if (unit.narrows) narrow_pair_of_rows<Machine>(unit, i);
    pieces.pause();
  }
  pieces.finish();
}

template <class Machine>
void multiply(const Beside& products) {
  Pieces<Machine>(products, 1).finish();
}

inline void scale(const Scores& scores, float factor) {
  for (std::int64_t i = 0; i < scores.rows; ++i) scale_row(scores, i, factor);
}

template <class Machine>
constexpr Steps steps_of() {
  return {.enter = &Machine::configure,
          .leave = &Machine::release,
          .multiply = &multiply<Machine>,
          .scale = &scale,
          .absorb = &absorb<Machine>,
          .differentiate = &differentiate<Machine>,
          .narrow = &narrow<Machine>,
          .narrow_gradient = &narrow_gradient<Machine>};
}

}  // namespace
}  // namespace attest::impl::amx
