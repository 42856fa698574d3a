// How often numbers of each size occurred, in little memory: enough for their median, to 3 %.
// Counts add up to the same whatever the order, so the median does not depend on threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace attest::bounds {

class Histogram {
 public:
  // Not negative; infinity and NaN count as larger than all others.
  void add(double value);
  void add(const Histogram& other);

  // The smallest number that at least half of all do not exceed: exactly if it is 0, to 3 % between
  // 2^-80 and 4. Below it counts as 2^-80, beyond as 4.
  std::optional<double> median() const;

 private:
  std::vector<std::int64_t> count_ = {};  // of each bin; empty before the first number
};

}  // namespace attest::bounds
