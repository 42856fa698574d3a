#include "tests/bounds/kernel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tests/bounds/kernel_row.h"

namespace attest::bounds {
namespace {

// All query rows that read one key head, and that head.
template <class T>
struct Group {
  Index b = 0, key_head = 0;
  Index queries = 0, keys = 0, rows = 0;
  Matrix<T> q, k, v, d_o;
  Matrix<T> s, tanh;   // rows x keys; -inf: not visible
  Matrix<T> o;         // as returned
  std::vector<T> lse;  // as returned
};

template <class T>
class Kernel : RowPass<T> {
 public:
  Kernel(const Problem& problem, const Inputs& inputs, const std::vector<std::uint8_t>& seen,
         const Style& style, const Outputs* forward)
      : Base(problem, inputs, style), seen_(seen), given_(forward) {}

  Outputs run() {
    std::vector<Group<T>> groups;
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index g = 0; g < p_.key_heads; ++g) groups.push_back(load(b, g));
    }
    prepare();
    {
      // Neither loading nor storing may lose subnormal numbers that the arithmetic does not.
      const Flushing flushing(style_.flushes_inputs, style_.flushes_outputs);
      for (Group<T>& group : groups) {
        score(group);
        given_ ? take_forward(group) : forward(group);
        if (p_.backward) backward(group);
      }
      for (std::size_t e = 0; e < bias_terms_.size(); ++e) {
        dbias_[e] = sum(style_.outer_order, bias_terms_[e]);
      }
      for (std::size_t h = 0; h < sink_terms_.size(); ++h) {
        dsink_[h] = sum(style_.outer_order, sink_terms_[h]);
      }
    }
    const auto outputs = [this](const Vector& from, DType dtype) {
      std::vector<double> to(from.size());
      for (std::size_t e = 0; e < to.size(); ++e) to[e] = output(from[e], dtype);
      return to;
    };
    return {.o = outputs(o_, p_.dtype),
            .lse = outputs(lse_, p_.lse_dtype()),
            .dq = outputs(dq_, p_.dtype),
            .dk = outputs(dk_, p_.dtype),
            .dv = outputs(dv_, p_.dtype),
            .dbias = outputs(dbias_, p_.dtype),
            .dsink = outputs(dsink_, DType::f32),
            .maximum = outputs(maximum_, p_.lse_dtype()),
            .sum = outputs(sum_, p_.lse_dtype())};
  }

 private:
  using Base = RowPass<T>;
  using Base::cap_;
  using Base::forward_row;
  using Base::fused_;
  using Base::in_;
  using Base::input;
  using Base::kept_share_;
  using Base::kInfinity;
  using Base::narrow;
  using Base::narrow_p;
  using Base::natural_score;
  using Base::operands;
  using Base::output;
  using Base::p_;
  using Base::scale_;
  using Base::sink_of;
  using Base::stored_score;
  using Base::style_;
  using Base::sum;
  using Base::tanh;
  using Base::to_natural_;
  using Base::unit_;
  using Base::weight;
  using Base::weight_by_lse;
  using typename Base::RowView;
  using typename Base::Statistics;
  using typename Base::Vector;

  void prepare() {
    if (!given_) {
      const std::size_t rows = at(element_count(p_.lse_shape()));
      o_.assign(at(element_count(p_.o_shape())), static_cast<T>(style_.empty_o.value_or(0)));
      lse_.assign(rows, static_cast<T>(style_.empty_lse.value_or(-kInfinity)));
      if (style_.lse.apart) {
        maximum_.assign(rows, static_cast<T>(style_.empty_maximum.value_or(-kInfinity)));
        sum_.assign(rows, static_cast<T>(style_.empty_sum.value_or(0)));
      }
    }
    if (!p_.backward) return;
    dq_.assign(at(element_count(p_.q_shape())), T(0));
    dk_.assign(at(element_count(p_.k_shape())), T(0));
    dv_.assign(at(element_count(p_.v_shape())), T(0));
    if (p_.bias_shape) {
      bias_terms_.resize(at(element_count(*p_.bias_shape)));
      dbias_.resize(bias_terms_.size());
    }
    if (p_.sink) {
      sink_terms_.resize(at(p_.query_heads));
      dsink_.resize(sink_terms_.size());
    }
  }

  // ---- Loading ----

  // Row r of a group is query r % queries of the group's head r / queries.
  Index head(const Group<T>& group, Index r) const {
    return group.key_head * p_.group_size() + r / group.queries;
  }

  bool sees(const Group<T>& group, Index r, Index j) const {
    return seen_[at(dense_index(p_.keep_shape(), group.b, head(group, r), r % group.queries, j))];
  }

  Matrix<T> load_queries(const Group<T>& group, const Values& from) const {
    Matrix<T> result(group.rows, from.shape[kChannel]);
    for (Index r = 0; r < group.rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      for (Index c = 0; c < result.columns; ++c) {
        result.row(r)[c] = input(from.at(place.batch, head(group, r), place.position, c));
      }
    }
    return result;
  }
  Matrix<T> load_keys(const Group<T>& group, const Values& from) const {
    Matrix<T> result(group.keys, from.shape[kChannel]);
    for (Index j = 0; j < group.keys; ++j) {
      const Place place = p_.key_place(group.b, j);
      for (Index c = 0; c < result.columns; ++c) {
        result.row(j)[c] = input(from.at(place.batch, group.key_head, place.position, c));
      }
    }
    return result;
  }

  Group<T> load(Index b, Index g) const {
    Group<T> group;
    group.b = b;
    group.key_head = g;
    group.queries = p_.lengths(b).query;
    group.keys = p_.lengths(b).key;
    group.rows = group.queries * p_.group_size();
    group.q = load_queries(group, in_.q);
    group.k = load_keys(group, in_.k);
    group.v = load_keys(group, in_.v);
    if (p_.backward) group.d_o = load_queries(group, in_.d_o);
    return group;
  }

  // ---- Forward ----

  T scaled(T product, T factor) const {
    const T x = stored_score(product);
    return factor == 1 ? x : stored_score(x * factor);
  }

  // Fills s and tanh.
  void score(Group<T>& group) const {
    group.s = Matrix<T>(group.rows, group.keys, -kInfinity);
    if (cap_ > 0) group.tanh = Matrix<T>(group.rows, group.keys);
    const T unit = fused_ ? T(1) : unit_;
    T factor = cap_ == 0 ? scale_ * unit : style_.folds_cap ? scale_ / cap_ : scale_;
    if (fused_ && to_natural_ != 1) factor = 1;
    Matrix<T> q = group.q, k = group.k;
    if (style_.scale == Style::Scale::query) {
      for (T& x : q.data) x *= factor;
      factor = 1;
    } else if (style_.scale == Style::Scale::both) {
      const T root = std::sqrt(std::abs(factor));
      for (T& x : q.data) x *= std::copysign(root, factor);
      for (T& x : k.data) x *= root;
      factor = 1;
    }
    q = operands(std::move(q), kQk);
    k = operands(std::move(k), kQk);
    const bool sums_bias =
        style_.sums_bias && cap_ == 0 && (factor == 1 || style_.divides_bias) && !fused_;
    const T share = factor == 1 ? T(1) : 1 / factor;  // of the bias in the sum
    const Matrix<T> kt = sums_bias ? Matrix<T>() : k.transposed();
    Vector q_terms, k_terms, products(at(group.keys));
    for (Index r = 0; r < group.rows; ++r) {
      Position position = {
          .batch = group.b, .head = head(group, r), .query = r % group.queries, .key = 0};
      const Index first = dense_index(p_.keep_shape(), group.b, position.head, position.query, 0);
      if (!sums_bias) {
        const auto seen = seen_.begin() + first;
        const Index begin = style_.adds_masks ? 0 : std::find(seen, seen + group.keys, 1) - seen;
        dots(style_.order, q.row(r), kt.data.data() + begin, group.keys, p_.head_dim,
             group.keys - begin, products.data() + begin);
      }
      for (Index j = 0; j < group.keys; ++j) {
        const bool seen = seen_[at(first + j)];
        if (!seen && !style_.adds_masks) continue;
        position.key = j;
        T bias = 0, alibi = 0;
        if (p_.bias_shape) {
          bias = static_cast<T>(in_.bias.data[broadcast_index(*p_.bias_shape, position)]) * unit;
        }
        if (p_.slopes_shape) {
          const T slope =
              static_cast<T>(in_.slopes.data[broadcast_index(*p_.slopes_shape, position)]);
          const Index ahead = position.query + group.keys - group.queries - j;
          alibi = slope * unit * static_cast<T>(ahead < 0 ? -ahead : ahead);
        }
        if (sums_bias) {
          const auto append = [this](Vector& to, const T* from, T bias_factor, T alibi_factor) {
            to.assign(from, from + p_.head_dim);
            to.insert(to.end(), {bias_factor, alibi_factor});
          };
          append(q_terms, q.row(r), 1, -1);
          append(k_terms, k.row(j), bias * share, alibi * share);
          group.s.row(r)[j] =
              scaled(dot(style_.order, q_terms.data(), k_terms.data(), p_.head_dim + 2), factor);
          continue;
        }
        T x = scaled(products[at(j)], factor);
        if (cap_ > 0) {
          if (style_.fault == Style::Fault::capped_bias) {
            x += std::exchange(bias, T(0)) / unit / (style_.folds_cap ? cap_ : T(1));
          }
          const T t = stored_score(tanh(style_.folds_cap ? x : stored_score(x / cap_)));
          x = stored_score(t * (cap_ * unit));
          group.tanh.row(r)[j] = style_.slope_from_score ? x / (cap_ * unit) : t;
        }
        if (p_.bias_shape) x = stored_score(x + bias);
        if (p_.slopes_shape) x = stored_score(x - alibi);
        group.s.row(r)[j] = seen ? x : x - kInfinity;
      }
    }
  }

  bool drops_sums() const { return style_.drops_sums && p_.dropout.mode != Dropout::Mode::none; }

  const std::uint8_t* kept_row(const Group<T>& group, Index r) const {
    if (p_.dropout.mode == Dropout::Mode::none) return nullptr;
    return in_.keep.kept.data() +
           dense_index(in_.keep.shape, group.b, head(group, r), r % group.queries, 0);
  }

  void forward(Group<T>& group) {
    const Matrix<T> v = operands(group.v, kPv);
    group.o = Matrix<T>(group.rows, p_.value_dim);
    group.lse.assign(at(group.rows), -kInfinity);
    for (Index r = 0; r < group.rows; ++r) {
      const RowView row = {group.s.row(r), kept_row(group, r), &v};
      auto [o, statistics] = forward_row(row, group.keys, head(group, r));
      group.lse[at(r)] = statistics.lse;
      if (!(statistics.lse > -kInfinity) && statistics.l == 0) continue;  // sees nothing
      const Place place = p_.query_place(group.b, r % group.queries);
      const Index h = head(group, r);
      for (Index c = 0; c < p_.value_dim; ++c) {
        if (row.kept && !style_.drops_first && style_.fault != Style::Fault::unscaled_dropout) {
          o[at(c)] *= kept_share_;
        }
        o_[at(dense_index(p_.o_shape(), place.batch, h, place.position, c))] = o[at(c)];
        group.o.row(r)[c] = input(output(o[at(c)], p_.dtype));
      }
      store(statistics, at(dense_index(p_.lse_shape(), place.batch, h, place.position, 0)));
    }
  }

  void store(const Statistics& statistics, std::size_t row) {
    const T unit = static_cast<T>(style_.lse.base_2 ? std::numbers::log2e : 1.0);
    lse_[row] = statistics.lse * unit;
    if (!style_.lse.apart) return;
    maximum_[row] = natural_score(statistics.m) * unit;
    sum_[row] = statistics.l;
  }
  // What was stored, back in natural units.
  T stored_lse(std::size_t row) const {
    const T unit = static_cast<T>(style_.lse.base_2 ? std::numbers::ln2 : 1.0);
    if (!style_.lse.apart) return static_cast<T>(given_->lse[row]) * unit;
    const T l = static_cast<T>(given_->sum[row]);
    return static_cast<T>(given_->maximum[row]) * unit + std::log(l);
  }
  bool sees_nothing(const Group<T>& group, Index r) const {
    const T* s = group.s.row(r);
    return !p_.sink && std::all_of(s, s + group.keys, [](T x) { return x == -kInfinity; });
  }

  // What an earlier call returned.
  void take_forward(Group<T>& group) {
    group.o = Matrix<T>(group.rows, p_.value_dim);
    group.lse.assign(at(group.rows), -kInfinity);
    for (Index r = 0; r < group.rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      const auto element = [&](const Shape& shape, Index c) {
        return at(dense_index(shape, place.batch, head(group, r), place.position, c));
      };
      for (Index c = 0; c < p_.value_dim; ++c) {
        group.o.row(r)[c] = input(given_->o[element(p_.o_shape(), c)]);
      }
      if (!sees_nothing(group, r)) group.lse[at(r)] = stored_lse(element(p_.lse_shape(), 0));
    }
  }

  // ---- Backward ----

  struct RowGradients {
    Vector p, ds;  // P and dS as they enter the products with dO, K and Q
  };

  // P, and the sink's share.
  T weigh(const Group<T>& group, Index r, T* p) const {
    const T* s = group.s.row(r);
    const T sink = sink_of(head(group, r));
    const T lse = group.lse[at(r)];
    for (Index j = 0; j < group.keys; ++j) p[j] = 0;
    if (lse == -kInfinity) return 0;
    if (!style_.p_from_sum) {
      for (Index j = 0; j < group.keys; ++j) {
        if (s[j] > -kInfinity) p[j] = weight_by_lse(s[j], lse);
      }
      return sink > -kInfinity ? weight_by_lse(sink, lse) : T(0);
    }
    T m = sink;
    for (Index j = 0; j < group.keys; ++j) m = std::max(m, s[j]);
    for (Index j = 0; j < group.keys; ++j) {
      if (s[j] > -kInfinity) p[j] = weight(s[j], m);
    }
    const T own = sink > -kInfinity ? weight(sink, m) : T(0);
    const T l = sum(p, group.keys) + own;
    for (Index j = 0; j < group.keys; ++j) p[j] /= l;
    return own / l;
  }

  void backward(const Group<T>& group) {
    const Index rows = group.rows, keys = group.keys;
    Matrix<T> p(rows, keys), ds(rows, keys);  // as they enter the products
    const Matrix<T> d_o = operands(group.d_o, kDp), vt = operands(group.v, kDp).transposed();
    Vector weights(at(keys)), dp(at(keys)), sums(at(std::max(p_.head_dim, p_.value_dim)));
    for (Index r = 0; r < rows; ++r) {
      const T sink_share = weigh(group, r, weights.data());
      if (group.lse[at(r)] == -kInfinity) continue;
      backward_row(group, r, d_o, vt, sink_share, weights, dp, p.row(r), ds.row(r));
    }

    const bool scales_operand = style_.scale_ds == Style::ScaleDs::operand;
    const bool scales_sum = style_.scale_ds == Style::ScaleDs::after;
    const auto scaled = [&](Matrix<T> operand) {
      for (T& x : operand.data) x *= scales_operand ? scale_ : T(1);
      return operand;
    };
    Matrix<T> ds_dq = operands(ds, kDq);
    const Matrix<T> k = operands(scaled(group.k), kDq);
    for (Index r = 0; r < rows; ++r) {
      const Place place = p_.query_place(group.b, r % group.queries);
      dots(style_.order, ds_dq.row(r), k.data.data(), p_.head_dim, keys, p_.head_dim, sums.data());
      for (Index c = 0; c < p_.head_dim; ++c) {
        T value = sums[at(c)];
        if (drops_sums()) value *= kept_share_;
        if (scales_sum) value *= scale_;
        dq_[at(dense_index(p_.q_shape(), place.batch, head(group, r), place.position, c))] = value;
      }
    }
    const Matrix<T> pt = operands(p, kDv).transposed(), dst = operands(ds, kDk).transposed();
    const Matrix<T> d_o_dv = operands(group.d_o, kDv);
    const Matrix<T> q = operands(scaled(group.q), kDk);
    // As tile products do, dK meets every query with the weight 0 if not more: 0 NaN is NaN, which
    // FINITE-3 advises against.
    const bool dropped = p_.dropout.mode != Dropout::Mode::none;
    for (Index j = 0; j < keys; ++j) {
      const Place place = p_.key_place(group.b, j);
      sum_over_rows(group, dst.row(j), q,
                    (scales_sum ? scale_ : T(1)) * (drops_sums() ? kept_share_ : T(1)), sums);
      for (Index c = 0; c < p_.head_dim; ++c) {
        dk_[at(dense_index(p_.k_shape(), place.batch, group.key_head, place.position, c))] =
            sums[at(c)];
      }
      sum_over_rows(group, pt.row(j), d_o_dv, dropped && !style_.drops_first ? kept_share_ : T(1),
                    sums);
      for (Index c = 0; c < p_.value_dim; ++c) {
        dv_[at(dense_index(p_.v_shape(), place.batch, group.key_head, place.position, c))] =
            sums[at(c)];
      }
    }
  }

  // The sum of the rows times their weights, times a factor: as a whole; or in parts, each stored
  // in the problem's format, as is what they add up to if it is stored again with every part.
  void sum_over_rows(const Group<T>& group, const T* weights, const Matrix<T>& rows, T factor,
                     Vector& sums) const {
    const auto part = [&](Index first, Index count, Vector& to) {
      dots(style_.order, weights + first, rows.row(first), rows.columns, count, rows.columns,
           to.data());
      for (Index c = 0; factor != 1 && c < rows.columns; ++c) to[at(c)] *= factor;
    };
    const bool again = style_.gradient_block > 0;
    if (!again && (!style_.rounds_head_gradients || p_.group_size() == 1)) {
      part(0, group.rows, sums);
      return;
    }
    const Index step = again ? style_.gradient_block : group.queries;
    Vector one(sums.size());
    std::fill(sums.begin(), sums.end(), T(0));
    const auto stored = [&](T x) { return static_cast<T>(output(x, p_.dtype)); };
    for (Index head = 0; head < p_.group_size(); ++head) {
      for (Index i = 0; i < group.queries; i += step) {
        part(head * group.queries + i, std::min(step, group.queries - i), one);
        for (Index c = 0; c < rows.columns; ++c) {
          T& total = sums[at(c)];
          total = again ? stored(total + one[at(c)]) : total + stored(one[at(c)]);
        }
      }
    }
  }

  // From the weights of a row to its rows of P and dS, and its terms of dBias and dSink.
  void backward_row(const Group<T>& group, Index r, const Matrix<T>& d_o, const Matrix<T>& vt,
                    T sink_share, const Vector& weights, Vector& dp, T* p_row, T* ds_row) {
    const Index keys = group.keys;
    const T* s = group.s.row(r);
    const std::uint8_t* kept = kept_row(group, r);
    Position position = {
        .batch = group.b, .head = head(group, r), .query = r % group.queries, .key = 0};
    dots(style_.order, d_o.row(r), vt.data.data(), keys, p_.value_dim, keys, dp.data());
    for (Index j = 0; j < keys; ++j) {
      if (s[j] == -kInfinity || (kept && !kept[j])) dp[at(j)] = 0;
      if (kept && !drops_sums()) dp[at(j)] *= kept_share_;
    }
    // No kernel sums D = sum dO O on a matrix unit.
    const Order by_channel = truncates(style_.order) ? Order::sequential : style_.order;
    T d = style_.d_by_key ? dot(style_.order, weights.data(), dp.data(), keys)
                          : dot(by_channel, group.d_o.row(r), group.o.row(r), p_.value_dim);
    if (style_.d_by_key && drops_sums()) d *= kept_share_;
    T d_lse = 0;
    if (p_.d_lse) {
      const Place place = p_.query_place(group.b, position.query);
      d_lse = static_cast<T>(in_.d_lse.at(place.batch, position.head, place.position, 0));
    }
    if (p_.sink) sink_terms_[at(position.head)].push_back(sink_share * (d_lse - d));
    if (drops_sums()) {  // from here on all is 1 - p times as large
      const T rate = 1 - static_cast<T>(p_.dropout.probability);
      d *= rate;
      d_lse *= rate;
    }
    const T dropped = drops_sums() ? kept_share_ : T(1);
    for (Index j = 0; j < keys; ++j) {
      if (s[j] == -kInfinity) continue;
      position.key = j;
      const T rounded_p = narrow_p(weights[at(j)]);
      T p = weights[at(j)];
      if (kept && !kept[j]) p = 0;
      if (kept && style_.drops_first) p *= kept_share_;
      p_row[j] = narrow_p(p);
      T x = style_.folds_d_lse ? dp[at(j)] - (d - d_lse) : dp[at(j)] - d;
      if (!style_.folds_d_lse && p_.d_lse) x += d_lse;
      T ds = (style_.ds_from_narrow_p ? rounded_p : weights[at(j)]) * x;
      if (p_.bias_shape &&
          !(style_.fault == Style::Fault::half_of_dbias && position.query % 2 == 0)) {
        bias_terms_[broadcast_index(*p_.bias_shape, position)].push_back(
            style_.rounds_dbias_terms ? static_cast<T>(output(ds * dropped, p_.dtype))
            : style_.narrows_dbias    ? narrow(ds) * dropped
                                      : ds * dropped);
      }
      if (cap_ > 0 && style_.fault != Style::Fault::no_cap_slope) {
        const T t = group.tanh.row(r)[j];
        ds *= 1 - t * t;
      }
      if (style_.scale_ds == Style::ScaleDs::before) ds *= scale_;
      ds_row[j] = narrow(ds);
    }
  }

  const std::vector<std::uint8_t>& seen_;
  const Outputs* given_;
  // Before they are rounded to their formats.
  Vector o_, lse_, dq_, dk_, dv_, dbias_, dsink_, maximum_, sum_;
  std::vector<Vector> bias_terms_, sink_terms_;  // by element and head
};

}  // namespace

Outputs run_kernel(const Problem& problem, const Inputs& inputs,
                   const std::vector<std::uint8_t>& visible, const Style& style,
                   const Outputs* forward) {
  if (problem.dtype == DType::f64) {
    return Kernel<double>(problem, inputs, visible, style, forward).run();
  }
  return Kernel<float>(problem, inputs, visible, style, forward).run();
}

}  // namespace attest::bounds
