#include "reference/working/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/reach.h"

namespace attest::bound::working {
namespace {

// What a row reads of a tensor that broadcasts: its first element, and the step from key to key.
const double* broadcast_row(const Values& values, Index b, Index h, Index i) {
  return values.data.data() + broadcast_index(values.shape, b, h, i, 0);
}
Index key_step(const Shape& shape) { return broadcast(shape[kChannel], 1); }

// The keys that row r of the block sees.
template <class Real>
void see(const Context<Real>& context, const Block<Real>& block, Index r, bool side_by_side,
         std::vector<Index>& keys) {
  const Problem& problem = context.problem;
  const Index key_len = problem.lengths(block.b).key;
  Position position = {.batch = block.b, .head = block.h, .query = block.begin + r};
  if (side_by_side) {
    const Reach seen = keys_seen(problem, block.b, position.query);
    keys.resize(at(seen.size()));
    std::iota(keys.begin(), keys.end(), seen.begin);
  } else {
    keys.resize(at(key_len));
    std::size_t n = 0;
    for (position.key = 0; position.key < key_len; ++position.key) {
      if (visible(problem, position)) keys[n++] = position.key;
    }
    keys.resize(n);
  }
  if (problem.bias_shape) {  // MASK-14
    const double* bias = broadcast_row(context.inputs.bias, block.b, block.h, position.query);
    const Index step = key_step(*problem.bias_shape);
    std::erase_if(keys, [&](Index j) { return bias[j * step] == -kInfinity; });
  }
}

// What the reference itself may err by in a score whose products and addends add up to `size`.
template <class Real>
Real reference_error(const Model<Real>& model, Real size, Index channels) {
  return model.u_ref * Real(channels + 8) * size;
}

template <class Real>
void store_products(const Model<Real>& model, Seen<Real>& seen) {
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    seen.eps[t] += stored_product(model, seen.s[t], seen.eps[t]);
  }
}

template <class Real>
void apply_softcap(const Model<Real>& model, Seen<Real>& seen) {
  seen.g.resize(seen.key.size());
  seen.eps_g.resize(seen.key.size());
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    const Capped<Real> capped = cap(model, seen.s[t], seen.eps[t]);
    seen.s[t] = capped.score;
    seen.eps[t] = capped.score_error;
    seen.g[t] = capped.slope;
    seen.eps_g[t] = capped.slope_error;
  }
}

// b_j and alpha_j of the keys that row r sees.
template <class Real>
void add_bias_and_alibi(const Context<Real>& context, const Block<Real>& block, Index r,
                        RowState<Real>& row) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  Seen<Real>& seen = row.seen;
  const Index i = block.begin + r;
  const double* bias =
      problem.bias_shape ? broadcast_row(context.inputs.bias, block.b, block.h, i) : nullptr;
  const Index step = bias ? key_step(*problem.bias_shape) : 0;
  const Real slope = problem.slopes_shape
                         ? Real(*broadcast_row(context.inputs.slopes, block.b, block.h, 0))
                         : Real(0);
  const Lengths lengths = problem.lengths(block.b);
  const Index diagonal = i + lengths.key - lengths.query;  // SCORE-4
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    const Index j = seen.key[t];
    const Real b = bias ? Real(bias[j * step]) : Real(0);
    const Real alpha = slope * Real(std::abs(diagonal - j));
    const Real added = std::abs(b) + std::abs(alpha);
    Real& s = seen.s[t];
    Real& eps = seen.eps[t];
    if (added > 0) row.exact = false;
    row.overflows |= added > 0 && may_overflow(model, block.size.row(r)[j], added);
    row.eps_ref = std::max(
        row.eps_ref,
        reference_error(model, model.tau * block.size.row(r)[j] + added, problem.head_dim));
    eps += addend_error(model, std::abs(s) + added, added, eps);
    if (std::abs(b) < model.tiny) eps += std::abs(b);
    if (std::abs(slope) < model.tiny_f32) eps += std::abs(alpha);
    s += b - alpha;
  }
}

// Whether a score of row r may overflow where it is stored, a masked key's too: what a mask adds to
// an infinite one may leave a NaN (HIDE-1).
template <class Real>
bool stored_score_may_overflow(const Context<Real>& context, const KeyHead<Real>& head,
                               const Block<Real>& block, Index r) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  Position position = {.batch = block.b, .head = block.h, .query = block.begin + r};
  const Lengths lengths = problem.lengths(block.b);
  const Index diagonal = position.query + lengths.key - lengths.query;  // SCORE-4
  for (Index j = 0; j < lengths.key; ++j) {
    if (head.k.lost[at(j)]) continue;  // HIDE-3
    position.key = j;
    Real products = 0, added = 0;
    for (Index c = 0; c < problem.head_dim; ++c) {
      products += block.q.size.at(r, c) * head.k.size.at(j, c);
    }
    if (problem.bias_shape) {
      const double b = context.inputs.bias.data[broadcast_index(*problem.bias_shape, position)];
      if (b > -kInfinity) added += Real(std::abs(b));
    }
    if (problem.slopes_shape) {
      const double slope = *broadcast_row(context.inputs.slopes, block.b, block.h, 0);
      added += Real(std::abs(slope)) * Real(std::abs(diagonal - j));
    }
    if (may_overflow(model, products, added) ||
        model.tau * head.k_most[at(j)] >= model.score_overflow) {
      return true;
    }
  }
  return false;
}

}  // namespace

template <class Real>
void look(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Problem& problem = context.problem;
  const Index key_len = problem.lengths(block.b).key;
  const bool side_by_side = has_reaches(problem);
  block.keys = {key_len, 0};
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    see(context, block, r, side_by_side, row.seen.key);
    row.lost = block.q.lost[at(r)];  // in an empty row too (FINITE-1)
    if (head.k.any_lost || head.v.any_lost) {
      for (const Index j : row.seen.key) row.lost |= head.k.lost[at(j)] || head.v.lost[at(j)];
    }
    if (context.model.stores_scores_in_less_range &&
        stored_score_may_overflow(context, head, block, r)) {
      row.lost = true;  // and with it what it has to do with any key
      row.seen.key.resize(at(key_len));
      std::iota(row.seen.key.begin(), row.seen.key.end(), 0);
    }
    row.n = Index(row.seen.key.size());
    row.key_len = key_len;
    row.ds_lost = row.beyond = false;
    row.has_sink = problem.sink;
    row.s_z = problem.sink ? Real(context.inputs.sink.data[at(block.h)]) : Real(0);
    row.chi = 0;
    if (row.n == 0) continue;
    row.span = row.seen.key.back() - row.seen.key.front() + 1;
    block.keys.begin = std::min(block.keys.begin, row.seen.key.front());
    block.keys.end = std::max(block.keys.end, row.seen.key.back() + 1);
  }
  block.keys.begin = std::min(block.keys.begin, block.keys.end);
}

template <class Real>
void score(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Model<Real>& model = context.model;
  dot_products(block.q.value, head.k_panels, block.keys, block.dot, block.size);
  const bool k_small = !head.k.small.empty(), q_small = !block.q.small.empty();
  const Real scale = Real(context.problem.scale);
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    Seen<Real>& seen = row.seen;
    for (auto* each : {&seen.s, &seen.eps, &seen.p}) each->resize(seen.key.size());
    Real q_sum = 0;
    for (Index c = 0; c < block.q.size.width; ++c) q_sum += block.q.size.row(r)[c];
    const Real* dot = block.dot.row(r);
    const Real* size = block.size.row(r);
    Real largest = 0, operand = largest_of(block.q.size, r);
    for (std::size_t t = 0; t < seen.key.size(); ++t) {
      const Index j = seen.key[t];
      largest = std::max(largest, size[j]);
      operand = std::max(operand, head.k_most[at(j)]);
      seen.s[t] = scale * dot[j];
      seen.eps[t] = model.score_share * (model.tau * size[j]) + model.score_absolute +
                    model.score_operand * (q_sum + head.k_sum[at(j)]);
    }
    // Q, or K, may be scaled before the product.
    row.overflows = may_overflow(model, largest) || model.tau * operand >= model.score_overflow;
    row.eps_ref = reference_error(model, model.tau * largest, context.problem.head_dim);
    row.exact = largest == 0 && model.adds_exactly() && head.small_integers &&
                !context.problem.sink && !context.drops();
  }
  const auto add_flushed = [&](const Rows<Real>& x, const Panels<Real>& y) {
    dot_products(x, y, block.keys, block.small_dot, block.small_size);
    for (Index r = 0; r < block.count; ++r) {
      Seen<Real>& seen = block.rows[at(r)].seen;
      for (std::size_t t = 0; t < seen.key.size(); ++t) {
        seen.eps[t] += model.tau * block.small_size.row(r)[seen.key[t]];
      }
    }
  };
  if (k_small) add_flushed(block.q.value, head.k_small_panels);
  if (q_small) add_flushed(block.q.small, head.k_panels);
  const bool adds = context.problem.bias_shape || context.problem.slopes_shape;
  for (Index r = 0; r < block.count; ++r) {
    if (model.scores.roundoff > 0) store_products(model, block.rows[at(r)].seen);
    if (context.problem.softcap > 0) apply_softcap(model, block.rows[at(r)].seen);
    if (adds) add_bias_and_alibi(context, block, r, block.rows[at(r)]);
  }
}

template <class Real>
void drop(const Context<Real>& context, const Block<Real>& block, Index r, Seen<Real>& seen) {
  Position position = {.batch = block.b, .head = block.h, .query = block.begin + r};
  seen.zeta.resize(seen.key.size());
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    position.key = seen.key[t];
    seen.zeta[t] = context.inputs.keep.at(position) ? context.model.keep_scale : Real(0);
  }
}

#define ATTEST_SCORES_FOR(Real)                                                  \
  template void look(const Context<Real>&, const KeyHead<Real>&, Block<Real>&);  \
  template void score(const Context<Real>&, const KeyHead<Real>&, Block<Real>&); \
  template void drop(const Context<Real>&, const Block<Real>&, Index r, Seen<Real>&);
ATTEST_SCORES_FOR(double)
ATTEST_SCORES_FOR(long double)
#undef ATTEST_SCORES_FOR

}  // namespace attest::bound::working
