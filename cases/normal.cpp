#include "cases/normal.h"

#include <algorithm>
#include <cstddef>

// Vectors whose size the compiler doesn't know can't be elements of arrays.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cases/normal.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace {

using Key = std::array<std::uint32_t, 2>;

void OneByOne(Key key, std::uint64_t first, std::span<double> numbers) {
  for (double& number : numbers) {
    const std::uint64_t counter = first++;
    number = normal_from(philox(
        {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
        key));
  }
}

#if HWY_TARGET == HWY_SCALAR
void NormalNumbers(Key key, std::uint64_t first, std::span<double> numbers) {
  OneByOne(key, first, numbers);
}
#else

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<std::uint32_t, 16>;
using Vec = hn::Vec<Lanes>;

// The high and the low halves of the products of all lanes.
struct Halves {
  Vec high, low;
};
Halves Multiply(Vec x, std::uint32_t factor) {
  const Lanes lanes;
  const Vec y = hn::Set(lanes, factor);
  const Vec even = hn::BitCast(lanes, hn::MulEven(x, y));
  const Vec odd = hn::BitCast(lanes, hn::MulEven(hn::DupOdd(x), y));
  return {hn::OddEven(odd, hn::DupOdd(even)), hn::OddEven(hn::DupEven(odd), even)};
}

// philox() of philox.h, a counter in each lane; the sums of the halves of all words.
void Sums(Key key, Vec low, Vec high, std::int32_t* sums) {
  const Lanes lanes;
  std::array<Vec, 4> counter = {low, high, hn::Zero(lanes), hn::Zero(lanes)};
  for (int round = 0; round < 10; ++round) {
    const Halves left = Multiply(counter[0], 0xD2511F53), right = Multiply(counter[2], 0xCD9E8D57);
    counter = {hn::Xor(hn::Xor(right.high, counter[1]), hn::Set(lanes, key[0])), right.low,
               hn::Xor(hn::Xor(left.high, counter[3]), hn::Set(lanes, key[1])), left.low};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  Vec sum = hn::Zero(lanes);
  for (const Vec word : counter) {
    const Vec lower = hn::And(word, hn::Set(lanes, 0xffff));
    sum = hn::Add(sum, hn::Add(lower, hn::ShiftRight<16>(word)));
  }
  hn::StoreU(hn::BitCast(hn::RebindToSigned<Lanes>(), sum), hn::RebindToSigned<Lanes>(), sums);
}

void NormalNumbers(Key key, std::uint64_t first, std::span<double> numbers) {
  if (numbers.size() < 4) return OneByOne(key, first, numbers);  // not worth a vector
  const Lanes lanes;
  const std::size_t n = hn::Lanes(lanes);
  std::array<std::int32_t, hn::MaxLanes(lanes)> sums;
  for (std::size_t done = 0; done < numbers.size(); done += n) {
    const std::uint64_t counter = first + done;
    const Vec low = hn::Iota(lanes, static_cast<std::uint32_t>(counter));
    // Where the low half runs over, the high half is one more.
    const Vec carry =
        hn::VecFromMask(lanes, hn::Lt(low, hn::Set(lanes, static_cast<std::uint32_t>(counter))));
    const Vec high = hn::Sub(hn::Set(lanes, static_cast<std::uint32_t>(counter >> 32)), carry);
    Sums(key, low, high, sums.data());
    const std::size_t count = std::min(n, numbers.size() - done);
    for (std::size_t i = 0; i < count; ++i) numbers[done + i] = normal_from_sum(sums[i]);
  }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(NormalNumbers);

void normal_numbers(std::array<std::uint32_t, 2> key, std::uint64_t first,
                    std::span<double> numbers) {
  HWY_DYNAMIC_DISPATCH(NormalNumbers)(key, first, numbers);
}

}  // namespace attest
#endif  // HWY_ONCE
