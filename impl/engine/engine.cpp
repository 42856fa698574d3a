// Compiles the steps once for each target, and lists them.
#include "impl/engine/engine.h"

#include <vector>

// SSE4 comes soon enough, and blocks of registers need vectors of a known length.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "impl/engine/engine.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "impl/engine/functions.inl"
#include "impl/engine/pack.inl"
#include "impl/engine/product.inl"
#include "impl/engine/softmax.inl"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

// The steps are written for these; later versions of Highway have more, each beside one of them.
#if HWY_TARGET == HWY_AVX3
constexpr const char* kTarget = "avx3";
#elif HWY_TARGET == HWY_AVX2
constexpr const char* kTarget = "avx2";
#elif HWY_TARGET == HWY_SSE4
constexpr const char* kTarget = "sse4";
#elif HWY_TARGET == HWY_NEON
constexpr const char* kTarget = "neon";
#elif HWY_TARGET == HWY_STATIC_TARGET  // what every processor has that this is compiled for
constexpr const char* kTarget = HWY_TARGET == HWY_SCALAR ? "scalar" : "baseline";
#else
constexpr const char* kTarget = "";
#endif

template <class R>
Engine<R> EngineOfTarget() {
  return {.target = kTarget,
          .panel = kPanel<R>,
          .strip = kStrip,
          .pack = &Pack<R>,
          .pack_transposed = &PackTransposed<R>,
          .load = &Load<R>,
          .store = &Store<R>,
          .multiply = &Multiply<R>,
          .add_product = &AddProduct<false, R>,
          .add_transposed_product = &AddProduct<true, R>,
          .absorb = &Absorb<R>,
          .differentiate = &Differentiate<R>,
          .cap = &Cap<R>,
          .exp = &ExpOfRow<R>};
}

Engine<float> FloatEngine() { return EngineOfTarget<float>(); }
Engine<double> DoubleEngine() { return EngineOfTarget<double>(); }

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest::impl {
namespace {

HWY_EXPORT(FloatEngine);
HWY_EXPORT(DoubleEngine);

// make(index of the target in a table of HWY_EXPORT), for each target of this processor.
template <class Make>
auto make_engines(const Make& make) {
  std::vector<decltype(make(0))> made;
  // The lower the bit, the faster the target.
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    hwy::ChosenTarget chosen;
    chosen.Update(rest & -rest);
    auto engine = make(chosen.GetIndex());
    if (!engine.target.empty()) made.push_back(engine);
  }
  return made;
}

}  // namespace

template <>
std::span<const Engine<float>> engines() {
  static const auto made =
      make_engines([](std::size_t index) { return HWY_DISPATCH_TABLE(FloatEngine)[index](); });
  return made;
}

template <>
std::span<const Engine<double>> engines() {
  static const auto made =
      make_engines([](std::size_t index) { return HWY_DISPATCH_TABLE(DoubleEngine)[index](); });
  return made;
}

}  // namespace attest::impl
#endif  // HWY_ONCE
