// Between tensors and tiles: numbers of any format and any strides become dense numbers of the
// computing type, and back (FORMAT-1 to FORMAT-4). No element outside of the tensor is read.
#if defined(ATTEST_IMPL_ENGINE_PACK_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_IMPL_ENGINE_PACK_INL_
#undef ATTEST_IMPL_ENGINE_PACK_INL_
#else
#define ATTEST_IMPL_ENGINE_PACK_INL_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "impl/elements.h"
#include "impl/engine/engine.h"
#include "impl/engine/vectors.inl"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

// out[0, n) = the numbers from `in` on, `stride` apart. With a stride of 1 the loops vectorise, but
// for f16, which has an instruction; Highway's emulation of it does not know infinity.
template <class T, class R = Real<T>>
HWY_INLINE void Widen(const T* HWY_RESTRICT in, std::int64_t stride, std::int64_t n,
                      R* HWY_RESTRICT out) {
  std::int64_t c = 0;
  if (stride == 1) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, Half>) {
      const hn::Rebind<hwy::float16_t, Lanes<R>> halves;
      const auto* const lanes = reinterpret_cast<const hwy::float16_t*>(in);
      for (; c + kLanes<R> <= n; c += kLanes<R>) {
        hn::StoreU(hn::PromoteTo(Lanes<R>(), hn::LoadU(halves, lanes + c)), Lanes<R>(), out + c);
      }
    }
#endif
    for (; c < n; ++c) out[c] = widen(in[c]);
  } else {
    for (; c < n; ++c) out[c] = widen(in[c * stride]);
  }
}

// numbers *= factor. Answers whether all are finite.
template <class R>
bool ScaleAndCheck(R factor, std::int64_t panels_of_numbers, R* numbers) {
  const Lanes<R> d;
  Vec<R> check = hn::Zero(d);
  for (std::int64_t n = 0; n < panels_of_numbers * kPanel<R>; n += kLanes<R>) {
    Vec<R> number = hn::LoadU(d, numbers + n);
    if (factor != 1) {
      number = hn::Mul(number, hn::Set(d, factor));
      hn::StoreU(number, d, numbers + n);
    }
    check = hn::Add(check, hn::Sub(number, number));  // 0, or NaN
  }
  return hn::AllTrue(d, hn::Eq(check, check));
}

template <class T, class R = Real<T>>
void PackAs(const T* data, const Stored& from, R* panels) {
  for (std::int64_t column = 0; column < from.columns; column += kPanel<R>) {
    const std::int64_t columns = std::min(kPanel<R>, from.columns - column);
    for (std::int64_t row = 0; row < from.rows; ++row, panels += kPanel<R>) {
      const T* const in = data + row * from.row_stride + column * from.column_stride;
      if (columns == kPanel<R>) {  // the length of the loop as a constant
        Widen(in, from.column_stride, kPanel<R>, panels);
      } else {
        Widen(in, from.column_stride, columns, panels);
        std::fill(panels + columns, panels + kPanel<R>, R(0));
      }
    }
  }
}

// to[c][r] = from[r][c] for a square of kSquare rows and columns: a vector of 128 bits long.
#if HWY_TARGET == HWY_SCALAR
template <class R>
constexpr std::int64_t kSquare = 1;

template <class R>
HWY_INLINE void TransposeSquare(const R* from, std::int64_t, R* to, std::int64_t) {
  *to = *from;
}
#else
template <class R>
constexpr std::int64_t kSquare = 16 / sizeof(R);

HWY_INLINE void TransposeSquare(const float* from, std::int64_t from_stride, float* to,
                                std::int64_t to_stride) {
  const hn::Full128<float> d;
  const auto row = [&](int r) { return hn::LoadU(d, from + r * from_stride); };
  const auto left01 = hn::InterleaveLower(d, row(0), row(1));
  const auto left23 = hn::InterleaveLower(d, row(2), row(3));
  const auto right01 = hn::InterleaveUpper(d, row(0), row(1));
  const auto right23 = hn::InterleaveUpper(d, row(2), row(3));
  hn::StoreU(hn::ConcatLowerLower(d, left23, left01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, left23, left01), d, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(d, right23, right01), d, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, right23, right01), d, to + 3 * to_stride);
}

HWY_INLINE void TransposeSquare(const double* from, std::int64_t from_stride, double* to,
                                std::int64_t to_stride) {
  const hn::Full128<double> d;
  const auto row0 = hn::LoadU(d, from), row1 = hn::LoadU(d, from + from_stride);
  hn::StoreU(hn::InterleaveLower(d, row0, row1), d, to);
  hn::StoreU(hn::InterleaveUpper(d, row0, row1), d, to + to_stride);
}
#endif

// Goes through blocks of a panel of rows and kChunk columns. Whole blocks of numbers that need no
// conversion are read where they are, others by way of `block`.
template <class T, class R = Real<T>>
void PackTransposedAs(const T* data, const Stored& from, R* panels) {
  constexpr std::int64_t kChunk = 16;
  HWY_ALIGN R block[kPanel<R> * kChunk], transposed[kPanel<R> * kChunk];
  for (std::int64_t row = 0; row < from.rows; row += kPanel<R>) {
    const std::int64_t rows = std::min(kPanel<R>, from.rows - row);
    for (std::int64_t column = 0; column < from.columns; column += kChunk) {
      const std::int64_t columns = std::min(kChunk, from.columns - column);
      const T* const in = data + row * from.row_stride + column * from.column_stride;
      const R* source = block;
      std::int64_t stride = kChunk;
      if constexpr (std::is_same_v<T, R>) {
        if (from.column_stride == 1 && rows == kPanel<R> && columns == kChunk) {
          source = in;
          stride = from.row_stride;
        }
      }
      if (source == block) {
        std::fill(block, block + kPanel<R> * kChunk, R(0));
        for (std::int64_t r = 0; r < rows; ++r) {
          const T* const run = in + r * from.row_stride;
          if (columns == kChunk) {  // the length of the loop as a constant
            Widen(run, from.column_stride, kChunk, block + r * kChunk);
          } else {
            Widen(run, from.column_stride, columns, block + r * kChunk);
          }
        }
      }
      R* const target = columns == kChunk ? panels : transposed;
      for (std::int64_t c = 0; c < kChunk; c += kSquare<R>) {
        for (std::int64_t r = 0; r < kPanel<R>; r += kSquare<R>) {
          TransposeSquare(source + r * stride + c, stride, target + c * kPanel<R> + r, kPanel<R>);
        }
      }
      if (target == transposed) std::copy_n(transposed, columns * kPanel<R>, panels);
      panels += columns * kPanel<R>;
    }
  }
}

template <class T, class R = Real<T>>
void StoreAs(const Tile<R>& from, R factor, const R* row_divisors, const StoredResult& to) {
  for (std::int64_t i = 0; i < to.rows; ++i) {
    const R divisor = row_divisors ? row_divisors[i] : R(1);
    const R* HWY_RESTRICT row = from.row(i);
    T* HWY_RESTRICT out = static_cast<T*>(to.data) + i * to.row_stride;
    if (to.column_stride == 1) {
      for (std::int64_t c = 0; c < to.columns; ++c) out[c] = narrow<T>(factor * row[c] / divisor);
    } else {
      for (std::int64_t c = 0; c < to.columns; ++c) {
        out[c * to.column_stride] = narrow<T>(factor * row[c] / divisor);
      }
    }
  }
}

// visit(the data, as elements of their type), for the types that are computed in R.
template <class R, class Visit>
void VisitElements(const Stored& from, const Visit& visit) {
  with_element_type(from.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<Real<T>, R>) visit(static_cast<const T*>(from.data));
  });
}

template <class R>
bool Pack(const Stored& from, R* panels) {
  VisitElements<R>(from, [&](const auto* data) { PackAs(data, from, panels); });
  return ScaleAndCheck(R(1), padded<R>(from.columns) / kPanel<R> * from.rows, panels);
}

template <class R>
bool PackTransposed(const Stored& from, R factor, R* panels) {
  VisitElements<R>(from, [&](const auto* data) { PackTransposedAs(data, from, panels); });
  return ScaleAndCheck(factor, padded<R>(from.rows) / kPanel<R> * from.columns, panels);
}

template <class R>
void Load(const Stored& from, const Tile<R>& to) {
  VisitElements<R>(from, [&](const auto* data) {
    for (std::int64_t i = 0; i < from.rows; ++i) {
      Widen(data + i * from.row_stride, from.column_stride, from.columns, to.row(i));
    }
  });
}

template <class R>
void Store(const Tile<R>& from, R factor, const R* row_divisors, const StoredResult& to) {
  with_element_type(to.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<Real<T>, R>) StoreAs<T>(from, factor, row_divisors, to);
  });
}

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
