// The lengths of the batch elements of a problem, and where each lies if they follow each other.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "spec/index.h"

namespace attest {

class SequenceLengths {
 public:
  using value_type = Index;
  using iterator = std::vector<Index>::const_iterator;
  using const_iterator = iterator;

  SequenceLengths() = default;
  SequenceLengths(std::initializer_list<Index> lengths)
      : SequenceLengths(std::vector<Index>(lengths)) {}
  SequenceLengths(std::vector<Index> lengths) : lengths_(std::move(lengths)) {
    std::uint64_t sum = 0;  // of what is not validated yet: it may wrap around
    for (const Index length : lengths_) {
      starts_.push_back(static_cast<Index>(sum));
      sum += static_cast<std::uint64_t>(length);
    }
    starts_.push_back(static_cast<Index>(sum));
  }

  // The sum of the lengths before batch element b, which may be the number of elements:
  // cu_seqlens[b].
  Index start(Index b) const { return lengths_.empty() ? 0 : starts_[static_cast<std::size_t>(b)]; }
  Index sum() const { return start(static_cast<Index>(size())); }

  // The batch element that has the position, which is below sum(), where they follow each other.
  Index element_of(Index position) const {
    return std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin() - 1;
  }

  bool empty() const { return lengths_.empty(); }
  std::size_t size() const { return lengths_.size(); }
  Index operator[](std::size_t b) const { return lengths_[b]; }
  iterator begin() const { return lengths_.begin(); }
  iterator end() const { return lengths_.end(); }
  operator const std::vector<Index>&() const { return lengths_; }

  friend bool operator==(const SequenceLengths& a, const SequenceLengths& b) {
    return a.lengths_ == b.lengths_;
  }

 private:
  std::vector<Index> lengths_ = {};
  std::vector<Index> starts_ = {};
};

}  // namespace attest
