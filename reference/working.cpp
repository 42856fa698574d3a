// Reads bottom up: expect_forward and expect_backward, then how the work is dealt out, then a block
// of query rows, then one row. The symbols are those of NUMERICS.md; the formulas for single
// elements are in bound.h, the sums over keys, rows and channels in products.h.
//
// Keys that a row does not see have no part in it: their weights are 0, and numbers that are not
// finite are replaced by 0 when K and V are packed. A row that does see such a number is "lost":
// its values are NaN, its bounds infinite.
//
// Rows and keys count within a batch element; where its tensors hold them is asked of the problem
// when they are packed and when results are put down.
#include "reference/working.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>

#include "reference/bound.h"
#include "reference/products.h"
#include "reference/reach.h"

namespace attest {
namespace working {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// ---- Packing ----------------------------------------------------------------------------------

// Where an element of an input may count as 0, its magnitude; a whole input without any is empty.
// `Form` is Rows for a few queries, Strips for the keys.
template <class Form>
struct Operand {
  Form value, size, small;         // size: |value|
  std::vector<std::uint8_t> lost;  // rows that hold something not finite; they are 0 above
  bool any_lost = false;
};

template <class Real>
void clear(Rows<Real>& rows, Index count, Index columns) {
  rows.count = count;
  rows.width = padded(columns);
  rows.data.assign(at(count * rows.width), Real(0));
}

template <class Real>
void clear(Strips<Real>& strips, Index count, Index columns) {
  strips = Strips<Real>(count, columns);
}

// Rows rows.begin to rows.end of one head, each at the place that `place` gives it.
template <class Form, class Real, class PlaceOf>
void pack(const Values& values, Index h, Range rows, const PlaceOf& place, Real tiny,
          Operand<Form>& to) {
  const Index count = rows.end - rows.begin, columns = values.shape[kChannel];
  clear(to.value, count, columns);
  clear(to.size, count, columns);
  to.small = {};
  to.lost.assign(at(count), 0);
  to.any_lost = false;
  for (Index j = 0; j < count; ++j) {
    const Place at_place = place(rows.begin + j);
    const double* source =
        values.data.data() + dense_index(values.shape, at_place.batch, h, at_place.position, 0);
    if (!std::all_of(source, source + columns, [](double x) { return std::isfinite(x); })) {
      to.lost[at(j)] = to.any_lost = true;
      continue;
    }
    for (Index c = 0; c < columns; c += kPad) {
      Real *const value = &to.value.at(j, c), *const size = &to.size.at(j, c);
      for (Index lane = 0; lane < std::min(kPad, columns - c); ++lane) {
        value[lane] = source[c + lane];
        size[lane] = std::abs(value[lane]);
      }
    }
    for (Index c = 0; tiny > 0 && c < columns; ++c) {
      const Real size = to.size.at(j, c);
      if (size == 0 || size >= tiny) continue;
      if (to.small.empty()) clear(to.small, count, columns);
      to.small.at(j, c) = size;
    }
  }
}

template <class Real>
Panels<Real> transpose(const Strips<Real>& from, Index columns) {
  Panels<Real> panels(from.empty() ? 0 : from.count, columns);
  for (Index j = 0; !from.empty() && j < from.count; ++j) {
    for (Index c = 0; c < columns; ++c) panels.at(j, c) = from.at(j, c);
  }
  return panels;
}

// What all query rows share that read one key head.
template <class Real>
struct KeyHead {
  Operand<Strips<Real>> k, v;
  Panels<Real> k_panels, k_small_panels, v_panels, v_small_panels;  // of V for a backward pass
  std::vector<Real> k_sum;                                          // sum_c |k_jc|
  std::vector<Real> k_most;                                         // max_c |k_jc|
  Real k_reach = 0, v_reach = 0;  // the largest sum_j |k_jc|, sum_j |v_jc| of any channel
  bool small_integers = true;     // so that all sums of columns of V are exact in f32
};

// The sum over the rows, of each channel.
template <class Real>
std::vector<Real> column_sums(const Strips<Real>& sizes) {
  std::vector<Real> sums(at(sizes.width));
  for (Index c = 0; !sizes.empty() && c < sizes.width; c += kPad) {
    std::array<Real, kPad> sum = {};
    for (Index j = 0; j < sizes.count; ++j) {
      const Real* size = sizes.strip(j, c);
      for (std::size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += size[lane];
    }
    std::copy(sum.begin(), sum.end(), sums.begin() + c);
  }
  return sums;
}

template <class Real>
Real largest_of(const std::vector<Real>& sums) {
  return std::accumulate(sums.begin(), sums.end(), Real(0),
                         [](Real most, Real x) { return std::max(most, x); });
}

// Whether numbers of these magnitudes are integers whose sums over the rows are exact in f32.
template <class Real>
bool are_small_integers(const Strips<Real>& sizes, const std::vector<Real>& sums) {
  return std::all_of(sizes.data.begin(), sizes.data.end(),
                     [](Real size) { return size == std::floor(size); }) &&
         std::all_of(sums.begin(), sums.end(), [](Real sum) { return sum < Real(0x1p24); });
}

template <class Real>
KeyHead<Real> pack_key_head(const Problem& problem, const Inputs& inputs, const Model<Real>& model,
                            Index b, Index h) {
  KeyHead<Real> head;
  const Range keys = {0, problem.lengths(b).key};
  const auto place = [&](Index j) { return problem.key_place(b, j); };
  pack(inputs.k, h, keys, place, model.tiny_score, head.k);
  pack(inputs.v, h, keys, place, model.tiny, head.v);
  head.k_panels = transpose(head.k.value, problem.head_dim);
  head.k_small_panels = transpose(head.k.small, problem.head_dim);
  if (problem.backward) {
    head.v_panels = transpose(head.v.value, problem.value_dim);
    head.v_small_panels = transpose(head.v.small, problem.value_dim);
  }
  head.k_sum.resize(at(keys.end));
  head.k_most.resize(at(keys.end));
  for (Index c = 0; c < problem.head_dim; ++c) {
    for (Index j = 0; j < keys.end; ++j) {
      const Real size = head.k.size.at(j, c);
      head.k_sum[at(j)] += size;
      head.k_most[at(j)] = std::max(head.k_most[at(j)], size);
    }
  }
  if (problem.backward) head.k_reach = largest_of(column_sums(head.k.size));
  const std::vector<Real> v_sums = column_sums(head.v.size);
  head.v_reach = largest_of(v_sums);
  head.small_integers = are_small_integers(head.v.size, v_sums);
  return head;
}

// ---- One row ----------------------------------------------------------------------------------

// The keys that a row sees, side by side: score s_j with its error, P, and the errors of P.
template <class Real>
struct Seen {
  std::vector<Index> key;
  std::vector<Real> s, s_error, p;
  std::vector<Real> common;    // p_j expm1(kappa_j)
  std::vector<Real> uncommon;  // error of p_j that the denominator does not share
  std::vector<Real> dp, dp_error;
  std::vector<Real> slope, slope_error;  // of the softcap; empty without one
  std::vector<Real> kept;                // 0 or 1 / (1 - p); empty without dropout

  void resize(std::size_t n) {
    for (auto* each : {&s, &s_error, &p, &common, &uncommon, &dp, &dp_error}) each->resize(n);
  }
};

// What is known of a row besides: the reference's LSE and its bound, and what sums need.
template <class Real>
struct RowState : Row<Real> {
  bool lost = false;     // unspecified: O, LSE, and all gradients that the row is part of
  bool ds_lost = false;  // the same of dQ: something may overflow on the way
  Real ds_reach = 0;     // no sum of dS k is larger on its way
  bool beyond = false;   // its scores are too large for SOFTMAX-2
  Real q_sum = 0;        // sum_c |q_c|
  Real common_sum = 0;   // sum_j p_j expm1(kappa_j)
  Real away = 0;         // of it, the sink's and the dropped keys', which have no value
  Real sink_p = 0;       // the sink's share
  Real reach = 0;        // how far beyond the hull of V the output may lie, as a share of max |v|
  Real doubt = 0;        // what the reference's own scores may err by
  Real lse_bound = 0;
  Seen<Real> seen;
};

template <class Real>
void softmax(RowState<Real>& row) {
  Seen<Real>& seen = row.seen;
  row.m = *std::max_element(seen.s.begin(), seen.s.end());
  if (row.has_sink) row.m = std::max(row.m, row.sink);
  row.sum = row.sink_p = row.has_sink ? std::exp(row.sink - row.m) : Real(0);
  for (std::size_t t = 0; t < seen.s.size(); ++t) {
    seen.p[t] = std::exp(seen.s[t] - row.m);
    row.sum += seen.p[t];
  }
  const Real share = 1 / row.sum;
  for (Real& p : seen.p) p *= share;
  row.sink_p *= share;
  row.lse = row.m + std::log(row.sum);
}

// A row that sees nothing but its sink: LSE is the sink, converted to another base and back, and
// the logarithm of what should be exp(0), twice if it is merged, and with every block if exp(0) is
// not 1.
template <class Real>
void see_only_sink(const Model<Real>& model, RowState<Real>& row) {
  row.m = row.lse = row.sink;
  row.sum = row.sink_p = 1;
  const Real factors = Real(2 + (model.declared.exp_zero_inexact ? most_rescales(model, row) : 0));
  row.lse_bound = (model.u_s * (8 * std::abs(row.sink) + 4) + factors * model.e_x) * Real(kSlack) +
                  model.flushed_lse + model.z;
}

// Whether a sum whose magnitudes add up to `reach` may overflow. Of an infinite one nothing is
// known, and its bound is infinite too.
template <class Real>
bool may_overflow(Real reach, Real overflow) {
  return reach >= overflow && reach < Real(kInfinity);
}

// den, B_L, and the weights of |v - O| and |v| in B_O.
template <class Real>
void bound_row(const Model<Real>& model, RowState<Real>& row) {
  Seen<Real>& seen = row.seen;
  row.rescales = most_rescales(model, row);
  if (counts_rescales(model) && row.rescales > kFewRescales) {
    row.rescales = std::min(row.rescales, count_rescales(seen.s, seen.s_error));
  }
  if (row.has_sink) {
    ++row.rescales;
    // It may be added to the sum of all keys, or of one of several parts.
    const auto [least, most] = std::minmax_element(seen.s.begin(), seen.s.end());
    row.sink_rise = std::max(Real(0), row.sink - (model.declared.kv_splits == 1 ? *most : *least));
  }
  const Index terms = row.keys + (row.has_sink ? 1 : 0);
  complete_row(model, row);
  const bool alone = terms == 1;
  const std::size_t n = seen.s.size();
  const Real underflow = underflow_of(model, row);
  // In between, common holds kappa, and uncommon e^kappa.
  Real largest = 0;
  for (std::size_t t = 0; t < n; ++t) {
    const Real exponent =
        row.exact ? exact_kappa(model, row) : kappa(model, row, seen.s[t], seen.s_error[t]);
    seen.common[t] = exponent;
    largest = std::max(largest, exponent);
  }
  for (std::size_t t = 0; t < n; ++t) {
    const Real growth = seen.common[t] / (1 - seen.common[t] / 2);
    seen.uncommon[t] = 1 + growth;
    seen.common[t] = largest < Real(0.5) ? seen.p[t] * growth : seen.common[t];
  }
  if (!(largest < Real(0.5))) {
    for (std::size_t t = 0; t < n; ++t) {
      const Real exponent = seen.common[t];
      if (exponent < Real(0.5)) {
        seen.common[t] = seen.p[t] * (seen.uncommon[t] - 1);
      } else {  // p may have underflowed where p e^kappa would not
        seen.common[t] = std::exp(seen.s[t] - row.lse + exponent);
        seen.uncommon[t] = 2;  // so that nothing is known of the least weight
      }
    }
  }
  row.common_sum = row.away = 0;
  if (row.has_sink) {
    const Real exponent = kappa_of_sink(model, row);
    largest = std::max(largest, exponent);
    row.away = exponent < Real(0.5) ? row.sink_p * expm1_above(exponent)
                                    : std::exp(row.sink - row.lse + exponent);
    row.common_sum = row.away;
  }
  for (const Real each : seen.common) row.common_sum += each;
  const auto den = [&] {
    return row.common_sum + row.g_sum * (1 + row.common_sum) + underflow * Real(terms);
  };
  row.den = den();
  const bool sums_rounded = model.declared.sums_rounded_p;
  // Of sums over the rounded P nothing is known before they are rounded.
  const Real weakest = sums_rounded ? Real(0) : 1 / ((1 + row.den) * Real(kSlack));
  for (std::size_t t = 0; t < n; ++t) {
    const Real p = seen.p[t], growth = seen.uncommon[t];
    const Real least = std::max(Real(0), p * (2 - growth)) * weakest;
    Real rounding = row.p.error(least, p + seen.common[t]);
    if (alone && model.alone_is_one()) rounding = std::min(rounding, seen.common[t]);
    Real own = rounding;  // what the row sum does not share
    if (sums_rounded) {
      seen.common[t] += rounding;
      row.common_sum += rounding;
      // Dropout is in between: P may be rounded once more, or the sum's apart from it.
      own = model.keep_roundoff > 0 ? 2 * rounding : Real(0);
    }
    seen.uncommon[t] = (p + seen.common[t]) * row.g + own * (1 + row.g) + underflow;
  }
  if (sums_rounded) row.den = den();
  // Where the errors of the scores are large, two facts remain: LSE moves by no more than the
  // largest of them, and the weights are not negative, the largest of them being 1 (SOFTMAX-2).
  const Real narrowed = model.p.roundoff + Real(row.keys) *
                                               std::max(model.p.underflow, model.p.flushed_below) /
                                               row.least_weight;
  const Real unshared =
      row.g_sum + underflow * Real(terms) * Real(0x1p60) + (sums_rounded ? narrowed : Real(0));
  const Real lost = std::min(row.den < 1 ? -std::log1p(-row.den) : Real(kInfinity),
                             unshared < 1 ? largest - std::log1p(-unshared) : Real(kInfinity));
  row.reach = kInfinity;
  // A key that is alone is its part's and its row's maximum, so that splits change nothing.
  if (row.den > Real(0.25) && (model.declared.kv_splits == 1 || alone) && unshared < Real(0.5)) {
    row.reach = (row.g + narrowed * (1 + row.g) + 2 * unshared) / (1 - unshared);
  }
  // Any score may be the running maximum for a while.
  const Real limit = softmax_2_limit<Real>(model.declared.dtype);
  row.beyond = row.has_sink && std::abs(row.sink) > limit;
  for (std::size_t t = 0; t < n; ++t) {
    row.beyond |= std::abs(seen.s[t]) + seen.s_error[t] > limit;
  }
  row.lse_bound = (lost + model.u_s * (8 * (row.lse - row.m + model.lag) + 13 * row.sink_rise +
                                       5 * (std::abs(row.m) + model.lag) + std::abs(row.lse) + 2)) *
                      Real(kSlack) +
                  model.flushed_lse;
}

// ---- A block of rows of one head --------------------------------------------------------------

// An element of dBias or dSink, or a part of one.
template <class Real>
struct Sum {
  Real value = 0, size = 0, bound = 0;  // size: the sum of the magnitudes of what is added up
  bool seen = false, lost = false, beyond = false;

  void add(const Sum& other) {
    value += other.value;
    size += other.size;
    bound += other.bound;
    seen |= other.seen;
    lost |= other.lost;
    beyond |= other.beyond;
  }
};

template <class Real>
struct Block {
  Index b = 0, h = 0, begin = 0, count = 0;
  Operand<Rows<Real>> q;
  Range keys;  // all that any of the rows sees lies within
  Rows<Real> dot, size, small_dot, small_size;
  Rows<Real> p, near, far;  // weights of the values, by row and key
  Rows<Real> o, o_bound, extra;
  Rows<Real> o_reach, dq_reach;  // sums of magnitudes, where any may overflow; else empty
  Rows<Real> centre;  // what the values are kept around: O as it would be without 1 / (1 - p)
  std::array<RowState<Real>, kRows> rows;

  // Backward.
  Operand<Rows<Real>> d_o;
  Rows<Real> dp, dp_size, ds, ds_size, dq_weight, dk_weight, dv_weight, dv_size;
  Rows<Real> small_dp_v, small_dp_o;  // of what may be flushed; empty if nothing is
  Rows<Real> dq, dq_bound, p_k, small_dq;
  Rows<Real> p_slope;             // P, without dropout, times the slope of the softcap; see block.p
  Rows<Real> dbias, dbias_bound;  // what each key gives to the bias; empty without one
  Sum<Real> dsink;
  Real dk_share = 0, dv_share = 0, dbias_share = 0;
};

template <class Real>
struct Context {
  const Problem& problem;
  const Inputs& inputs;
  const Model<Real>& model;

  bool drops() const { return problem.dropout.mode != Dropout::Mode::none; }
};

// The element of a tensor that broadcasts along axes of size 1, and the step from key to key.
const double* broadcast(const Values& values, Index b, Index h, Index i) {
  const auto pick = [&](Axis axis, Index position) {
    return values.shape[axis] == 1 ? 0 : position;
  };
  return values.data.data() +
         dense_index(values.shape, pick(kBatch, b), pick(kHead, h), pick(kPosition, i), 0);
}
Index key_step(const Shape& shape) { return shape[kChannel] == 1 ? 0 : 1; }

// Fills block.rows[r].seen.key and block.keys: the only place where the mask is asked.
template <class Real>
void look(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Problem& problem = context.problem;
  const Index key_len = problem.lengths(block.b).key;
  const bool side_by_side = has_reaches(problem);
  block.keys = {key_len, 0};
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    std::vector<Index>& keys = row.seen.key;
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
      const double* bias = broadcast(context.inputs.bias, block.b, block.h, position.query);
      const Index step = key_step(*problem.bias_shape);
      std::erase_if(keys, [&](Index j) { return bias[j * step] == -kInfinity; });
    }
    row.lost = block.q.lost[at(r)];  // in an empty row too (FINITE-1)
    if (head.k.any_lost || head.v.any_lost) {
      for (const Index j : keys) row.lost |= head.k.lost[at(j)] || head.v.lost[at(j)];
    }
    row.keys = Index(row.seen.key.size());
    row.key_len = key_len;
    row.ds_lost = row.beyond = false;
    row.has_sink = problem.sink;
    row.sink = problem.sink ? Real(context.inputs.sink.data[at(block.h)]) : Real(0);
    row.sink_rise = 0;
    if (row.keys == 0) continue;
    row.span = row.seen.key.back() - row.seen.key.front() + 1;
    block.keys.begin = std::min(block.keys.begin, row.seen.key.front());
    block.keys.end = std::max(block.keys.end, row.seen.key.back() + 1);
  }
  block.keys.begin = std::min(block.keys.begin, block.keys.end);
}

// What the reference itself may err by in a score whose products and addends add up to `size`.
template <class Real>
Real reference_error(const Model<Real>& model, Real size, Index channels) {
  return model.u_ref * Real(channels + 8) * size;
}

// What is done to a score after the product: softcap, bias, ALiBi.
template <class Real>
void shape_scores(const Context<Real>& context, const Block<Real>& block, Index r,
                  RowState<Real>& row) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  Seen<Real>& seen = row.seen;
  const Index i = block.begin + r;
  if (problem.softcap > 0) {
    seen.slope.resize(seen.key.size());
    seen.slope_error.resize(seen.key.size());
    for (std::size_t t = 0; t < seen.key.size(); ++t) {
      const Capped<Real> capped = cap(model, seen.s[t], seen.s_error[t]);
      seen.s[t] = capped.score;
      seen.s_error[t] = capped.score_error;
      seen.slope[t] = capped.slope;
      seen.slope_error[t] = capped.slope_error;
    }
  }
  if (!problem.bias_shape && !problem.slopes_shape) return;
  const double* bias =
      problem.bias_shape ? broadcast(context.inputs.bias, block.b, block.h, i) : nullptr;
  const Index step = bias ? key_step(*problem.bias_shape) : 0;
  const Real slope =
      problem.slopes_shape ? Real(*broadcast(context.inputs.slopes, block.b, block.h, 0)) : Real(0);
  const Lengths lengths = problem.lengths(block.b);
  const Index diagonal = i + lengths.key - lengths.query;  // SCORE-4
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    const Index j = seen.key[t];
    const Real b = bias ? Real(bias[j * step]) : Real(0);
    const Real slant = slope * Real(std::abs(diagonal - j));
    const Real added = std::abs(b) + std::abs(slant);
    Real& s = seen.s[t];
    Real& error = seen.s_error[t];
    if (added > 0) row.exact = false;
    row.overflows |= added > 0 && may_overflow(model, block.size.row(r)[j], added);
    row.doubt = std::max(row.doubt, reference_error(model, model.tau * block.size.row(r)[j] + added,
                                                    problem.head_dim));
    error += addend_error(model, std::abs(s) + added, added);
    if (std::abs(b) < model.tiny) error += std::abs(b);
    if (std::abs(slope) < model.tiny_f32) error += std::abs(slant);
    s += b - slant;
  }
}

template <class Real>
Real largest_of(const Rows<Real>& rows, Index r) {
  return std::accumulate(rows.row(r), rows.row(r) + rows.width, Real(0),
                         [](Real most, Real x) { return std::max(most, x); });
}

// s_j and its error before the softmax; products that may be flushed count in full. Where nothing
// shapes the scores and nothing joins them, rows of zeros are exact.
template <class Real>
void score(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Model<Real>& model = context.model;
  dot_products(block.q.value, head.k_panels, block.keys, block.dot, block.size);
  const bool k_small = !head.k.small.empty(), q_small = !block.q.small.empty();
  const Real scale = Real(context.problem.scale);
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    Seen<Real>& seen = row.seen;
    seen.resize(seen.key.size());
    row.q_sum = 0;
    for (Index c = 0; c < block.q.size.width; ++c) row.q_sum += block.q.size.row(r)[c];
    const Real* dot = block.dot.row(r);
    const Real* size = block.size.row(r);
    Real largest = 0, operand = largest_of(block.q.size, r);
    for (std::size_t t = 0; t < seen.key.size(); ++t) {
      const Index j = seen.key[t];
      largest = std::max(largest, size[j]);
      operand = std::max(operand, head.k_most[at(j)]);
      seen.s[t] = scale * dot[j];
      seen.s_error[t] = model.score_share * (model.tau * size[j]) + model.score_absolute +
                        model.score_operand * (row.q_sum + head.k_sum[at(j)]);
    }
    // Q, or K, may be scaled before the product.
    row.overflows = may_overflow(model, largest) || model.tau * operand >= model.score_overflow;
    row.doubt = reference_error(model, model.tau * largest, context.problem.head_dim);
    row.exact = largest == 0 && model.adds_exactly() && head.small_integers &&
                !context.problem.sink && !context.drops();
  }
  const auto add_flushed = [&](const Rows<Real>& x, const Panels<Real>& y) {
    dot_products(x, y, block.keys, block.small_dot, block.small_size);
    for (Index r = 0; r < block.count; ++r) {
      Seen<Real>& seen = block.rows[at(r)].seen;
      for (std::size_t t = 0; t < seen.key.size(); ++t) {
        seen.s_error[t] += model.tau * block.small_size.row(r)[seen.key[t]];
      }
    }
  };
  if (k_small) add_flushed(block.q.value, head.k_small_panels);
  if (q_small) add_flushed(block.q.small, head.k_panels);
  if (context.problem.softcap > 0 || context.problem.bias_shape || context.problem.slopes_shape) {
    for (Index r = 0; r < block.count; ++r) shape_scores(context, block, r, block.rows[at(r)]);
  }
}

template <class Real>
void scatter(const Seen<Real>& seen, const std::vector<Real>& from, Real* to) {
  for (std::size_t t = 0; t < seen.key.size(); ++t) to[seen.key[t]] = from[t];
}

// The same for the weights of values, as dropout leaves them.
template <class Real>
void scatter_kept(const Seen<Real>& seen, const std::vector<Real>& from, Real* to) {
  if (seen.kept.empty()) return scatter(seen, from, to);
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    to[seen.key[t]] = seen.kept[t] > 0 ? seen.kept[t] * from[t] : Real(0);
  }
}

// Which of the seen keys dropout keeps, times 1 / (1 - p).
template <class Real>
void drop(const Context<Real>& context, const Block<Real>& block, Index r, Seen<Real>& seen) {
  Position position = {.batch = block.b, .head = block.h, .query = block.begin + r};
  seen.kept.resize(seen.key.size());
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    position.key = seen.key[t];
    seen.kept[t] = context.inputs.keep.at(position) ? context.model.keep_scale : Real(0);
  }
}

// How far O can be off while it stays in the hull of the visible values, or within reach of it;
// empty if nothing is known of the weights. A single visible key leaves nothing but roundings. The
// values of dropped keys, and of a sink, are 0. Where the scores are so large that the reference's
// own are no more than a guess, the true O may be at the other end of the hull.
template <class Real>
std::vector<Real> hull_bound(const RowState<Real>& row, const Strips<Real>& v, const Real* o) {
  if (std::isinf(row.reach)) return {};
  const Seen<Real>& seen = row.seen;
  std::vector<Real> bounds;
  for (Index c = 0; c < v.width; ++c) {
    Real low = row.has_sink ? Real(0) : kInfinity, high = row.has_sink ? Real(0) : -kInfinity;
    for (std::size_t t = 0; t < seen.key.size(); ++t) {
      const Real value = v.at(seen.key[t], c) * (seen.kept.empty() ? Real(1) : seen.kept[t]);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const Real size = std::max(std::abs(low), std::abs(high));
    const bool guessed = row.doubt > Real(0x1p-6);
    const Real away = guessed ? high - low : std::max({high - o[c], o[c] - low, Real(0)});
    bounds.push_back(away + row.reach * size);
  }
  return bounds;
}

// Whether a sum of P v may overflow: before it is normalised, in any order, every weight may have
// been as large as one of the largest score.
template <class Real>
void reach_of_o(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Model<Real>& model = context.model;
  const Real most = std::exp(model.lag) * model.keep_scale;
  block.o_reach = {};
  if (head.v_reach * most < model.sum_overflow) return;
  Rows<Real> weights(block.count, block.p.width);
  clear(block.o_reach, block.count, context.problem.value_dim);
  for (Index r = 0; r < block.count; ++r) {
    for (const Index j : block.rows[at(r)].seen.key) weights.row(r)[j] = most;
  }
  weighted_sums(weights, head.v.size, block.keys, block.o_reach);
  for (Index r = 0; r < block.count; ++r) {
    for (Index c = 0; c < context.problem.value_dim; ++c) {
      // D is made of O.
      block.rows[at(r)].ds_lost |= may_overflow(block.o_reach.row(r)[c], model.sum_overflow);
    }
  }
}

// O, LSE and their bounds, for all rows of the block.
template <class Real>
void forward_block(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  pack(
      context.inputs.q, block.h, {block.begin, block.begin + block.count},
      [&](Index i) { return problem.query_place(block.b, i); }, model.tiny_score, block.q);
  const Index key_len = problem.lengths(block.b).key;
  for (auto* rows : {&block.dot, &block.size, &block.small_dot, &block.small_size, &block.p,
                     &block.near, &block.far}) {
    clear(*rows, block.count, key_len);
  }
  for (auto* rows : {&block.o, &block.o_bound, &block.extra}) {
    clear(*rows, block.count, problem.value_dim);
  }
  look(context, head, block);
  score(context, head, block);
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    if (row.keys == 0 && row.has_sink) see_only_sink(model, row);
    // What may overflow is unspecified, as what sees a NaN is.
    row.lost |= row.keys > 0 && row.overflows;
    if (row.lost || row.keys == 0) continue;
    softmax(row);
    if (std::abs(row.m) >= model.score_overflow) {
      row.lost = true;
      continue;
    }
    bound_row(model, row);
    if (context.drops()) {
      drop(context, block, r, row.seen);
      for (std::size_t t = 0; t < row.seen.key.size(); ++t) {
        if (row.seen.kept[t] == 0) row.away += row.seen.common[t];
      }
    }
    scatter_kept(row.seen, row.seen.p, block.p.row(r));
    scatter_kept(row.seen, row.seen.common, block.near.row(r));
    scatter_kept(row.seen, row.seen.uncommon, block.far.row(r));
  }
  weighted_sums(block.p, head.v.value, block.keys, block.o);
  reach_of_o(context, head, block);
  if (context.drops()) {  // |v / (1 - p) - O| = |v - (1 - p) O| / (1 - p)
    block.centre = block.o;
    for (Real& each : block.centre.data) each /= model.keep_scale;
  }
  weighted_distances(block.near, block.far, head.v.value, block.keys,
                     context.drops() ? block.centre : block.o, block.o_bound);
  if (!head.v.small.empty()) {
    for (std::size_t e = 0; e < block.p.data.size(); ++e) block.near.data[e] += block.p.data[e];
    weighted_sums(block.near, head.v.small, block.keys, block.extra);
  }
  for (Index r = 0; r < block.count; ++r) {
    const RowState<Real>& row = block.rows[at(r)];
    if (row.keys == 0) continue;
    const Real underflow = underflow_of(model, row) * Real(2 * row.keys + 8) * model.keep_scale;
    const std::vector<Real> hull = hull_bound(row, head.v.value, block.o.row(r));
    for (Index c = 0; c < problem.value_dim; ++c) {
      const Real size = std::abs(block.o.row(r)[c]);
      Real bound = block.o_bound.row(r)[c] + block.extra.row(r)[c] +
                   (row.g * (1 + row.common_sum) + row.away) * size + underflow;
      bound = row.den < 1 ? bound / (1 - row.den) : Real(kInfinity);
      if (!hull.empty()) bound = std::min(bound, hull[at(c)] + block.extra.row(r)[c] + underflow);
      block.o_bound.row(r)[c] =
          (bound + (3 * model.u_s + model.keep_roundoff + row.merged) * (size + bound)) *
              model.slack +
          model.flushed;
    }
  }
}

// ---- Backward ---------------------------------------------------------------------------------

// dK and dV of one key head, summed over some of the rows that read it.
template <class Real>
struct KeyGradients {
  Strips<Real> dk, dk_bound, dv, dv_bound;
  // Sums of magnitudes, each before it is scaled or after, whichever is more; empty unless asked
  // for. `reach` is at least the largest of all of them.
  Strips<Real> dk_reach, dv_reach;
  Real reach = 0;
  std::vector<std::uint8_t> seen, lost;  // by any row; by a lost row
  std::vector<std::uint8_t> dk_lost;     // by a row whose dS is
  std::vector<std::uint8_t> beyond;      // by a row whose scores are beyond SOFTMAX-2

  KeyGradients(const Problem& problem, Index key_len, bool with_reach)
      : dk(key_len, problem.head_dim),
        dk_bound(key_len, problem.head_dim),
        dv(key_len, problem.value_dim),
        dv_bound(key_len, problem.value_dim),
        seen(at(key_len)),
        lost(at(key_len)),
        dk_lost(at(key_len)),
        beyond(at(key_len)) {
    if (!with_reach) return;
    dk_reach = Strips<Real>(key_len, problem.head_dim);
    dv_reach = Strips<Real>(key_len, problem.value_dim);
  }

  void add(const KeyGradients& other) {
    const auto plus = [](auto& to, const auto& from) {
      for (std::size_t e = 0; e < from.size(); ++e) to[e] += from[e];
    };
    plus(dk.data, other.dk.data);
    plus(dk_bound.data, other.dk_bound.data);
    plus(dv.data, other.dv.data);
    plus(dv_bound.data, other.dv_bound.data);
    plus(dk_reach.data, other.dk_reach.data);
    plus(dv_reach.data, other.dv_reach.data);
    reach += other.reach;
    for (std::size_t j = 0; j < seen.size(); ++j) {
      seen[j] |= other.seen[j];
      lost[j] |= other.lost[j];
      dk_lost[j] |= other.dk_lost[j];
      beyond[j] |= other.beyond[j];
    }
  }
};

// dBias of one query head of one batch element, summed along the axes of size 1 no further than
// over a block of rows; then nobody waits for another.
template <class Real>
struct BiasGradients {
  bool each_row = false, each_key = false;
  Index keys = 0;
  std::vector<Sum<Real>> sums;

  BiasGradients() = default;
  BiasGradients(const Problem& problem, Index b)
      : each_row((*problem.bias_shape)[kPosition] != 1),
        each_key((*problem.bias_shape)[kChannel] != 1),
        keys(each_key ? problem.lengths(b).key : 1) {
    const Lengths lengths = problem.lengths(b);
    const Index rows = each_row ? lengths.query : (lengths.query + kRows - 1) / kRows;
    sums.resize(at(rows * keys));
  }

  Sum<Real>& sum(Index i, Index j) {
    return sums[at((each_row ? i : i / kRows) * keys + (each_key ? j : 0))];
  }
};

// What the sum of all that reads one element of the bias comes to, in any order.
template <class Real>
Real bias_share(const Problem& problem, const Model<Real>& model) {
  Index terms = 1;
  const Shape whole = problem.keep_shape();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if ((*problem.bias_shape)[axis] == 1) terms *= whole[axis];
  }
  const Real u = model.u_at_least_s(model.declared.dk);
  return gamma(sum_roundings<Real>(model.declared.dk, terms, 4 * terms) + 8, u);
}

// Of O, known up to `bound`. Rounding to the nearest moves a number no further than to any other
// that is representable.
template <class Real>
Real output_rounding(const Model<Real>& model, Real o, Real bound) {
  const Real any = model.output_roundoff * (std::abs(o) + bound) + model.output_underflow;
  if (!model.output_nearest) return any;
  const DType dtype = model.declared.dtype;
  return std::min(any, std::abs(Real(round_to(dtype, static_cast<double>(o))) - o) + bound);
}

// E_D where D = sum_c dO_c O_c, from the O that the forward returned.
template <class Real>
Real error_of_d_by_channel(const Context<Real>& context, Block<Real>& block, Index r) {
  const Model<Real>& model = context.model;
  const Index channels = context.problem.value_dim;
  const Real u = model.u_at_least_s(model.declared.dp);
  const Real g = gamma(Real(channels + 2), u);
  Real sum = 0, reach = 0;
  for (Index c = 0; c < channels; ++c) {
    const Real size = std::abs(block.o.row(r)[c]), d_o = block.d_o.size.row(r)[c];
    const Real bound = block.o_bound.row(r)[c];
    if (!(bound < kInfinity)) return kInfinity;
    reach += d_o * (size + bound);
    // O as it was returned may be infinite, or the sum of what it is multiplied with.
    block.rows[at(r)].ds_lost |= may_overflow(size + bound, model.output_overflow) ||
                                 may_overflow(reach, model.sum_overflow);
    const Real error = bound + output_rounding(model, block.o.row(r)[c], bound);
    sum += d_o * ((1 + g) * error + g * size) + model.z;
    if (size - error < model.tiny) sum += d_o * std::min(size + error, model.tiny);
    if (!block.d_o.small.empty()) sum += block.d_o.small.row(r)[c] * (size + error);
  }
  return sum;
}

// E_D where D = sum_j P_j dP_j, from the P of the backward itself.
template <class Real>
Real error_of_d_by_key(const Model<Real>& model, const RowState<Real>& row) {
  const Seen<Real>& seen = row.seen;
  const Real u = model.u_at_least_s(model.declared.dp);
  const Real g = gamma(sum_roundings<Real>(model.declared.dp, row.keys, row.span) + 8, u);
  const bool rounded_p = model.declared.ds_from_p != Choice::first;
  Real error = 0, size = 0;
  for (std::size_t t = 0; t < seen.p.size(); ++t) {
    const Real dp = std::abs(seen.dp[t]) + seen.dp_error[t];
    const Real p_error = seen.common[t] + (rounded_p ? seen.uncommon[t] : 0) + model.z;
    error += p_error * dp + seen.p[t] * seen.dp_error[t] + model.z;
    size += seen.p[t] * std::abs(seen.dp[t]);
  }
  return error * (1 + g) + size * g;
}

// The gradient with respect to LSE of a row, 0 unless given.
template <class Real>
Real d_lse_of(const Context<Real>& context, Index b, Index h, Index i) {
  if (!context.problem.d_lse) return 0;
  const Place place = context.problem.query_place(b, i);
  return Real(context.inputs.d_lse.at(place.batch, h, place.position, 0));
}

// Of the LSE that the forward pass returned.
template <class Real>
Real error_of_lse(const Model<Real>& model, const RowState<Real>& row) {
  return row.lse_bound + model.lse_roundoff * (std::abs(row.lse) + row.lse_bound);
}

// What a row gives to dSink: p_z (dLSE - D).
template <class Real>
Sum<Real> sink_gradient(const Model<Real>& model, const RowState<Real>& row, Real d, Real d_error,
                        Real d_lse) {
  const Real exponent =
      kappa_backward(model, row.lse, row.sink, model.z) + error_of_lse(model, row);
  const Real shift = exponent < Real(0.5) ? row.sink_p * expm1_above(exponent)
                                          : std::exp(row.sink - row.lse + exponent);
  const Real x = d_lse - d, size = std::abs(d_lse) + std::abs(d);
  const Real x_error = (4 * model.u_s + model.keep_roundoff) * size + d_error;
  return {.value = row.sink_p * x,
          .size = row.sink_p * std::abs(x),
          .bound = (row.sink_p + shift) * x_error + shift * std::abs(x) +
                   model.z * (std::abs(x) + x_error + 2),
          .seen = true};
}

// dS and the weights of |k|, |q| and |dO| in the bounds of dQ, dK and dV, for row r of the block
// and those of its keys that lie in `wanted`. All of dS are scaled: they are derivatives with
// respect to q.k.
template <class Real>
Real weigh_row(const Context<Real>& context, const KeyHead<Real>& head, Block<Real>& block, Index r,
               Real d_lse, const std::vector<Range>& wanted, KeyGradients<Real>& to) {
  const Model<Real>& model = context.model;
  const Arithmetic& declared = model.declared;
  RowState<Real>& row = block.rows[at(r)];
  Seen<Real>& seen = row.seen;
  const Real lse_error = error_of_lse(model, row);
  const Index channels = context.problem.value_dim;
  const bool alone = seen.key.size() == 1 && !row.has_sink;
  Real d = 0;
  for (Index c = 0; c < channels; ++c) d += block.d_o.value.row(r)[c] * block.o.row(r)[c];

  // From here on, common is P rho, and uncommon the error of rounding P.
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    const Index j = seen.key[t];
    seen.dp[t] = block.dp.row(r)[j];
    seen.dp_error[t] = model.dp_share * block.dp_size.row(r)[j] + model.z * Real(channels);
    const Real exponent = kappa_backward(model, row.lse, seen.s[t], seen.s_error[t]) + lse_error;
    const Real p = seen.p[t];
    const Real shift =
        exponent < Real(0.5) ? p * expm1_above(exponent) : std::exp(seen.s[t] - row.lse + exponent);
    seen.common[t] = shift;
    seen.uncommon[t] = model.p.error(std::max(Real(0), p - shift), p + shift);
  }
  // Rounding what is close to 1 moves it no further than to 1.
  if (alone && model.keep_roundoff == 0 && !declared.truncates_p) {
    seen.uncommon[0] = std::min(seen.uncommon[0], seen.common[0]);
  }
  const auto add_flushed = [&](const Rows<Real>& size) {
    for (std::size_t t = 0; t < seen.key.size(); ++t) seen.dp_error[t] += size.row(r)[seen.key[t]];
  };
  if (!block.small_dp_v.empty()) add_flushed(block.small_dp_v);
  if (!block.small_dp_o.empty()) add_flushed(block.small_dp_o);
  for (std::size_t t = 0; t < seen.kept.size(); ++t) {
    seen.dp[t] *= seen.kept[t];
    seen.dp_error[t] = seen.kept[t] * seen.dp_error[t] + model.keep_roundoff * std::abs(seen.dp[t]);
  }

  const Real d_error =
      std::max(error_of_d_by_channel(context, block, r), error_of_d_by_key(model, row)) +
      (context.problem.d_lse ? model.z : Real(0));
  const bool d_lost = row.ds_lost;
  const Real scale = Real(context.problem.scale), tau = model.tau;
  const Real underflow = model.z * (1 + tau);
  const Real x_roundoff =
      model.u_s * (context.problem.d_lse ? Real(4) : Real(3)) + model.keep_roundoff;
  const Real row_size = std::abs(d) + std::abs(d_lse);
  const Real dq_share =
      model.share(declared.dq, sum_roundings<Real>(declared.dq, row.keys, row.span) + 8) +
      3 * model.u_s + model.keep_roundoff + model.scale_share;
  const Real dk_share = block.dk_share, dv_share = block.dv_share;
  const bool capped = !seen.slope.empty(), drops = !seen.kept.empty();
  const Real larger_tau = std::max(Real(1), tau);
  Real most_ds = 0, most_p = 0;
  const auto weigh_key = [&](std::size_t t) {
    const Index j = seen.key[t];
    const Real p = seen.p[t], shift = seen.common[t], most = p + shift, narrowed = seen.uncommon[t];
    const Real x = seen.dp[t] - d + d_lse, x_size = std::abs(x);
    const Real x_error = seen.dp_error[t] + x_roundoff * (std::abs(seen.dp[t]) + row_size);
    // e: all of the error of dS but what D brings into every key of the row alike.
    const Real stray = model.z + (declared.ds_from_p == Choice::first ? Real(0) : narrowed);
    Real e = most * x_error + shift * x_size + stray * (x_size + x_error + d_error) + 2 * model.z;
    Real ds = p * x_size, d_shift = shift;
    Real ds_error = e + most * d_error;
    if (!block.dbias.empty()) {  // may be summed before or after dS is rounded
      const Real error =
          ds_error + model.dbias.error(std::max(Real(0), ds - ds_error), ds + ds_error);
      block.dbias.row(r)[j] = p * x;
      block.dbias_bound.row(r)[j] =
          error * (1 + block.dbias_share) + ds * block.dbias_share + 2 * model.z;
    }
    if (capped) {  // times 1 - tanh^2
      const Real slope = seen.slope[t], slope_error = seen.slope_error[t];
      e = e * (slope + slope_error) + ds * slope_error;
      d_shift = shift * slope + most * slope_error;
      ds *= slope;
      ds_error = e + most * (slope + slope_error) * d_error;
    }
    const Real rounding = model.ds.error(std::max(Real(0), ds - ds_error), ds + ds_error);
    const Real total = ds_error + rounding;
    // Sums on the way to dS, or what it is rounded to, may overflow.
    const Real dp_reach = model.keep_scale * block.dp_size.row(r)[j] + row_size;
    const Real ds_reach = ds + ds_error;
    if (may_overflow(dp_reach, model.sum_overflow) || may_overflow(ds_reach, model.ds.overflow) ||
        may_overflow(ds_reach * larger_tau, model.sum_overflow)) {
      row.ds_lost = true;
      to.dk_lost[at(j)] = 1;
    } else if (total < kInfinity) {
      most_ds = std::max(most_ds, ds + total);
    }

    block.ds.row(r)[j] = capped ? scale * p * x * seen.slope[t] : scale * p * x;
    block.ds_size.row(r)[j] = tau * (ds + total);
    block.dq_weight.row(r)[j] =
        tau * ((e + rounding + d_shift * d_error) * (1 + dq_share) + ds * dq_share) + underflow;
    block.dk_weight.row(r)[j] = tau * (total * (1 + dk_share) + ds * dk_share) + underflow;
    const Real p_error = shift + narrowed + model.z;
    const Real kept = drops ? seen.kept[t] : Real(1);
    block.dv_size.row(r)[j] = kept * (p + p_error);
    most_p = std::max(most_p, kept * (p + p_error));
    block.dv_weight.row(r)[j] = kept * (p_error * (1 + dv_share) + p * dv_share);
    if (capped || drops) block.p_slope.row(r)[j] = capped ? p * seen.slope[t] : p;
  };
  for (const Range& range : wanted) {
    const auto first = std::lower_bound(seen.key.begin(), seen.key.end(), range.begin);
    for (auto t = static_cast<std::size_t>(first - seen.key.begin());
         t < seen.key.size() && seen.key[t] < range.end; ++t) {
      weigh_key(t);
    }
  }
  // The reference's own sum of P k, which d_error multiplies, is off by this much of sum P |k|.
  const Real common_error = gamma(Real(row.keys + 8), model.u_ref) * d_error * tau;
  for (std::size_t t = 0; t < seen.key.size(); ++t) {
    block.dq_weight.row(r)[seen.key[t]] += common_error * seen.p[t];
  }
  // At most what any sum of dS q, dS k or P dO comes to on its way.
  most_ds *= larger_tau;
  to.reach +=
      std::max(most_ds * largest_of(block.q.size, r), most_p * largest_of(block.d_o.size, r));
  row.ds_reach = most_ds * head.k_reach;
  if (d_lost) {
    row.ds_lost = true;
    for (const Index j : seen.key) to.dk_lost[at(j)] = 1;
  }
  if (row.has_sink) {
    Sum<Real> dsink = sink_gradient(model, row, d, d_error, d_lse);
    dsink.lost = d_lost;
    dsink.beyond = row.beyond;
    block.dsink.add(dsink);
  }
  return tau * d_error * (1 + dq_share);
}

// A sum of scaled magnitudes before it is scaled, or after, whichever is more.
template <class Real>
Real before_scale(const Model<Real>& model, Real sum) {
  if (model.tau >= 1) return sum;
  return model.tau > 0 ? sum / model.tau : std::numeric_limits<Real>::max();
}

// What the block's rows give to dK and dV of those of `wanted` that they see.
template <class Real>
void add_key_gradients(const Block<Real>& block, Range wanted, KeyGradients<Real>& to) {
  const Range keys = {std::max(block.keys.begin, wanted.begin),
                      std::min(block.keys.end, wanted.end)};
  if (keys.begin >= keys.end) return;
  add_outer_products(block.ds, block.q.value, keys, to.dk);
  add_outer_products(block.dk_weight, block.q.size, keys, to.dk_bound);
  add_outer_products(block.p, block.d_o.value, keys, to.dv);
  add_outer_products(block.dv_weight, block.d_o.size, keys, to.dv_bound);
  if (!block.q.small.empty()) add_outer_products(block.ds_size, block.q.small, keys, to.dk_bound);
  if (!block.d_o.small.empty()) {
    add_outer_products(block.dv_size, block.d_o.small, keys, to.dv_bound);
  }
  if (!to.dk_reach.empty()) {
    add_outer_products(block.ds_size, block.q.size, keys, to.dk_reach);
    add_outer_products(block.dv_size, block.d_o.size, keys, to.dv_reach);
  }
}

// dQ of the block's rows, of which forward_block has been. What they give to dK and dV of `keys`,
// in order, is added to `to`.
template <class Real>
void backward_block(const Context<Real>& context, const KeyHead<Real>& head, bool with_dq,
                    const std::vector<Range>& keys, Block<Real>& block, KeyGradients<Real>& to) {
  const Problem& problem = context.problem;
  const Model<Real>& model = context.model;
  const Index key_len = problem.lengths(block.b).key;
  pack(
      context.inputs.d_o, block.h, {block.begin, block.begin + block.count},
      [&](Index i) { return problem.query_place(block.b, i); }, model.tiny, block.d_o);
  for (auto* rows : {&block.dp, &block.dp_size, &block.ds, &block.ds_size, &block.dq_weight,
                     &block.dk_weight, &block.dv_weight, &block.dv_size}) {
    clear(*rows, block.count, key_len);
  }
  const bool apart = problem.softcap > 0 || context.drops();
  if (apart) clear(block.p_slope, block.count, key_len);
  if (problem.bias_shape) {
    clear(block.dbias, block.count, key_len);
    clear(block.dbias_bound, block.count, key_len);
  }
  for (auto* rows : {&block.dq, &block.dq_bound, &block.p_k, &block.small_dq}) {
    clear(*rows, block.count, problem.head_dim);
  }
  dot_products(block.d_o.value, head.v_panels, block.keys, block.dp, block.dp_size);
  const auto flushed_dp = [&](bool any, const Rows<Real>& x, const Panels<Real>& y,
                              Rows<Real>& size) {
    clear(size, any ? block.count : 0, key_len);
    if (any) dot_products(x, y, block.keys, block.small_dot, size);
  };
  flushed_dp(!head.v.small.empty(), block.d_o.value, head.v_small_panels, block.small_dp_v);
  flushed_dp(!block.d_o.small.empty(), block.d_o.small, head.v_panels, block.small_dp_o);
  block.dk_share = group_share(problem, model, model.declared.dk, block.b) + 3 * model.u_s +
                   model.keep_roundoff + model.scale_share;
  block.dv_share = group_share(problem, model, model.declared.dv, block.b);
  if (problem.bias_shape) block.dbias_share = bias_share(problem, model);
  block.dsink = {};

  // Rows of which dQ is not wanted matter to the wanted keys alone.
  const std::vector<Range> whole = {{0, key_len}};
  const bool with_dbias = problem.bias_shape.has_value();
  std::array<Real, kRows> d_weight = {};  // of |sum_j P_j k_j| in the bound of dQ
  for (Index r = 0; r < block.count; ++r) {
    RowState<Real>& row = block.rows[at(r)];
    const Real d_lse = d_lse_of(context, block.b, block.h, block.begin + r);
    row.lost |= block.d_o.lost[at(r)] || !std::isfinite(d_lse);
    if (row.has_sink && (row.lost || row.keys == 0)) {
      Sum<Real> dsink =
          row.lost ? Sum<Real>{.lost = true} : sink_gradient(model, row, Real(0), model.z, d_lse);
      dsink.seen = true;
      block.dsink.add(dsink);
    }
    for (const Index j : row.seen.key) {
      to.seen[at(j)] = 1;
      to.lost[at(j)] |= row.lost;
      to.beyond[at(j)] |= row.beyond;
    }
    if (row.lost || row.keys == 0) continue;
    d_weight[at(r)] =
        weigh_row(context, head, block, r, d_lse, with_dq || with_dbias ? whole : keys, to);
  }

  for (const Range& wanted : keys) add_key_gradients(block, wanted, to);
  if (!with_dq) return;
  weighted_sums(block.ds, head.k.value, block.keys, block.dq);
  weighted_sums(apart ? block.p_slope : block.p, head.k.value, block.keys, block.p_k);
  weighted_sums(block.dq_weight, head.k.size, block.keys, block.dq_bound);
  if (!head.k.small.empty()) {
    weighted_sums(block.ds_size, head.k.small, block.keys, block.small_dq);
  }
  block.dq_reach = {};
  if (std::any_of(block.rows.begin(), block.rows.begin() + block.count, [&](const auto& row) {
        return row.keys > 0 && !row.lost && row.ds_reach >= model.sum_overflow;
      })) {
    clear(block.dq_reach, block.count, problem.head_dim);
    weighted_sums(block.ds_size, head.k.size, block.keys, block.dq_reach);
    for (Real& each : block.dq_reach.data) each = before_scale(model, each);
  }
  for (Index r = 0; r < block.count; ++r) {
    const Real underflow =
        model.z * (1 + model.tau) * Real(2 * block.rows[at(r)].keys + 8) * model.keep_scale;
    for (Index c = 0; c < problem.head_dim; ++c) {
      const Real bound = block.dq_bound.row(r)[c] + block.small_dq.row(r)[c] + underflow +
                         d_weight[at(r)] * std::abs(block.p_k.row(r)[c]);
      const Real size = std::abs(block.dq.row(r)[c]);
      block.dq_bound.row(r)[c] =
          (bound + (3 * model.u_s + model.keep_roundoff) * (size + bound)) * model.slack +
          model.flushed;
    }
  }
}

// Completes the sums over rows to the bounds of dK and dV.
template <class Real>
void finish(const Problem& problem, const Model<Real>& model, Index b, KeyGradients<Real>& sums) {
  const Real rows = Real(problem.group_size() * problem.lengths(b).query + 8);
  const Real stored = times_stored(problem, model, b) * model.stored.underflow * model.keep_scale;
  const auto complete = [&](const Strips<Real>& value, Strips<Real>& bound, Real underflow) {
    for (std::size_t e = 0; e < bound.data.size(); ++e) {
      const Real size = std::abs(value.data[e]), sum = bound.data[e] + underflow;
      bound.data[e] = (sum + (3 * model.u_s + model.keep_roundoff) * (size + sum)) * model.slack +
                      model.flushed;
    }
  };
  const Real larger_tau = std::max(Real(1), model.tau);
  complete(sums.dk, sums.dk_bound,
           2 * model.z * (1 + model.tau) * model.keep_scale * rows + stored * larger_tau);
  complete(sums.dv, sums.dv_bound, 2 * model.z * model.keep_scale * rows + stored);
}

// Where each query head's dK and dV are rounded to their format before the group's sum, one head's.
template <class Real>
void round_head(const Problem& problem, const Model<Real>& model, Index b,
                KeyGradients<Real>& sums) {
  const Real rows = Real(problem.lengths(b).query + 8);
  const auto round = [&](const Strips<Real>& value, Strips<Real>& bound, Real underflow) {
    for (std::size_t e = 0; e < bound.data.size(); ++e) {
      const Real size = std::abs(value.data[e]), sum = bound.data[e] + underflow * rows;
      const Real error = sum + (3 * model.u_s + model.keep_roundoff) * (size + sum);
      bound.data[e] += output_rounding(model, value.data[e], error);
    }
  };
  round(sums.dk, sums.dk_bound, 2 * model.z * (1 + model.tau) * model.keep_scale);
  round(sums.dv, sums.dv_bound, 2 * model.z * model.keep_scale);
}

// The same for an element of dBias or dSink.
template <class Real>
Real finish(const Model<Real>& model, const Sum<Real>& sum, Real flushed) {
  const Real size = std::abs(sum.value), bound = sum.bound + 16 * model.z;
  return (bound + 3 * model.u_s * (size + bound)) * model.slack + flushed;
}

// ---- Dealing out the work ---------------------------------------------------------------------

// run(task, worker) for every task, each by one of `threads` workers.
void for_each_task(Index tasks, int threads, const std::function<void(Index, int)>& run) {
  const int workers = static_cast<int>(std::min<Index>(threads, tasks));
  std::atomic<Index> next = 0;
  const auto work = [&](int worker) {
    for (Index task = next++; task < tasks; task = next++) run(task, worker);
  };
  std::vector<std::thread> others;
  for (int worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
  for (std::thread& other : others) other.join();
}

// A thread costs more than a small problem does.
int worthwhile_threads(const Problem& problem, int threads) {
  const double products = double(problem.batch * problem.query_heads) *
                          double(problem.query_len * problem.key_len) *
                          double(problem.head_dim + problem.value_dim);
  return products < 1e6 ? 1 : std::max(threads, 1);
}

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

// Whether a score may be so large that SOFTMAX-2 no longer binds.
bool may_go_beyond(const Problem& problem, const Inputs& inputs) {
  const auto largest = [](const Values& values) {
    double most = 0;
    for (const double x : values.data) {
      if (std::isfinite(x)) most = std::max(most, std::abs(x));
    }
    return most;
  };
  const double distance = double(problem.query_len + problem.key_len);
  const double most =
      std::abs(problem.scale) * double(problem.head_dim) * largest(inputs.q) * largest(inputs.k) +
      largest(inputs.bias) + distance * largest(inputs.slopes) + largest(inputs.sink);
  return !(most < softmax_2_limit<double>(problem.dtype));
}

void prepare(Expected& expected, const Problem& problem, const Shape& shape, double value,
             bool beyond) {
  const auto count = at(element_count(shape));
  expected.value.assign(count, value);
  expected.bound.assign(count, 0);
  if (beyond) expected.recommended.assign(count, kInfinity);
  if (problem.dtype == DType::f64) expected.rest.assign(count, 0);
}

// Unspecified elements are NaN. `beyond`: the bound is that of SOFTMAX-3, which is recommended.
template <class Real>
void put(Expected& expected, Index element, bool lost, Real value, Real bound,
         bool beyond = false) {
  const std::size_t e = at(element);
  expected.value[e] = lost ? kNaN : static_cast<double>(value);
  // A bound that is no number comes of infinity times 0, and admits anything too.
  const double limit = !lost && bound < kInfinity ? static_cast<double>(bound) : kInfinity;
  expected.bound[e] = beyond ? kInfinity : limit;
  if (beyond) expected.recommended[e] = limit;
  if (!expected.rest.empty() && std::isfinite(expected.value[e])) {
    expected.rest[e] = static_cast<double>(value - Real(expected.value[e]));
  }
}

// What a row of a tensor is besides its numbers.
template <class Real>
struct Standing {
  bool lost = false, beyond = false;
  Real overflow = 0;  // from there on, `reach` makes an element unspecified
};

template <class Real, class Form>
void put_row(Expected& expected, const Shape& shape, Place place, Index h,
             const Standing<Real>& standing, const Form& value, const Form& bound,
             const Form& reach, Index row) {
  const Index first = dense_index(shape, place.batch, h, place.position, 0);
  for (Index c = 0; c < shape[kChannel]; ++c) {
    const bool lost =
        standing.lost || (!reach.empty() && may_overflow(reach.at(row, c), standing.overflow));
    put<Real>(expected, first + c, lost, value.at(row, c), bound.at(row, c), standing.beyond);
  }
}

// Of a row or key that sees, or is seen by, nothing.
void put_zeros(Expected& expected, const Shape& shape, Place place, Index h) {
  const auto first = at(dense_index(shape, place.batch, h, place.position, 0));
  for (std::size_t e = first; e < first + at(shape[kChannel]); ++e) expected.value[e] = 0;
}

// The groups of kRows neighbours among `count` that are computed.
std::vector<Index> wanted_groups(Index count, const std::vector<Index>* excerpt) {
  static_assert(kRows == 8, "working.h says so");
  std::vector<Index> groups(at(ceil_div(count, kRows)));
  std::iota(groups.begin(), groups.end(), Index(0));
  if (!excerpt) return groups;
  std::vector<Index> chosen = *excerpt;
  std::sort(chosen.begin(), chosen.end());
  std::erase_if(chosen, [&](Index group) { return group >= Index(groups.size()); });
  return chosen;
}

// The key heads of all batch elements, batch outermost.
template <class Real>
std::vector<KeyHead<Real>> pack_key_heads(const Context<Real>& context, int threads) {
  const Problem& problem = context.problem;
  std::vector<KeyHead<Real>> heads(at(problem.batch * problem.key_heads));
  for_each_task(Index(heads.size()), threads, [&](Index task, int) {
    heads[at(task)] = pack_key_head(problem, context.inputs, context.model,
                                    task / problem.key_heads, task % problem.key_heads);
  });
  return heads;
}

void prepare(ForwardExpected& result, const Problem& problem, const Excerpt* excerpt, bool beyond) {
  prepare(result.o, problem, problem.o_shape(), excerpt ? kNaN : 0, beyond);
  prepare(result.lse, problem, problem.lse_shape(), excerpt ? kNaN : -kInfinity, beyond);
}

// O and LSE of the block's rows, as forward_block leaves them.
template <class Real>
void put_forward(const Problem& problem, const Model<Real>& model, const Block<Real>& block,
                 ForwardExpected& result) {
  for (Index r = 0; r < block.count; ++r) {
    const RowState<Real>& row = block.rows[at(r)];
    const Place place = problem.query_place(block.b, block.begin + r);
    const Index lse = dense_index(problem.lse_shape(), place.batch, block.h, place.position, 0);
    if (row.keys == 0 && !row.has_sink && !row.lost) {
      result.lse.value[at(lse)] = -kInfinity;
    } else {
      put(result.lse, lse, row.lost, row.lse, row.lse_bound, row.beyond);
    }
    if (row.keys == 0 && !row.lost) {
      put_zeros(result.o, problem.o_shape(), place, block.h);
      continue;
    }
    put_row<Real>(result.o, problem.o_shape(), place, block.h,
                  {row.lost, row.beyond, model.sum_overflow}, block.o, block.o_bound, block.o_reach,
                  r);
  }
}

template <class Real>
ForwardExpected forward(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic,
                        int threads, const Excerpt* excerpt, Roundings roundings) {
  ForwardExpected result;
  prepare(result, problem, excerpt, may_go_beyond(problem, inputs));
  const Index heads = problem.batch * problem.query_heads;
  if (heads == 0 || problem.query_len == 0) return result;

  threads = worthwhile_threads(problem, threads);
  const Model<Real> model(problem, arithmetic, roundings);
  const Context<Real> context = {problem, inputs, model};
  const auto key_heads = pack_key_heads(context, threads);
  std::vector<Block<Real>> blocks(at(threads));
  const auto groups = wanted_groups(problem.query_len, excerpt ? &excerpt->query_groups : nullptr);
  for_each_task(heads * Index(groups.size()), threads, [&](Index task, int worker) {
    Block<Real>& block = blocks[at(worker)];
    const Index head = task / Index(groups.size());
    block.b = head / problem.query_heads;
    block.h = head % problem.query_heads;
    block.begin = groups[at(task) % groups.size()] * kRows;
    block.count = std::min(kRows, problem.lengths(block.b).query - block.begin);
    if (block.count <= 0) return;
    const Index key_head = block.h / problem.group_size();
    forward_block(context, key_heads[at(block.b * problem.key_heads + key_head)], block);
    put_forward(problem, model, block, result);
  });
  return result;
}

// The gradients of what is not read by key: of the bias for each head of each batch element, of the
// sink for each block of rows. They are added up in order when all are there.
template <class Real>
struct ScoreGradients {
  std::vector<BiasGradients<Real>> bias;
  std::vector<Sum<Real>> sink;

  ScoreGradients(const Problem& problem, Index blocks_of_head) {
    const Index heads = problem.batch * problem.query_heads;
    for (Index head = 0; problem.bias_shape && head < heads; ++head) {
      bias.emplace_back(problem, head / problem.query_heads);
    }
    if (problem.sink) sink.resize(at(heads * blocks_of_head));
  }

  void add(const Problem& problem, const Block<Real>& block) {
    const Index head = block.b * problem.query_heads + block.h;
    if (problem.sink) {
      sink[at(head * ceil_div(problem.query_len, kRows) + block.begin / kRows)] = block.dsink;
    }
    for (Index r = 0; problem.bias_shape && r < block.count; ++r) {
      const RowState<Real>& row = block.rows[at(r)];
      for (const Index j : row.seen.key) {
        bias[at(head)]
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

  void put_bias(const Problem& problem, const Model<Real>& model, Expected& expected) const {
    const Shape& shape = *problem.bias_shape;
    std::vector<Sum<Real>> total(at(element_count(shape)));
    const auto pick = [&](Axis axis, Index position) { return shape[axis] == 1 ? 0 : position; };
    for (std::size_t head = 0; head < bias.size(); ++head) {
      const BiasGradients<Real>& part = bias[head];
      const Index b = pick(kBatch, Index(head) / problem.query_heads);
      const Index h = pick(kHead, Index(head) % problem.query_heads);
      for (std::size_t e = 0; e < part.sums.size(); ++e) {
        const Index i = part.each_row ? Index(e) / part.keys : 0, j = Index(e) % part.keys;
        total[at(dense_index(shape, b, h, i, j))].add(part.sums[e]);
      }
    }
    for (std::size_t e = 0; e < total.size(); ++e) {
      Sum<Real>& sum = total[e];
      if (!sum.seen) continue;
      sum.lost |= may_overflow(sum.size + sum.bound, model.sum_overflow);
      put(expected, Index(e), sum.lost, sum.value, finish(model, sum, model.flushed), sum.beyond);
    }
  }

  void put_sink(const Problem& problem, const Model<Real>& model, Expected& expected) const {
    const auto blocks_of_head = Index(sink.size()) / (problem.batch * problem.query_heads);
    Index rows = 0;
    for (Index b = 0; b < problem.batch; ++b) rows += problem.lengths(b).query;
    const Real share = gamma(Real(rows + 8), model.random_sums ? model.u_ref : model.u_s);
    std::vector<Sum<Real>> total(at(problem.query_heads));
    for (std::size_t e = 0; e < sink.size(); ++e) {
      total[at(Index(e) / blocks_of_head % problem.query_heads)].add(sink[e]);
    }
    for (std::size_t h = 0; h < total.size(); ++h) {
      Sum<Real>& sum = total[h];
      if (!sum.seen) continue;
      sum.lost |= may_overflow(sum.size + sum.bound, model.sum_overflow);
      sum.bound = sum.bound * (1 + share) + sum.size * share;
      const Real flushed = model.flushed > 0 ? Real(smallest_normal(DType::f32)) : Real(0);
      put(expected, Index(h), sum.lost, sum.value, finish(model, sum, flushed), sum.beyond);
    }
  }
};

// And, where it is wanted, the forward pass, which the gradients are made of.
template <class Real>
BackwardExpected backward(const Problem& problem, const Inputs& inputs,
                          const Arithmetic& arithmetic, int threads, const Excerpt* excerpt,
                          Roundings roundings, ForwardExpected* forward, bool with_reach) {
  BackwardExpected result;
  const double unless_put = excerpt ? kNaN : 0;
  const bool beyond = may_go_beyond(problem, inputs);
  if (forward) prepare(*forward, problem, excerpt, beyond);
  prepare(result.dq, problem, problem.q_shape(), unless_put, beyond);
  prepare(result.dk, problem, problem.k_shape(), unless_put, beyond);
  prepare(result.dv, problem, problem.v_shape(), unless_put, beyond);
  if (problem.bias_shape) prepare(result.dbias, problem, *problem.bias_shape, 0, beyond);
  if (problem.sink) prepare(result.dsink, problem, problem.sink_shape(), 0, beyond);
  const Index heads = problem.batch * problem.key_heads;
  if (heads == 0 || problem.query_heads == 0 || problem.query_len == 0) return result;

  threads = worthwhile_threads(problem, threads);
  const Model<Real> model(problem, arithmetic, roundings);
  const Context<Real> context = {problem, inputs, model};
  const auto key_heads = pack_key_heads(context, threads);
  // The rows that read a key head are cut into parts that are summed apart, and then in order: as
  // many as the problem asks for, whatever the number of threads, so that no bit depends on it.
  const Index blocks_of_head = ceil_div(problem.query_len, kRows);
  const Index blocks_of_group = problem.group_size() * blocks_of_head;
  // Where heads are rounded one by one, each is a part.
  const bool by_head = model.declared.rounds_head_gradients && problem.group_size() > 1;
  const Index parts = by_head
                          ? problem.group_size()
                          : std::clamp<Index>(ceil_div(8, heads), 1, ceil_div(blocks_of_group, 16));
  std::vector<std::unique_ptr<KeyGradients<Real>>> sums(at(heads * parts));
  ScoreGradients<Real> of_scores(problem, blocks_of_head);
  const std::vector<Index> query_groups =
      wanted_groups(problem.query_len, excerpt ? &excerpt->query_groups : nullptr);
  std::vector<Range> keys = {{0, problem.key_len}};
  if (excerpt) {
    keys.clear();
    for (const Index group : wanted_groups(problem.key_len, &excerpt->key_groups)) {
      keys.push_back({group * kRows, std::min((group + 1) * kRows, problem.key_len)});
    }
  }
  std::vector<Block<Real>> blocks(at(threads));
  for_each_task(heads * parts, threads, [&](Index task, int worker) {
    const Index head = task / parts, part = task % parts;
    Block<Real>& block = blocks[at(worker)];
    block.b = head / problem.key_heads;
    const Lengths lengths = problem.lengths(block.b);
    sums[at(task)] = std::make_unique<KeyGradients<Real>>(problem, lengths.key, with_reach);
    for (Index n = part * blocks_of_group / parts; n < (part + 1) * blocks_of_group / parts; ++n) {
      block.h = head % problem.key_heads * problem.group_size() + n / blocks_of_head;
      block.begin = n % blocks_of_head * kRows;
      block.count = std::min(kRows, lengths.query - block.begin);
      if (block.count <= 0) continue;
      const bool with_dq =
          std::binary_search(query_groups.begin(), query_groups.end(), n % blocks_of_head);
      forward_block(context, key_heads[at(head)], block);
      if (forward && with_dq) put_forward(problem, model, block, *forward);
      backward_block(context, key_heads[at(head)], with_dq, keys, block, *sums[at(task)]);
      of_scores.add(problem, block);
      for (Index r = 0; with_dq && r < block.count; ++r) {
        const RowState<Real>& row = block.rows[at(r)];
        const Place place = problem.query_place(block.b, block.begin + r);
        if (row.keys == 0 && !row.lost) {
          put_zeros(result.dq, problem.q_shape(), place, block.h);
          continue;
        }
        put_row<Real>(result.dq, problem.q_shape(), place, block.h,
                      {row.lost || row.ds_lost, row.beyond, model.sum_overflow}, block.dq,
                      block.dq_bound, block.dq_reach, r);
      }
    }
    if (by_head) round_head(problem, model, block.b, *sums[at(task)]);
  });
  const Real overflow = std::min(model.sum_overflow, model.stored.overflow);
  for (Index head = 0; head < heads && !with_reach; ++head) {
    Real reach = 0;
    for (Index part = 0; part < parts; ++part) reach += sums[at(head * parts + part)]->reach;
    if (reach >= overflow) {  // seldom: once more, and with the sums of magnitudes
      return backward<Real>(problem, inputs, arithmetic, threads, excerpt, roundings, forward,
                            true);
    }
  }
  for_each_task(heads, threads, [&](Index head, int) {
    const Index b = head / problem.key_heads, h = head % problem.key_heads;
    KeyGradients<Real>& sum = *sums[at(head * parts)];
    for (Index part = 1; part < parts; ++part) sum.add(*sums[at(head * parts + part)]);
    finish(problem, model, b, sum);
    for (Real& each : sum.dk_reach.data) each = before_scale(model, each);
    for (const Range& wanted : keys) {
      for (Index j = wanted.begin; j < std::min(wanted.end, problem.lengths(b).key); ++j) {
        const Place place = problem.key_place(b, j);
        if (!sum.seen[at(j)]) {
          put_zeros(result.dk, problem.k_shape(), place, h);
          put_zeros(result.dv, problem.v_shape(), place, h);
          continue;
        }
        const bool lost = sum.lost[at(j)], far = sum.beyond[at(j)];
        put_row<Real>(result.dk, problem.k_shape(), place, h,
                      {lost || sum.dk_lost[at(j)], far, overflow}, sum.dk, sum.dk_bound,
                      sum.dk_reach, j);
        put_row<Real>(result.dv, problem.v_shape(), place, h, {lost, far, overflow}, sum.dv,
                      sum.dv_bound, sum.dv_reach, j);
      }
    }
  });
  if (problem.bias_shape) of_scores.put_bias(problem, model, result.dbias);
  if (problem.sink) of_scores.put_sink(problem, model, result.dsink);
  return result;
}

}  // namespace
}  // namespace working

ForwardExpected expect_forward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads, const Excerpt* excerpt,
                               Roundings roundings) {
  const auto compute =
      problem.dtype == DType::f64 ? working::forward<long double> : working::forward<double>;
  return compute(problem, inputs, arithmetic, threads, excerpt, roundings);
}

BackwardExpected expect_backward(const Problem& problem, const Inputs& inputs,
                                 const Arithmetic& arithmetic, int threads, const Excerpt* excerpt,
                                 Roundings roundings) {
  const auto compute =
      problem.dtype == DType::f64 ? working::backward<long double> : working::backward<double>;
  return compute(problem, inputs, arithmetic, threads, excerpt, roundings, nullptr, false);
}

PassesExpected expect_passes(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads, const Excerpt* excerpt) {
  const auto compute =
      problem.dtype == DType::f64 ? working::backward<long double> : working::backward<double>;
  PassesExpected passes;
  passes.backward = compute(problem, inputs, arithmetic, threads, excerpt, Roundings::all,
                            &passes.forward, false);
  return passes;
}

}  // namespace attest
