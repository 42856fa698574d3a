// exp and tanh on vectors.
//
// exp(x) = 2^n e^r with n = round(x log2(e)) and r = x - n ln2, |r| <= ln2 / 2. ln2 is taken in two
// parts, the first so short that n times it is exact. e^r = 1 + (r + r^2 q(r)), where q makes the
// largest relative error of e^r least: 0.06 roundoffs in f32, 0.05 in f64.
// Largest errors (tests/impl/engine_test.cpp measures them): exp 1 ulp, subnormal results included;
// tanh 3 ulp, its slope 5 ulp. exp(0) = 1, exp(-inf) = 0, tanh(-x) = -tanh(x); NaN stays NaN.
#if defined(ATTEST_IMPL_ENGINE_FUNCTIONS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_IMPL_ENGINE_FUNCTIONS_INL_
#undef ATTEST_IMPL_ENGINE_FUNCTIONS_INL_
#else
#define ATTEST_IMPL_ENGINE_FUNCTIONS_INL_
#endif

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "impl/engine/vectors.inl"

HWY_BEFORE_NAMESPACE();
namespace attest::impl::HWY_NAMESPACE {
namespace {

template <class R>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = std::int32_t;
  static constexpr int kFractionBits = 23, kBias = 127;
  static constexpr float kLowest = -104;      // below: less than half of the smallest number
  static constexpr float kHighest = 89;       // above: infinity
  static constexpr float kLargestTanh = 43;   // above: tanh is 1, and its slope below 2^-120
  static constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  static constexpr float kLog2e = 0x1.715476p0f;
  static constexpr float kLn2High = 0x1.63p-1f, kLn2Low = -0x1.bd0106p-13f;
  static constexpr float kQ[] = {0x1p-1f, 0x1.5554a2p-3f, 0x1.55567cp-5f, 0x1.123056p-7f,
                                 0x1.6b7c9p-10f};
};

template <>
struct ExpConstants<double> {
  using Bits = std::int64_t;
  static constexpr int kFractionBits = 52, kBias = 1023;
  static constexpr double kLowest = -746;
  static constexpr double kHighest = 710;
  static constexpr double kLargestTanh = 354;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kLog2e = 0x1.71547652b82fep0;
  static constexpr double kLn2High = 0x1.62e4p-1, kLn2Low = 0x1.7f7d1cf79abcap-20;
  static constexpr double kQ[] = {0x1p-1,
                                  0x1.5555555555501p-3,
                                  0x1.55555555531e8p-5,
                                  0x1.1111111128913p-7,
                                  0x1.6c16c17ccdfddp-10,
                                  0x1.a01a011c1e0b9p-13,
                                  0x1.a019ab081f189p-16,
                                  0x1.71df54da2fcd9p-19,
                                  0x1.289fb2ae8fc62p-22,
                                  0x1.ad217927bc665p-26};
};

// Some vectors. Functions take each of their steps for all of them: a step waits for the one
// before, and the processor does not look far enough ahead to begin with another vector meanwhile.
template <class R, int kCount>
struct Vectors {
  Vec<R> at[kCount];
};

// The vectors make(0), make(1), ...
template <class R, class Make, int... kIndices>
HWY_INLINE Vectors<R, sizeof...(kIndices)> EachOf(std::integer_sequence<int, kIndices...>,
                                                  const Make& make) {
  return {{make(kIndices)...}};
}
template <class R, int kCount, class Make>
HWY_INLINE Vectors<R, kCount> Each(const Make& make) {
  return EachOf<R>(std::make_integer_sequence<int, kCount>(), make);
}

// q(r), by Horner's rule.
template <class R, int kCount>
HWY_INLINE Vectors<R, kCount> PolynomialQ(const Vectors<R, kCount>& r) {
  const Lanes<R> d;
  constexpr int kTerms = static_cast<int>(std::size(ExpConstants<R>::kQ));
  const auto term = [&](int k) { return hn::Set(d, ExpConstants<R>::kQ[k]); };
  auto q = Each<R, kCount>([&](int) { return term(kTerms - 1); });
  HWY_UNROLL(10)
  for (int k = kTerms - 2; k >= 0; --k) {
    q = Each<R, kCount>([&](int n) { return hn::MulAdd(q.at[n], r.at[n], term(k)); });
  }
  return q;
}

// x, but at least or at most `bound`; NaN stays NaN. The instructions of x86 answer their second
// operand if either is NaN, which saves a comparison.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
template <class R>
HWY_INLINE Vec<R> AtLeast(R bound, Vec<R> x) {
  return hn::Max(hn::Set(Lanes<R>(), bound), x);
}
template <class R>
HWY_INLINE Vec<R> AtMost(R bound, Vec<R> x) {
  return hn::Min(hn::Set(Lanes<R>(), bound), x);
}
#else
template <class R>
HWY_INLINE Vec<R> AtLeast(R bound, Vec<R> x) {
  const Vec<R> limit = hn::Set(Lanes<R>(), bound);
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
}
template <class R>
HWY_INLINE Vec<R> AtMost(R bound, Vec<R> x) {
  const Vec<R> limit = hn::Set(Lanes<R>(), bound);
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
}
#endif

// x = n ln2 + r. `shifted` is n + kRound + offset, whose last bits are those of the integer
// n + offset.
template <class R, int kCount>
struct Reduced {
  Vectors<R, kCount> shifted, r;
};
template <class R, int kCount>
HWY_INLINE Reduced<R, kCount> Reduce(const Vectors<R, kCount>& x, int offset) {
  using C = ExpConstants<R>;
  const Lanes<R> d;
  const Vec<R> round = hn::Set(d, C::kRound + static_cast<R>(offset));
  const auto shifted =
      Each<R, kCount>([&](int n) { return hn::MulAdd(x.at[n], hn::Set(d, C::kLog2e), round); });
  const auto whole = Each<R, kCount>([&](int n) { return hn::Sub(shifted.at[n], round); });
  const auto r = Each<R, kCount>(
      [&](int n) { return hn::NegMulAdd(whole.at[n], hn::Set(d, C::kLn2High), x.at[n]); });
  return {shifted, Each<R, kCount>([&](int n) {
            return hn::NegMulAdd(whole.at[n], hn::Set(d, C::kLn2Low), r.at[n]);
          })};
}

// e^r - 1.
template <class R, int kCount>
HWY_INLINE Vectors<R, kCount> ExpLessOne(const Vectors<R, kCount>& r) {
  const auto q = PolynomialQ(r);
  return Each<R, kCount>(
      [&](int n) { return hn::MulAdd(hn::Mul(r.at[n], r.at[n]), q.at[n], r.at[n]); });
}

// 1 + r (1 + r q) is quicker, but as accurate only where the products are not rounded.
template <class R, int kCount>
HWY_INLINE Vectors<R, kCount> ExpOfReduced(const Vectors<R, kCount>& r) {
  const Vec<R> one = hn::Set(Lanes<R>(), R(1));
#if HWY_NATIVE_FMA
  const auto q = PolynomialQ(r);
  const auto inner = Each<R, kCount>([&](int n) { return hn::MulAdd(q.at[n], r.at[n], one); });
  return Each<R, kCount>([&](int n) { return hn::MulAdd(inner.at[n], r.at[n], one); });
#else
  const auto less_one = ExpLessOne(r);
  return Each<R, kCount>([&](int n) { return hn::Add(less_one.at[n], one); });
#endif
}

// 2^(n + offset - kBias), for a `shifted` of Reduce: a normal number.
template <class R>
HWY_INLINE Vec<R> PowerOfTwo(Vec<R> shifted) {
  const hn::RebindToSigned<Lanes<R>> di;
  const auto bits = hn::BitCast(di, shifted);
  return hn::BitCast(Lanes<R>(), hn::ShiftLeft<ExpConstants<R>::kFractionBits>(bits));
}

// exp(x) for x <= 0. The result may be subnormal, so 2^n takes two steps, the last of which rounds.
template <class R, int kCount>
HWY_INLINE Vectors<R, kCount> ExpOfNegative(const Vectors<R, kCount>& x) {
  using C = ExpConstants<R>;
  constexpr int kLift = 64;
  const Vec<R> drop = hn::Set(Lanes<R>(), R(0x1p-64));
  const auto reduced = Reduce(
      Each<R, kCount>([&](int n) { return AtLeast<R>(C::kLowest, x.at[n]); }), C::kBias + kLift);
  const auto part = ExpOfReduced(reduced.r);
  const auto lifted = Each<R, kCount>(
      [&](int n) { return hn::Mul(part.at[n], PowerOfTwo<R>(reduced.shifted.at[n])); });
  return Each<R, kCount>([&](int n) { return hn::Mul(lifted.at[n], drop); });
}

template <class R, int kCount>
HWY_INLINE Vectors<R, kCount> Exp(const Vectors<R, kCount>& x) {
  using C = ExpConstants<R>;
  const Lanes<R> d;
  const hn::RebindToSigned<Lanes<R>> di;
  const auto reduced = Reduce(Each<R, kCount>([&](int n) {
                                return AtMost<R>(C::kHighest, AtLeast<R>(C::kLowest, x.at[n]));
                              }),
                              0);
  const auto part = ExpOfReduced(reduced.r);
  // 2^n = 2^(n/2) 2^(n - n/2): each is a normal number.
  const auto bias = hn::Set(di, static_cast<typename C::Bits>(C::kBias));
  const auto power = [&](auto exponent) {
    return hn::BitCast(d, hn::ShiftLeft<C::kFractionBits>(hn::Add(exponent, bias)));
  };
  return Each<R, kCount>([&](int i) {
    const auto n =
        hn::Sub(hn::BitCast(di, reduced.shifted.at[i]), hn::BitCast(di, hn::Set(d, C::kRound)));
    const auto half = hn::ShiftRight<1>(n);
    return hn::Mul(hn::Mul(part.at[i], power(half)), power(hn::Sub(n, half)));
  });
}

// tanh(x), and 1 - tanh(x)^2. With e = exp(-2|x|) = 2^n e^r and m = e - 1 = 2^n (e^r - 1) + (2^n -
// 1), tanh|x| = -m / (2 + m), and its slope is 4 e / (2 + m)^2: nothing cancels.
template <class R>
struct TanhAndSlope {
  Vec<R> tanh, slope;
};
template <class R>
HWY_INLINE TanhAndSlope<R> Tanh(Vec<R> x) {
  using C = ExpConstants<R>;
  const Lanes<R> d;
  const Vec<R> size = AtMost<R>(C::kLargestTanh, hn::Abs(x));
  const auto reduced = Reduce(Vectors<R, 1>{{hn::Mul(size, hn::Set(d, R(-2)))}}, C::kBias);
  const Vec<R> power = PowerOfTwo<R>(reduced.shifted.at[0]);
  const Vec<R> less_one = ExpLessOne(reduced.r).at[0];
  const Vec<R> m = hn::MulAdd(power, less_one, hn::Sub(power, hn::Set(d, R(1))));
  const Vec<R> e = hn::MulAdd(power, less_one, power);
  const Vec<R> divisor = hn::Add(m, hn::Set(d, R(2)));
  return {hn::CopySignToAbs(hn::Div(hn::Neg(m), divisor), x),
          hn::Div(hn::Mul(hn::Set(d, R(4)), e), hn::Mul(divisor, divisor))};
}

// x[0, n) = exp(x). The last elements go through a vector of their own.
template <class R>
void ExpOfRow(R* x, std::int64_t n) {
  const Lanes<R> d;
  const auto exp_at = [d](R* at) {
    hn::StoreU(Exp(Vectors<R, 1>{{hn::LoadU(d, at)}}).at[0], d, at);
  };
  std::int64_t i = 0;
  for (; i + kLanes<R> <= n; i += kLanes<R>) exp_at(x + i);
  if (i == n) return;
  HWY_ALIGN R rest[kLanes<R>] = {};
  std::copy(x + i, x + n, rest);
  exp_at(rest);
  std::copy_n(rest, n - i, x + i);
}

}  // namespace
}  // namespace attest::impl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
