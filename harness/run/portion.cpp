#include "harness/run/portion.h"

#include <algorithm>
#include <numeric>

namespace attest {

std::vector<Portion> portions_of(const std::vector<Case>& cases, std::size_t testees, int jobs) {
  const auto is_slow = [](const Case& c) { return c.excerpt > 0; };
  const auto slow = std::count_if(cases.begin(), cases.end(), is_slow);
  const bool splits = slow < 4 * std::ptrdiff_t{jobs} && jobs > 1;
  std::vector<Portion> portions;
  for (const Case& c : cases) {
    const std::size_t step = splits && is_slow(c) ? 1 : std::max<std::size_t>(testees, 1);
    for (std::size_t t = 0; t < testees; t += step) portions.push_back({&c, t, t + step});
  }
  return portions;
}

std::vector<std::size_t> longest_first(const std::vector<Portion>& portions) {
  std::vector<std::size_t> order(portions.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  constexpr Index kManyHeads = 50'000;  // in all sequences: each costs a little
  const auto work = [&](std::size_t i) {
    const Case& c = *portions[i].test_case;
    const Problem& p = c.problem;
    const double heads = static_cast<double>(p.batch) * static_cast<double>(p.query_heads);
    if (c.excerpt == 0) return heads >= kManyHeads ? 1.0 : 0.0;
    return heads * static_cast<double>(p.query_len) * static_cast<double>(p.key_len) *
           static_cast<double>(p.head_dim + p.value_dim) * (p.backward ? 3 : 1);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return work(one) > work(other); });
  return order;
}

}  // namespace attest
