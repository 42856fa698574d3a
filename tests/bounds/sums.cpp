// dots(), compiled once for each kind of processor. Contraction is off, so all have the same bits.
#include "tests/bounds/sums.h"

#include <vector>

// What lies between the oldest processors and those of today gains little; and vectors whose size
// the compiler doesn't know can't be elements of arrays.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bounds/sums.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest::bounds {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
template <class T>
using Lanes = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Lanes<T>>;
template <class T>
constexpr Index kLanes = Index(hn::MaxLanes(Lanes<T>()));

// kVecs vectors of a matrix's columns, beginning with the one at `y`.
template <class T, int kVecs>
struct Columns {
  const T* y;
  Index pitch;

  Columns from(Index t) const { return {y + t * pitch, pitch}; }
  // Vector v of row t.
  template <class Tag>
  HWY_INLINE hn::Vec<Tag> load(Tag tag, Index t, int v) const {
    return hn::LoadU(tag, y + t * pitch + v * Index(hn::Lanes(tag)));
  }
};

template <class T>
HWY_INLINE Vec<T> multiply_add(T x, Vec<T> y, Vec<T> sum) {
  return hn::Add(sum, hn::Mul(hn::Set(Lanes<T>(), x), y));
}

// sums = step(x, y, sums) for t = first, first + stride, ... below n, or downwards.
template <class T, int kVecs, class Step>
HWY_INLINE void accumulate(const T* x, const Columns<T, kVecs>& y, Index first, Index stride,
                           Index n, Vec<T>* sums, const Step& step) {
  Vec<T> own[kVecs];  // in registers
  for (int v = 0; v < kVecs; ++v) own[v] = hn::Zero(Lanes<T>());
  for (Index t = first; t >= 0 && t < n; t += stride) {
    for (int v = 0; v < kVecs; ++v) own[v] = step(x[t], y.load(Lanes<T>(), t, v), own[v]);
  }
  for (int v = 0; v < kVecs; ++v) sums[v] = own[v];
}

template <class T, int kVecs>
void pairwise(const T* x, const Columns<T, kVecs>& y, Index n, Vec<T>* sums) {
  const auto product = [&](Index t, int v) {
    return hn::Mul(hn::Set(Lanes<T>(), x[t]), y.load(Lanes<T>(), t, v));
  };
  if (n <= 3) {
    for (int v = 0; v < kVecs; ++v) {
      sums[v] = product(n - 1, v);
      if (n == 3) sums[v] = hn::Add(product(1, v), sums[v]);
      if (n >= 2) sums[v] = hn::Add(product(0, v), sums[v]);
    }
    return;
  }
  const Index half = n / 2;
  Vec<T> rest[kVecs];
  pairwise(x, y, half, sums);
  pairwise(x + half, y.from(half), n - half, rest);
  for (int v = 0; v < kVecs; ++v) sums[v] = hn::Add(sums[v], rest[v]);
}

HWY_INLINE Vec<double> fused_step(double x, Vec<double> y, Vec<double> sum) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(hn::Set(Lanes<double>(), x), y, sum);
#else
  HWY_ALIGN double sums[kLanes<double>], factors[kLanes<double>];
  hn::Store(sum, Lanes<double>(), sums);
  hn::Store(y, Lanes<double>(), factors);
  for (Index l = 0; l < kLanes<double>; ++l) sums[l] = std::fma(x, factors[l], sums[l]);
  return hn::Load(Lanes<double>(), sums);
#endif
}

// dot() of each column by itself.
template <class T, int kVecs>
void one_by_one(Order order, const T* x, const Columns<T, kVecs>& y, Index n, Index count, T* out) {
  std::vector<T> column(static_cast<std::size_t>(n));
  for (Index i = 0; i < count; ++i) {
    for (Index t = 0; t < n; ++t) column[static_cast<std::size_t>(t)] = y.y[t * y.pitch + i];
    out[i] = dot(order, x, column.data(), n);
  }
}

// Sums of floats in doubles: half as many to a vector.
constexpr hn::Rebind<float, Lanes<double>> kFloats;

// Beyond the range infinity: where Highway emulates vectors, DemoteTo has the largest number there.
HWY_INLINE hn::Vec<decltype(kFloats)> narrowed(Vec<double> wide) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN double from[kLanes<double>];
  HWY_ALIGN float to[kLanes<double>];
  hn::Store(wide, Lanes<double>(), from);
  for (Index l = 0; l < kLanes<double>; ++l) to[l] = static_cast<float>(from[l]);
  return hn::Load(kFloats, to);
#else
  return hn::DemoteTo(kFloats, wide);
#endif
}

template <int kVecs>
struct WideColumns : Columns<float, kVecs> {
  HWY_INLINE Vec<double> product(float x, Index t, int v) const {
    return hn::Mul(hn::Set(Lanes<double>(), double(x)),
                   hn::PromoteTo(Lanes<double>(), this->load(kFloats, t, v)));
  }
};

// truncating_step() on vectors of accumulators: false, and nothing done, if one of them is infinite
// or NaN.
template <int kVecs>
HWY_INLINE bool truncating_steps(const float* x, const WideColumns<kVecs>& y, Index first,
                                 Index count, Vec<double>* sums) {
  constexpr int kDigits = std::numeric_limits<float>::digits;
  constexpr int kSubnormal = std::numeric_limits<float>::min_exponent - kDigits;
  constexpr int kDoubleDigits = std::numeric_limits<double>::digits;
  constexpr std::uint64_t kKept = ~((std::uint64_t(1) << (kDoubleDigits - kDigits)) - 1);
  const Lanes<double> d;
  const hn::RebindToSigned<Lanes<double>> bits;
  const hn::RebindToUnsigned<Lanes<double>> words;
  const hn::Rebind<std::int32_t, Lanes<double>> integers;
  Vec<double> largest[kVecs], plain[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    largest[v] = hn::Abs(sums[v]);
    plain[v] = sums[v];
  }
  for (Index t = 0; t < count; ++t) {
    for (int v = 0; v < kVecs; ++v) {
      const Vec<double> term = y.product(x[t], first + t, v);
      plain[v] = hn::Add(plain[v], term);
      largest[v] = hn::Max(largest[v], hn::Abs(term));
    }
  }
  for (int v = 0; v < kVecs; ++v) {
    if (!hn::AllTrue(d, hn::IsFinite(plain[v]))) return false;
  }
  for (int v = 0; v < kVecs; ++v) {
    const auto bias = hn::Set(bits, 1023);
    const auto exponent = hn::Sub(hn::ShiftRight<52>(hn::BitCast(bits, largest[v])), bias);
    const auto last =
        hn::Max(hn::Sub(exponent, hn::Set(bits, kDigits - 1)), hn::Set(bits, kSubnormal));
    const auto scale = hn::BitCast(d, hn::ShiftLeft<52>(hn::Sub(bias, last)));
    const auto unit = hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(bias, last)));
    auto total = hn::DemoteTo(integers, hn::Mul(sums[v], scale));  // below 17 times 2^24
    for (Index t = 0; t < count; ++t) {
      total = hn::Add(total, hn::DemoteTo(integers, hn::Mul(y.product(x[t], first + t, v), scale)));
    }
    const auto whole = hn::BitCast(words, hn::PromoteTo(d, total));
    sums[v] = hn::Mul(hn::BitCast(d, hn::And(whole, hn::Set(words, kKept))), unit);
  }
  return true;
}

template <class T, int kVecs>
void sum_columns(Order order, const T* x, const Columns<T, kVecs>& y, Index n, T* out) {
  const Lanes<T> tag;
  Vec<T> sums[kVecs];
  switch (order) {
    case Order::sequential:
      accumulate(x, y, 0, 1, n, sums, multiply_add<T>);
      break;
    case Order::reversed:
      accumulate(x, y, n - 1, -1, n, sums, multiply_add<T>);
      break;
    case Order::fused:
      if constexpr (std::is_same_v<T, double>) accumulate(x, y, 0, 1, n, sums, fused_step);
      break;
    case Order::pairwise:
      pairwise(x, y, n, sums);
      break;
    case Order::lanes:
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Zero(tag);
      for (Index lane = 0; lane < 16; ++lane) {
        Vec<T> own[kVecs];
        accumulate(x, y, lane, 16, n, own, multiply_add<T>);
        for (int v = 0; v < kVecs; ++v) sums[v] = hn::Add(sums[v], own[v]);
      }
      break;
    default:
      return one_by_one(order, x, y, n, kVecs * kLanes<T>, out);
  }
  for (int v = 0; v < kVecs; ++v) hn::StoreU(sums[v], tag, out + v * kLanes<T>);
}

// In doubles.
template <int kVecs>
void sum_columns_wide(Order order, const float* x, const Columns<float, kVecs>& columns, Index n,
                      float* out) {
  const Lanes<double> d;
  const WideColumns<kVecs> y = {columns};
  Vec<double> sums[kVecs];
  for (int v = 0; v < kVecs; ++v) sums[v] = hn::Zero(d);
  if (order == Order::fused) {
    for (Index t = 0; t < n; ++t) {
      for (int v = 0; v < kVecs; ++v) {
        sums[v] = hn::PromoteTo(d, narrowed(hn::Add(sums[v], y.product(x[t], t, v))));
      }
    }
  } else if (order == Order::wide) {
    for (Index t = 0; t < n; ++t) {
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Add(sums[v], y.product(x[t], t, v));
    }
  } else {
    const Index step = step_of(order);
    for (Index t = 0; t < n; t += step) {
      if (!truncating_steps(x + t, y, t, std::min(step, n - t), sums)) {
        return one_by_one(order, x, columns, n, kVecs * kLanes<double>, out);
      }
    }
  }
  for (int v = 0; v < kVecs; ++v) {
    hn::StoreU(narrowed(sums[v]), kFloats, out + v * kLanes<double>);
  }
}

template <class T>
void all_columns(Order order, const T* x, const T* y, Index pitch, Index n, Index count, T* out) {
  if (n == 0) return void(std::fill_n(out, count, T(0)));
  const bool wide = std::is_same_v<T, float> &&
                    (order == Order::fused || order == Order::wide || truncates(order));
  const Index lanes = wide ? kLanes<double> : kLanes<T>;
  if (count < lanes) {  // padded to a vector
    std::vector<T> padded(static_cast<std::size_t>(n * lanes + lanes));
    for (Index t = 0; t < n; ++t) {
      std::copy_n(y + t * pitch, count, padded.begin() + t * lanes);
    }
    T* sums = padded.data() + n * lanes;
    all_columns(order, x, padded.data(), lanes, n, lanes, sums);
    std::copy_n(sums, count, out);
    return;
  }
  const auto columns = [&](auto vecs, Index i) {
    const Columns<T, decltype(vecs)::value> from = {y + i, pitch};
    if constexpr (std::is_same_v<T, float>) {
      if (wide) return sum_columns_wide(order, x, from, n, out + i);
    }
    sum_columns(order, x, from, n, out + i);
  };
  constexpr std::integral_constant<int, 4> kMany;
  constexpr std::integral_constant<int, 1> kOne;
  Index i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) columns(kMany, i);
  for (; i + lanes <= count; i += lanes) columns(kOne, i);
  if (i < count) columns(kOne, count - lanes);  // some of them once more
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
