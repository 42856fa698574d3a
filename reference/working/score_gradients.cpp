#include "reference/working/score_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/working/put.h"

namespace attest::bound::working {
namespace {

Index blocks_of(const Problem& problem) { return (problem.query_len + kRows - 1) / kRows; }

// The bound of an element of dBias or dSink.
template <class Real>
Real finish(const Model<Real>& model, const Sum<Real>& sum, Real flushed) {
  const Real size = std::abs(sum.value), bound = sum.bound + 16 * model.z;
  return (bound + 3 * model.u_s * (size + bound)) * model.slack + flushed;
}

}  // namespace

template <class Real>
BiasGradients<Real>::BiasGradients(const Problem& problem, Index b)
    : each_row((*problem.bias_shape)[kPosition] != 1),
      each_key((*problem.bias_shape)[kChannel] != 1),
      keys(each_key ? problem.lengths(b).key : 1) {
  const Index queries = problem.lengths(b).query;
  sums.resize(at((each_row ? queries : (queries + kRows - 1) / kRows) * keys));
}

template <class Real>
ScoreGradients<Real>::ScoreGradients(const Problem& problem) {
  const Index heads = problem.batch * problem.query_heads;
  for (Index head = 0; problem.bias_shape && head < heads; ++head) {
    bias_.emplace_back(problem, head / problem.query_heads);
  }
  if (problem.sink) sink_.resize(at(heads * blocks_of(problem)));
}

template <class Real>
void ScoreGradients<Real>::add(const Problem& problem, const Block<Real>& block) {
  const Index head = block.b * problem.query_heads + block.h;
  if (problem.sink) {
    sink_[at(head * blocks_of(problem) + block.begin / kRows)] = block.dsink;
  }
  for (Index r = 0; problem.bias_shape && r < block.count; ++r) {
    const RowState<Real>& row = block.rows[at(r)];
    for (const Index j : row.seen.key) {
      bias_[at(head)]
          .sum(block.begin + r, j)
          .add({.value = block.dbias.row(r)[j],
                .size = std::abs(block.dbias.row(r)[j]),
                .bound = block.dbias_bound.row(r)[j],
                .seen = true,
                .lost = row.lost || row.ds_lost,
                .beyond = row.beyond});
    }
  }
}

template <class Real>
void ScoreGradients<Real>::forget(Index head) {
  if (!bias_.empty())
    std::fill(bias_[at(head)].sums.begin(), bias_[at(head)].sums.end(), Sum<Real>());
}

template <class Real>
void ScoreGradients<Real>::put_bias(const Problem& problem, const Model<Real>& model,
                                    Expected& expected) const {
  const Shape& shape = *problem.bias_shape;
  std::vector<Sum<Real>> total(at(element_count(shape)));
  for (std::size_t head = 0; head < bias_.size(); ++head) {
    const BiasGradients<Real>& part = bias_[head];
    const Index b = Index(head) / problem.query_heads, h = Index(head) % problem.query_heads;
    for (std::size_t e = 0; e < part.sums.size(); ++e) {
      const Index i = part.each_row ? Index(e) / part.keys : 0, j = Index(e) % part.keys;
      total[at(broadcast_index(shape, b, h, i, j))].add(part.sums[e]);
    }
  }
  for (std::size_t e = 0; e < total.size(); ++e) {
    Sum<Real>& sum = total[e];
    if (!sum.seen) continue;
    sum.lost |= sum_may_overflow(sum.size + sum.bound, model.sum_overflow);
    put(expected, Index(e), sum.lost, sum.value, finish(model, sum, model.flushed), sum.beyond);
  }
}

template <class Real>
void ScoreGradients<Real>::put_sink(const Problem& problem, const Model<Real>& model,
                                    const Wanted& wanted, Expected& expected) const {
  Index rows = 0;
  for (Index b = 0; b < problem.batch; ++b) rows += problem.lengths(b).query;
  const Real share = gamma(Real(rows + 8), model.random_sums ? model.u_ref : model.u_s);
  std::vector<Sum<Real>> total(at(problem.query_heads));
  for (std::size_t e = 0; e < sink_.size(); ++e) {
    total[at(Index(e) / blocks_of(problem) % problem.query_heads)].add(sink_[e]);
  }
  for (std::size_t h = 0; h < total.size(); ++h) {
    Sum<Real>& sum = total[h];
    if (!wanted.walks_all_of(problem, Index(h))) {
      expected.value[h] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    if (!sum.seen) continue;
    sum.lost |= sum_may_overflow(sum.size + sum.bound, model.sum_overflow);
    sum.bound = sum.bound * (1 + share) + sum.size * share;
    const Real flushed = model.flushed > 0 ? Real(smallest_normal(DType::f32)) : Real(0);
    put(expected, Index(h), sum.lost, sum.value, finish(model, sum, flushed), sum.beyond);
  }
}

template class ScoreGradients<double>;
template class ScoreGradients<long double>;

}  // namespace attest::bound::working
