// The products of the engine: blocks of kStrip rows by one panel of columns, whose sums stay in
// registers while `inner` steps are taken.
//
// A step loads the panel's vectors, broadcasts one element of each row, and multiplies each with
// each: kStrip * kPanelVectors fused multiply-adds for kStrip + kPanelVectors loads. On AVX2 that
// is 12 for 8, with 12 sums, 2 vectors and 1 broadcast in its 16 registers; the sums are
// independent, so the latency of 4 or 5 cycles on two units is covered. A panel stays in the
// first-level cache while the strips of the left-hand side pass by.
#if defined(ATTEST_IMPL_ENGINE_PRODUCT_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_IMPL_ENGINE_PRODUCT_INL_
#undef ATTEST_IMPL_ENGINE_PRODUCT_INL_
#else
#define ATTEST_IMPL_ENGINE_PRODUCT_INL_
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "impl/engine/engine.h"
#include "impl/engine/vectors.inl"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

// What a product does with the left-hand side a and the result c.
struct Set {};    // c = a b
struct Scale {};  // c = factor a b
struct Add {};    // c += a b
struct AddSkippingZeros {};

// Where a strip of the left-hand side begins: at row `row` of a, or of its transpose.
template <bool kTransposed, class R>
HWY_INLINE const R* Strip(const Tile<R>& a, std::int64_t row) {
  return kTransposed ? a.data + row : a.row(row);
}

// kRows rows by one panel of c. Adds what is stored to `check`, which so becomes non-finite if any
// of it is.
template <class Mode, bool kTransposed, int kRows, class R>
HWY_INLINE void MultiplyStrip(const R* HWY_RESTRICT a, std::int64_t a_stride,
                              const R* HWY_RESTRICT b, std::int64_t inner, R factor,
                              R* HWY_RESTRICT c, std::int64_t c_stride, Vec<R>& check) {
  const Lanes<R> d;
  constexpr bool kAdds = !std::is_same_v<Mode, Set> && !std::is_same_v<Mode, Scale>;
  Vec<R> sum[kRows][kPanelVectors];
  HWY_UNROLL(kStrip)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(kPanelVectors)
    for (int v = 0; v < kPanelVectors; ++v) {
      sum[r][v] = kAdds ? hn::LoadU(d, c + r * c_stride + v * kLanes<R>) : hn::Zero(d);
    }
  }
  HWY_UNROLL(4)
  for (std::int64_t k = 0; k < inner; ++k) {
    Vec<R> right[kPanelVectors];
    HWY_UNROLL(kPanelVectors)
    for (int v = 0; v < kPanelVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes<R>);
    HWY_UNROLL(kStrip)
    for (int r = 0; r < kRows; ++r) {
      const Vec<R> left = hn::Set(d, kTransposed ? a[k * a_stride + r] : a[r * a_stride + k]);
      HWY_UNROLL(kPanelVectors)
      for (int v = 0; v < kPanelVectors; ++v) {
        if constexpr (std::is_same_v<Mode, AddSkippingZeros>) {
          const auto nothing = hn::Eq(left, hn::Zero(d));
          sum[r][v] = hn::MulAdd(left, hn::IfThenZeroElse(nothing, right[v]), sum[r][v]);
        } else {
          sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
        }
      }
    }
    b += kPanel<R>;
  }
  HWY_UNROLL(kStrip)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(kPanelVectors)
    for (int v = 0; v < kPanelVectors; ++v) {
      if constexpr (std::is_same_v<Mode, Scale>) {
        sum[r][v] = hn::Mul(sum[r][v], hn::Set(d, factor));
      }
      if constexpr (!kAdds) check = hn::Add(check, sum[r][v]);
      hn::StoreU(sum[r][v], d, c + r * c_stride + v * kLanes<R>);
    }
  }
}

// The same for the last rows, fewer than kRows.
template <class Mode, bool kTransposed, int kRows, class... Arguments>
HWY_INLINE void MultiplyRemainder(std::int64_t rows, Arguments&&... arguments) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      MultiplyStrip<Mode, kTransposed, kRows>(arguments...);
    } else {
      MultiplyRemainder<Mode, kTransposed, kRows - 1>(rows, arguments...);
    }
  }
}

// Answers whether all results are finite. (If their sum leaves the range, the answer is no.)
template <class Mode, bool kTransposed, class R>
bool MultiplyBlocks(const Tile<R>& a, const Panels<R>& b, R factor, const Tile<R>& c) {
  const std::int64_t inner = kTransposed ? a.rows : a.columns;
  Vec<R> check = hn::Zero(Lanes<R>());
  for (std::int64_t column = 0; column < c.columns; column += kPanel<R>) {
    const R* const panel = b.data + column * b.rows;
    std::int64_t row = 0;
    for (; row + kStrip <= c.rows; row += kStrip) {
      MultiplyStrip<Mode, kTransposed, kStrip>(Strip<kTransposed>(a, row), a.stride, panel, inner,
                                               factor, c.row(row) + column, c.stride, check);
    }
    if (row == c.rows) continue;
    MultiplyRemainder<Mode, kTransposed, kStrip - 1>(c.rows - row, Strip<kTransposed>(a, row),
                                                     a.stride, panel, inner, factor,
                                                     c.row(row) + column, c.stride, check);
  }
  return hn::AllTrue(Lanes<R>(), hn::IsFinite(check));
}

// Computes the elements of c = factor a b that are not finite once more, with a larger range.
template <class R>
void MultiplyWider(const Tile<R>& a, const Panels<R>& b, R factor, const Tile<R>& c) {
  using Wider = std::conditional_t<std::is_same_v<R, double>, long double, double>;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.columns; ++j) {
      if (std::isfinite(c.row(i)[j])) continue;
      const R* const column = b.data + j / kPanel<R> * kPanel<R> * b.rows + j % kPanel<R>;
      Wider sum = 0;
      for (std::int64_t k = 0; k < a.columns; ++k) {
        sum += static_cast<Wider>(a.row(i)[k]) * static_cast<Wider>(column[k * kPanel<R>]);
      }
      c.row(i)[j] = static_cast<R>(static_cast<Wider>(factor) * sum);
    }
  }
}

template <class R>
void Multiply(const Tile<R>& a, const Panels<R>& b, R factor, const Tile<R>& c) {
  const bool finite = factor == 1 ? MultiplyBlocks<Set, false>(a, b, factor, c)
                                  : MultiplyBlocks<Scale, false>(a, b, factor, c);
  if (!finite) MultiplyWider(a, b, factor, c);
}

template <bool kTransposed, class R>
void AddProduct(const Tile<R>& w, const Panels<R>& b, bool skip_zeros, const Tile<R>& c) {
  if (skip_zeros) {
    MultiplyBlocks<AddSkippingZeros, kTransposed>(w, b, R(1), c);
  } else {
    MultiplyBlocks<Add, kTransposed>(w, b, R(1), c);
  }
}

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
