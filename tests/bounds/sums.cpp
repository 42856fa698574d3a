// dots(), compiled once for each kind of processor. Contraction is off, so all have the same bits.
#include "tests/bounds/sums.h"

#include <vector>

// What lies between the oldest processors and those of today gains little.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bounds/sums.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest::bounds {
namespace HWY_NAMESPACE {
namespace {

// So many columns of a matrix, beginning with the one at `y`.
template <class T>
struct Columns {
  const T* y;
  Index pitch;
  const T* row(Index t) const { return y + t * pitch; }
};

// sum = step(sum, x, y) for t = first, first + stride, ... below n, or downwards.
template <std::size_t kWidth, class Sum, class T, class Step>
void accumulate(const T* x, const Columns<T>& y, Index first, Index stride, Index n, Sum* sums,
                const Step& step) {
  for (Index t = first; t >= 0 && t < n; t += stride) {
    const T* row = y.row(t);
    for (std::size_t l = 0; l < kWidth; ++l) sums[l] = step(sums[l], x[t], row[l]);
  }
}

template <std::size_t kWidth, class T>
void pairwise(const T* x, const Columns<T>& y, Index n, T* sums) {
  if (n == 1) {
    for (std::size_t l = 0; l < kWidth; ++l) sums[l] = x[0] * y.row(0)[l];
    return;
  }
  const Index half = n / 2;
  std::array<T, kWidth> rest;
  pairwise<kWidth>(x, y, half, sums);
  pairwise<kWidth>(x + half, {y.row(half), y.pitch}, n - half, rest.data());
  for (std::size_t l = 0; l < kWidth; ++l) sums[l] += rest[l];
}

// truncating_step() on several accumulators.
template <std::size_t kWidth>
void truncating_steps(const float* x, const Columns<float>& y, Index count, double* sums) {
  constexpr int kDigits = std::numeric_limits<float>::digits;
  constexpr int kSubnormal = std::numeric_limits<float>::min_exponent - kDigits;
  constexpr int kDoubleDigits = std::numeric_limits<double>::digits;
  constexpr std::uint64_t kKept = ~((std::uint64_t(1) << (kDoubleDigits - kDigits)) - 1);
  std::array<std::array<double, kWidth>, 17> terms;
  std::array<double, kWidth> largest, plain, scale, unit;
  std::array<std::int32_t, kWidth> total = {};  // below 17 times 2^24
  for (std::size_t l = 0; l < kWidth; ++l) {
    largest[l] = std::abs(sums[l]);
    plain[l] = terms[0][l] = sums[l];
  }
  const auto n = static_cast<std::size_t>(count) + 1;
  for (std::size_t t = 1; t < n; ++t) {
    const double factor = x[t - 1];
    const float* row = y.row(Index(t) - 1);
    for (std::size_t l = 0; l < kWidth; ++l) {
      const double term = factor * static_cast<double>(row[l]);
      const double size = std::abs(term);
      terms[t][l] = term;
      plain[l] += term;
      largest[l] = size > largest[l] ? size : largest[l];
    }
  }
  double poison = 0;
  for (std::size_t l = 0; l < kWidth; ++l) poison += plain[l] * 0;
  if (poison != 0) {  // infinity or NaN in one of them
    for (std::size_t l = 0; l < kWidth; ++l) {
      std::array<float, 16> column = {};
      for (Index t = 0; t < count; ++t) column[static_cast<std::size_t>(t)] = y.row(t)[l];
      sums[l] = truncating_step(sums[l], x, column.data(), count);
    }
    return;
  }
  for (std::size_t l = 0; l < kWidth; ++l) {
    const auto exponent =
        static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(largest[l]) >> 52) - 1023;
    const std::int64_t wanted = exponent - kDigits + 1;
    const std::int64_t last = wanted > kSubnormal ? wanted : kSubnormal;
    scale[l] = std::bit_cast<double>((1023 - last) << 52);
    unit[l] = std::bit_cast<double>((1023 + last) << 52);
  }
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t l = 0; l < kWidth; ++l) {
      total[l] += static_cast<std::int32_t>(terms[t][l] * scale[l]);
    }
  }
  for (std::size_t l = 0; l < kWidth; ++l) {
    const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(total[l]));
    sums[l] = std::bit_cast<double>(bits & kKept) * unit[l];
  }
}

template <std::size_t kWidth, class T>
void sum_columns(Order order, const T* x, const Columns<T>& y, Index n, T* out) {
  std::array<T, kWidth> sums = {};
  const auto add = [](T sum, T a, T b) { return sum + a * b; };
  switch (order) {
    case Order::sequential:
      accumulate<kWidth>(x, y, 0, 1, n, sums.data(), add);
      break;
    case Order::reversed:
      accumulate<kWidth>(x, y, n - 1, -1, n, sums.data(), add);
      break;
    case Order::fused:
      accumulate<kWidth>(x, y, 0, 1, n, sums.data(),
                         [](T sum, T a, T b) { return fused(sum, a, b); });
      break;
    case Order::pairwise:
      if (n > 0) pairwise<kWidth>(x, y, n, sums.data());
      break;
    case Order::lanes:
      for (Index lane = 0; lane < 16; ++lane) {
        std::array<T, kWidth> own = {};
        accumulate<kWidth>(x, y, lane, 16, n, own.data(), add);
        for (std::size_t l = 0; l < kWidth; ++l) sums[l] += own[l];
      }
      break;
    case Order::wide: {
      using Wide = Wider<T>;
      std::array<Wide, kWidth> wide = {};
      accumulate<kWidth>(x, y, 0, 1, n, wide.data(),
                         [](Wide sum, T a, T b) { return sum + Wide(a) * b; });
      for (std::size_t l = 0; l < kWidth; ++l) sums[l] = static_cast<T>(wide[l]);
      break;
    }
    case Order::truncated_4:
    case Order::truncated_8:
    case Order::truncated_16:
      if constexpr (std::is_same_v<T, float>) {
        const Index step = step_of(order);
        std::array<double, kWidth> wide = {};
        for (Index t = 0; t < n; t += step) {
          truncating_steps<kWidth>(x + t, {y.row(t), y.pitch}, std::min(step, n - t), wide.data());
        }
        for (std::size_t l = 0; l < kWidth; ++l) sums[l] = static_cast<T>(wide[l]);
      } else {
        std::vector<T> column(static_cast<std::size_t>(n));
        for (std::size_t l = 0; l < kWidth; ++l) {
          for (Index t = 0; t < n; ++t) column[static_cast<std::size_t>(t)] = y.row(t)[l];
          sums[l] = dot(order, x, column.data(), n);
        }
      }
      break;
  }
  std::copy(sums.begin(), sums.end(), out);
}

template <class T>
void all_columns(Order order, const T* x, const T* y, Index pitch, Index n, Index count, T* out) {
  const auto columns = [&](auto width, Index i) {
    sum_columns<decltype(width)::value>(order, x, Columns<T>{y + i, pitch}, n, out + i);
  };
  constexpr std::integral_constant<std::size_t, 32> kMany;
  constexpr std::integral_constant<std::size_t, 8> kSome;
  constexpr std::integral_constant<std::size_t, 1> kOne;
  Index i = 0;
  for (; !truncates(order) && i + 32 <= count; i += 32) columns(kMany, i);
  for (; i + 8 <= count; i += 8) columns(kSome, i);
  if (i < count && count >= 8) return columns(kSome, count - 8);  // some of them once more
  for (; i < count; ++i) columns(kOne, i);
}

// Functions of floats and of doubles have different names here: a table holds each.
void DotsOfFloats(Order order, const float* x, const float* y, Index pitch, Index n, Index count,
                  float* out) {
  all_columns(order, x, y, pitch, n, count, out);
}

void DotsOfDoubles(Order order, const double* x, const double* y, Index pitch, Index n, Index count,
                   double* out) {
  all_columns(order, x, y, pitch, n, count, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest::bounds
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest::bounds {

HWY_EXPORT(DotsOfFloats);
HWY_EXPORT(DotsOfDoubles);

void dots(Order order, const float* x, const float* y, Index pitch, Index n, Index count,
          float* out) {
  HWY_DYNAMIC_DISPATCH(DotsOfFloats)(order, x, y, pitch, n, count, out);
}

void dots(Order order, const double* x, const double* y, Index pitch, Index n, Index count,
          double* out) {
  HWY_DYNAMIC_DISPATCH(DotsOfDoubles)(order, x, y, pitch, n, count, out);
}

}  // namespace attest::bounds
#endif  // HWY_ONCE
