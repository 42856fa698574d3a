// The rows of a tile of scores: their cap, the online softmax of the forward pass, and the weights
// of the backward pass.
#if defined(ATTEST_IMPL_ENGINE_SOFTMAX_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_IMPL_ENGINE_SOFTMAX_INL_
#undef ATTEST_IMPL_ENGINE_SOFTMAX_INL_
#else
#define ATTEST_IMPL_ENGINE_SOFTMAX_INL_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "impl/engine/engine.h"
#include "impl/engine/functions.inl"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

template <class R>
constexpr R kMinusInfinity = -std::numeric_limits<R>::infinity();

// max(top, the row), passing over NaN.
template <class R>
HWY_INLINE R RowMax(const R* HWY_RESTRICT row, std::int64_t columns, R top) {
  const Lanes<R> d;
  Vec<R> max[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) max[v] = hn::Set(d, top);
  for (std::int64_t j = 0; j < columns; j += kPanel<R>) {
    for (int v = 0; v < kPanelVectors; ++v) {
      max[v] = hn::Max(hn::LoadU(d, row + j + v * kLanes<R>), max[v]);
    }
  }
  for (int v = 1; v < kPanelVectors; ++v) max[0] = hn::Max(max[0], max[v]);
  // Highway's emulated vectors would answer the lowest finite number.
  if (hn::AllTrue(d, hn::Eq(max[0], hn::Set(d, kMinusInfinity<R>)))) return kMinusInfinity<R>;
  return hn::GetLane(hn::MaxOfLanes(d, max[0]));
}

// row = exp(row - base), for base >= row. The result is the sum.
template <class R>
HWY_INLINE R ExpOfDifferences(R* HWY_RESTRICT row, std::int64_t columns, R base) {
  const Lanes<R> d;
  Vec<R> sum[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t j = 0; j < columns; j += kPanel<R>) {
    for (int v = 0; v < kPanelVectors; ++v) {
      R* HWY_RESTRICT at = row + j + v * kLanes<R>;
      const Vec<R> weight = ExpOfNegative<R>(hn::Sub(hn::LoadU(d, at), hn::Set(d, base)));
      sum[v] = hn::Add(sum[v], weight);
      hn::StoreU(weight, d, at);
    }
  }
  for (int v = 1; v < kPanelVectors; ++v) sum[0] = hn::Add(sum[0], sum[v]);
  return hn::GetLane(hn::SumOfLanes(d, sum[0]));
}

template <class R>
HWY_INLINE void ScaleRow(R factor, R* HWY_RESTRICT row, std::int64_t columns) {
  const Lanes<R> d;
  const Vec<R> by = hn::Set(d, factor);
  for (std::int64_t c = 0; c < columns; c += kLanes<R>) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + c), by), d, row + c);
  }
}

// A strip of rows at a time: first all their maxima, then what scales their old sums, then all
// their weights, so that the one does not wait for the other while the rows are still in the
// first-level cache.
template <class R>
void Absorb(const Tile<R>& scores, const RowState<R>& state) {
  const Lanes<R> d;
  constexpr std::int64_t kSlots = (kStrip + kLanes<R> - 1) / kLanes<R> * kLanes<R>;
  HWY_ALIGN R old[kSlots] = {}, top[kSlots] = {}, base[kSlots], rescale[kSlots];
  for (std::int64_t begin = 0; begin < scores.rows; begin += kStrip) {
    const std::int64_t rows = std::min<std::int64_t>(kStrip, scores.rows - begin);
    for (std::int64_t i = 0; i < rows; ++i) {
      R* const row = scores.row(begin + i);
      std::fill(row + scores.columns, row + padded<R>(scores.columns), kMinusInfinity<R>);
      old[i] = state.max[begin + i];
      state.max[begin + i] = top[i] = RowMax(row, scores.columns, old[i]);
    }
    for (std::int64_t i = 0; i < kSlots; i += kLanes<R>) {
      // Before the first visible key exp is taken relative to 0, for (-inf) - (-inf) is not a
      // number.
      const Vec<R> max = hn::Load(d, top + i);
      const auto none = hn::Eq(max, hn::Set(d, kMinusInfinity<R>));
      const Vec<R> from = hn::IfThenZeroElse(none, max);
      hn::Store(from, d, base + i);
      hn::Store(ExpOfNegative<R>(hn::Sub(hn::Load(d, old + i), from)), d, rescale + i);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      if (rescale[i] != 1) ScaleRow(rescale[i], state.o.row(begin + i), state.o.columns);
      const R sum = ExpOfDifferences(scores.row(begin + i), scores.columns, base[i]);
      state.sum[begin + i] = state.sum[begin + i] * rescale[i] + sum;
    }
  }
}

template <class R>
void Differentiate(const Tile<R>& s, const Tile<R>& dp, const R* lse, const R* delta) {
  const Lanes<R> d;
  const Vec<R> hidden = hn::Set(d, kMinusInfinity<R>);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const Vec<R> row_lse = hn::Set(d, lse[i]), row_delta = hn::Set(d, delta[i]);
    R* HWY_RESTRICT p_row = s.row(i);
    R* HWY_RESTRICT ds_row = dp.row(i);
    for (std::int64_t j = 0; j < s.columns; j += kLanes<R>) {
      const Vec<R> score = hn::LoadU(d, p_row + j);
      const auto is_hidden = hn::Eq(score, hidden);
      const Vec<R> p = hn::IfThenZeroElse(is_hidden, Exp<R>(hn::Sub(score, row_lse)));
      const Vec<R> away = hn::Sub(hn::LoadU(d, ds_row + j), row_delta);
      hn::StoreU(hn::IfThenZeroElse(is_hidden, hn::Mul(p, away)), d, ds_row + j);
      hn::StoreU(p, d, p_row + j);
    }
  }
}

template <class R>
void Cap(const Tile<R>& scores, R limit, const Tile<R>& slopes) {
  const Lanes<R> d;
  const Vec<R> to = hn::Set(d, limit);
  for (std::int64_t i = 0; i < scores.rows; ++i) {
    for (std::int64_t j = 0; j < scores.columns; j += kLanes<R>) {
      R* const at = scores.row(i) + j;
      const TanhAndSlope<R> capped = Tanh<R>(hn::Div(hn::LoadU(d, at), to));
      hn::StoreU(hn::Mul(capped.tanh, to), d, at);
      if (slopes.data) hn::StoreU(capped.slope, d, slopes.row(i) + j);
    }
  }
}

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
