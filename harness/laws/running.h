// What laws ask of all keys that a row sees, or of all rows that see a key, where these lie side by
// side (reference/reach.h): sums and extremes, without a walk over the score matrix.
#pragma once

#include <cmath>
#include <vector>

#include "harness/laws/known.h"
#include "reference/reach.h"
#include "reference/roundoff.h"

namespace attest::laws {

// Sums of each channel, as differences of running sums.
class KnownSums {
 public:
  KnownSums(Index positions, Index channels)
      : terms_((positions + 1) * channels), sums_(positions, channels), size_(at(channels)) {}

  // `size`: what the roundings of x itself are a share of.
  void add(Index position, Index c, long double x, long double size) {
    sums_.add(position, c, x);
    size_[at(c)] += size;
  }
  void add(Index position, Index c, long double x) { add(position, c, x, std::abs(x)); }
  // Once all is added.
  void run() { sums_.run(); }
  // Two sums, each of which was rounded once for each of its terms, as those may have been a few
  // hundred times.
  Known over(const Reach& reach, Index c) const {
    if (reach.size() == 0) return exactly(0);
    const long double slack =
        static_cast<long double>(terms_ + 512) * 2 * kRoundoff<long double> * size_[at(c)];
    return widened(exactly(sums_.before(reach.end, c) - sums_.before(reach.begin, c)), slack);
  }

 private:
  static std::size_t at(Index c) { return static_cast<std::size_t>(c); }

  Index terms_;
  RunningSums<long double> sums_;
  std::vector<long double> size_;
};

// The least or the largest of a channel over reaches both of whose ends rise.
class RunningExtreme {
 public:
  explicit RunningExtreme(int sign) : sign_(sign) {}  // 1: the largest; -1: the least

  // Of x(j) for the keys j of the reach, which is not empty.
  template <class Element>
  double over(const Reach& reach, const Element& x) {
    for (; end_ < reach.end; ++end_) {
      const double next = sign_ * x(end_);
      while (first_ < kept_.size() && kept_.back().value <= next) kept_.pop_back();
      kept_.push_back({end_, next});
    }
    while (kept_[first_].key < reach.begin) ++first_;
    return sign_ * kept_[first_].value;
  }

 private:
  struct Kept {
    Index key;
    double value;
  };
  int sign_;
  Index end_ = 0;
  std::size_t first_ = 0;
  std::vector<Kept> kept_ = {};  // falling from `first_` on: who may still become the largest
};

}  // namespace attest::laws
