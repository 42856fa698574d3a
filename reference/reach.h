// Which keys a row sees, and which rows see a key, where they lie side by side: then sums over all
// of them are differences of running sums, and no score matrix is walked. Derived from
// Mask::allows, and held to it by a test.
#pragma once

#include <algorithm>
#include <vector>

#include "spec/problem.h"

namespace attest {

struct Reach {
  Index begin = 0;
  Index end = 0;

  Index size() const { return std::max<Index>(0, end - begin); }
  bool contains(Index n) const { return begin <= n && n < end; }
  bool within(const Reach& other) const {
    return size() == 0 || (other.begin <= begin && end <= other.end);
  }
};

// Whether all that follows is known: of masks of which every row sees keys that lie side by side,
// whatever the numbers, and without a bias, which may hide keys (MASK-14).
bool has_reaches(const Problem& problem);

// The keys that query i of batch element b sees, in any head; the queries that see key j. Both
// bounds rise with i or j, but for what is empty. Only if has_reaches(problem).
Reach keys_seen(const Problem& problem, Index b, Index i);
Reach queries_that_see(const Problem& problem, Index b, Index j);

// The sum over the first positions, for each of some channels; rounded once for each of them.
template <class Real>
class RunningSums {
 public:
  RunningSums(Index positions, Index channels)
      : channels_(channels), total_(static_cast<std::size_t>((positions + 1) * channels)) {}

  void add(Index position, Index channel, Real x) { total_[at(position + 1, channel)] += x; }
  // Once all is added.
  void run() {
    const auto step = static_cast<std::size_t>(channels_);
    for (std::size_t n = step; n < total_.size(); ++n) total_[n] += total_[n - step];
  }
  Real before(Index end, Index channel) const { return total_[at(end, channel)]; }

 private:
  std::size_t at(Index position, Index channel) const {
    return static_cast<std::size_t>(position * channels_ + channel);
  }

  Index channels_;
  std::vector<Real> total_;
};

}  // namespace attest
