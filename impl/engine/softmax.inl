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

// So many vectors of a row are worked on at a time: enough that none waits for itself.
constexpr int kAtOnce = 4;
static_assert(kAtOnce % kPanelVectors == 0);

// row = exp(row - base) for some vectors, for base >= row. Adds them to `sum`, one after the other.
template <class R, int kCount>
HWY_INLINE void ExpOfSomeDifferences(R* HWY_RESTRICT row, Vec<R> base,
                                     Vec<R> (&sum)[kPanelVectors]) {
  const Lanes<R> d;
  const auto weights = ExpOfNegative(
      Each<R, kCount>([&](int n) { return hn::Sub(hn::LoadU(d, row + n * kLanes<R>), base); }));
  HWY_UNROLL(kAtOnce)
  for (int n = 0; n < kCount; ++n) {
    sum[n % kPanelVectors] = hn::Add(sum[n % kPanelVectors], weights.at[n]);
    hn::StoreU(weights.at[n], d, row + n * kLanes<R>);
  }
}

// The same for a row. The result is the sum.
template <class R>
HWY_INLINE R ExpOfDifferences(R* HWY_RESTRICT row, std::int64_t columns, R base) {
  const Lanes<R> d;
  const Vec<R> from = hn::Set(d, base);
  Vec<R> sum[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v) sum[v] = hn::Zero(d);
  const std::int64_t end = padded<R>(columns);
  std::int64_t j = 0;
  for (; j + kAtOnce * kLanes<R> <= end; j += kAtOnce * kLanes<R>) {
    ExpOfSomeDifferences<R, kAtOnce>(row + j, from, sum);
  }
  for (; j < end; j += kPanel<R>) ExpOfSomeDifferences<R, kPanelVectors>(row + j, from, sum);
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
      const Vectors<R, 1> change = {{hn::Sub(hn::Load(d, old + i), from)}};
      hn::Store(ExpOfNegative(change).at[0], d, rescale + i);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      if (rescale[i] != 1) ScaleRow(rescale[i], state.o.row(begin + i), state.o.columns);
      const R sum = ExpOfDifferences(scores.row(begin + i), scores.columns, base[i]);
      state.sum[begin + i] = state.sum[begin + i] * rescale[i] + sum;
    }
  }
}

// Of some vectors of a row.
template <class R, int kCount>
HWY_INLINE void DifferentiateSome(R* HWY_RESTRICT s, R* HWY_RESTRICT dp, Vec<R> lse, Vec<R> delta) {
  const Lanes<R> d;
  const auto score = Each<R, kCount>([&](int n) { return hn::LoadU(d, s + n * kLanes<R>); });
  const auto weight = Exp(Each<R, kCount>([&](int n) { return hn::Sub(score.at[n], lse); }));
  HWY_UNROLL(kAtOnce)
  for (int n = 0; n < kCount; ++n) {
    const auto is_hidden = hn::Eq(score.at[n], hn::Set(d, kMinusInfinity<R>));
    const Vec<R> p = hn::IfThenZeroElse(is_hidden, weight.at[n]);
    const Vec<R> away = hn::Sub(hn::LoadU(d, dp + n * kLanes<R>), delta);
    hn::StoreU(hn::IfThenZeroElse(is_hidden, hn::Mul(p, away)), d, dp + n * kLanes<R>);
    hn::StoreU(p, d, s + n * kLanes<R>);
  }
}

template <class R>
void Differentiate(const Tile<R>& s, const Tile<R>& dp, const R* lse, const R* delta) {
  const Lanes<R> d;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const Vec<R> row_lse = hn::Set(d, lse[i]), row_delta = hn::Set(d, delta[i]);
    const std::int64_t end = padded<R>(s.columns);
    std::int64_t j = 0;
    for (; j + kAtOnce * kLanes<R> <= end; j += kAtOnce * kLanes<R>) {
      DifferentiateSome<R, kAtOnce>(s.row(i) + j, dp.row(i) + j, row_lse, row_delta);
    }
    for (; j < end; j += kPanel<R>) {
      DifferentiateSome<R, kPanelVectors>(s.row(i) + j, dp.row(i) + j, row_lse, row_delta);
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
