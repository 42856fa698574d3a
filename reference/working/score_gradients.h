// dBias and dSink, the gradients of what is not read by key: of the bias for each head of each
// batch element, of the sink for each block of rows. They are added up in order when all are there,
// so that no bit depends on the number of threads (NUMERICS.md, end of section 4).
#pragma once

#include <vector>

#include "reference/expected.h"
#include "reference/working/block.h"
#include "reference/working/dealing.h"
#include "spec/problem.h"

namespace attest::bound::working {

// dBias of one query head of one batch element, summed along the axes of size 1 no further than
// over a block of rows; then nobody waits for another.
template <class Real>
struct BiasGradients {
  bool each_row = false, each_key = false;
  Index keys = 0;
  std::vector<Sum<Real>> sums;

  BiasGradients(const Problem& problem, Index b);
  Sum<Real>& sum(Index i, Index j) {
    return sums[at((each_row ? i : i / kRows) * keys + (each_key ? j : 0))];
  }
};

template <class Real>
class ScoreGradients {
 public:
  explicit ScoreGradients(const Problem& problem);
  void add(const Problem& problem, const Block<Real>& block);
  // All that was added of a query head, b * query_heads + h, which is then added once more.
  void forget(Index head);
  void put_bias(const Problem& problem, const Model<Real>& model, Expected& expected) const;
  // Of the heads of which all was added; the others are unspecified.
  void put_sink(const Problem& problem, const Model<Real>& model, const Wanted& wanted,
                Expected& expected) const;

 private:
  std::vector<BiasGradients<Real>> bias_;
  std::vector<Sum<Real>> sink_;
};

}  // namespace attest::bound::working
