// The vectors of a target, and the shape of the blocks that its registers hold.
#if defined(ATTEST_IMPL_ENGINE_VECTORS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_IMPL_ENGINE_VECTORS_INL_
#undef ATTEST_IMPL_ENGINE_VECTORS_INL_
#else
#define ATTEST_IMPL_ENGINE_VECTORS_INL_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class R>
using Lanes = hn::ScalableTag<R>;
template <class R>
using Vec = hn::Vec<Lanes<R>>;
template <class R>
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Lanes<R>()));

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON  // 32 registers: 24 sums
constexpr int kPanelVectors = 4;
#else  // 16 registers: 12 sums
constexpr int kPanelVectors = 2;
#endif
constexpr int kStrip = 6;
template <class R>
constexpr std::int64_t kPanel = kPanelVectors* kLanes<R>;

template <class R>
constexpr std::int64_t padded(std::int64_t columns) {
  return (columns + kPanel<R> - 1) / kPanel<R> * kPanel<R>;
}

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
