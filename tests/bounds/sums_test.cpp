#include "tests/bounds/sums.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "tests/bounds/each_target.h"
#include "tests/bounds/random.h"

namespace attest::bounds {
namespace {

constexpr Order kOrders[] = {Order::sequential,  Order::fused,        Order::reversed,
                             Order::pairwise,    Order::lanes,        Order::truncated_4,
                             Order::truncated_8, Order::truncated_16, Order::wide,
                             Order::fused_lanes};

// From subnormal to overflowing, with zeros, infinities and NaN among them.
template <class T>
T draw(std::uint64_t seed, bool finite) {
  const std::uint64_t bits = scramble(seed);
  if (bits % 16 == 0) return bits & 16 ? T(0) : -T(0);
  if (!finite && bits % 16 == 1) return std::numeric_limits<T>::infinity();
  if (!finite && bits % 16 == 2) return std::numeric_limits<T>::quiet_NaN();
  constexpr int kMost = std::numeric_limits<T>::max_exponent / 2;
  const int range = bits & 32 ? 3 : 2 * kMost;
  const T fraction = static_cast<T>(static_cast<double>(bits >> 11) * 0x1p-52 - 1);
  return std::ldexp(fraction,
                    static_cast<int>(scramble(bits) % static_cast<unsigned>(range)) - range / 2);
}

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
void expect_the_bits_of_dot() {
  std::uint64_t seed = 0;
  for (const Order order : kOrders) {
    for (const Index n : {0, 1, 2, 3, 5, 15, 16, 17, 40}) {
      for (const Index count : {1, 7, 8, 9, 31, 32, 45, 64, 71}) {
        const Index pitch = count + 3;
        const bool finite = (n + count) % 3 != 0;
        std::vector<T> x, y, out(static_cast<std::size_t>(count), T(7));
        for (Index t = 0; t < n; ++t) x.push_back(draw<T>(++seed, finite));
        for (Index e = 0; e < std::max<Index>(n, 1) * pitch; ++e) {
          y.push_back(draw<T>(++seed, finite));
        }
        dots(order, x.data(), y.data(), pitch, n, count, out.data());
        for (Index i = 0; i < count; ++i) {
          std::vector<T> column;
          for (Index t = 0; t < n; ++t)
            column.push_back(y[static_cast<std::size_t>(t * pitch + i)]);
          const T one = dot(order, x.data(), column.data(), n);
          const T other = out[static_cast<std::size_t>(i)];
          if (std::isnan(one) && std::isnan(other)) continue;
          ASSERT_EQ(std::bit_cast<Bits<T>>(one), std::bit_cast<Bits<T>>(other))
              << "order " << static_cast<int>(order) << ", n " << n << ", column " << i << " of "
              << count << ": " << one << " and " << other;
        }
      }
    }
  }
}

TEST(Sums, SideBySideHaveTheBitsThatTheyHaveAlone) {
  on_each_target([] {
    expect_the_bits_of_dot<float>();
    expect_the_bits_of_dot<double>();
  });
}

}  // namespace
}  // namespace attest::bounds
