// Reads bottom up: forward and backward, then the sums of section 4 over keys and over rows.
#include "reference/exact_bound.h"

#include <algorithm>
#include <cmath>

#include "reference/exact_bound/gradient.h"
#include "reference/exact_bound/row.h"
#include "reference/exact_bound/symbols.h"
#include "reference/exact_bound/view.h"

namespace attest::exact_bound {
namespace {

std::vector<Real> zeros_of(const Shape& shape) {
  return std::vector<Real>(at(element_count(shape)), 0);
}

// The first element of a position of a tensor.
std::size_t first_of(const Shape& shape, Place place, Index h) {
  return at(dense_index(shape, place.batch, h, place.position, 0));
}

template <class Visit>
void for_each_row(const Problem& p, const Inputs& in, Index b, Index h, const Visit& visit) {
  for (Index i = 0; i < p.lengths(b).query; ++i)
    visit(View{.p = p, .in = in, .b = b, .h = h, .i = i});
}

// ---- Section 4: B_dQ --------------------------------------------------------------------------

// Of channel c of the row.
Real bound_of_dq(const Symbols& sy, const Gradient& of_row, Index c) {
  const Row& row = of_row.row;
  const Index n = row.n();
  const Product& product = sy.a.dq;
  const Real G = share(product, steps(product, n, row.span()) + 8, sy.u(product)) + 3 * sy.u_s +
                 sy.u_zeta + sy.scale_share;
  const auto k = [&](Index t) { return row.view.k(row.key[at(t)], c); };
  // The reference's own error of the sum that E_D multiplies.
  const Real own = gamma_of(Real(n + 8), sy.u_ref) * of_row.E_D;
  const Real of_keys = sum(n, [&](Index t) {
    const Real ds = std::abs(of_row.ds[at(t)]), e = of_row.e[at(t)] + of_row.t[at(t)];
    const Real flushed = std::abs(k(t)) < sy.small_qk ? ds + of_row.f[at(t)] + of_row.t[at(t)] : 0;
    return std::abs(k(t)) * (sy.tau * ((e + of_row.sigma[at(t)] * of_row.E_D) * (1 + G) + ds * G +
                                       flushed + own * row.p[at(t)]) +
                             sy.z * (1 + sy.tau));
  });
  const Real of_d = sy.tau * of_row.E_D * (1 + G) *
                    std::abs(sum(n, [&](Index t) { return row.p[at(t)] * row.g[at(t)] * k(t); }));
  const Real dq = sy.tau * sum(n, [&](Index t) { return of_row.ds[at(t)] * k(t); });
  const Real bound = of_keys + of_d + sy.z * (1 + sy.tau) * Real(2 * n + 8) * sy.kept();
  return sy.complete(bound, dq, sy.u_zeta) + sy.flush;
}

// ---- Section 4: B_dK, B_dV --------------------------------------------------------------------

// dK, or dV, of the keys of one head of one batch element, of one channel after the other.
struct KeySum {
  std::vector<Real> value, bound;

  explicit KeySum(Index elements) : value(at(elements), 0), bound(value) {}
  void add(Index element, Real x, Real error) {
    value[at(element)] += x;
    bound[at(element)] += error;
  }
  void add(const KeySum& other) {
    for (std::size_t e = 0; e < value.size(); ++e) {
      value[e] += other.value[e];
      bound[e] += other.bound[e];
    }
  }
};

// What all rows of one key head give to its keys.
class KeyHead {
 public:
  KeyHead(const Symbols& symbols, Index b)
      : sy_(symbols),
        queries_(symbols.p.lengths(b).query),
        heads_(symbols.p.group_size()),
        dk_(symbols.p.lengths(b).key * symbols.p.head_dim),
        dv_(symbols.p.lengths(b).key * symbols.p.value_dim),
        seen_(at(symbols.p.lengths(b).key), false) {
    // "Gradients in parts": M.
    const Index block = sy_.a.gradient_block;
    if (block > 0) stored_ = Real(heads_ * ((queries_ + block - 1) / block + 1));
    dk_share_ = share_of(sy_.a.dk) + 3 * sy_.u_s + sy_.u_zeta + sy_.scale_share;
    dv_share_ = share_of(sy_.a.dv);
  }

  // A query head is added row by row, then closed.
  void add(const Gradient& of_row, KeySum& dk, KeySum& dv) {
    const Row& row = of_row.row;
    for (Index t = 0; t < row.n(); ++t) {
      seen_[at(row.key[at(t)])] = true;
      add_to_dk(of_row, t, dk);
      add_to_dv(of_row, t, dv);
    }
  }
  void close_head(KeySum& dk, KeySum& dv) {
    if (sy_.a.rounds_head_gradients && heads_ > 1) {
      round(dk, 2 * sy_.z * (1 + sy_.tau));
      round(dv, 2 * sy_.z);
    }
    dk_.add(dk);
    dv_.add(dv);
  }

  KeySum new_dk() const { return KeySum(Index(dk_.value.size())); }
  KeySum new_dv() const { return KeySum(Index(dv_.value.size())); }
  bool seen(Index j) const { return seen_[at(j)]; }
  Real bound_of_dk(Index j, Index c) const {
    return bound_of(dk_, at(j * sy_.p.head_dim + c), 2 * sy_.z * (1 + sy_.tau),
                    std::max(Real(1), sy_.tau));
  }
  Real bound_of_dv(Index j, Index c) const {
    return bound_of(dv_, at(j * sy_.p.value_dim + c), 2 * sy_.z, 1);
  }

 private:
  // G_dK and G_dV.
  Real share_of(const Product& product) const {
    const Index N = heads_ * queries_;
    const Real G = share(product, steps(product, N, N + 4 * heads_) + 8, sy_.u(product));
    return (1 + G) * (1 + gamma_of(stored_, sy_.u_out)) - 1;
  }

  // The term of row i in the sums of B_dK and B_dV, for the t-th key that it sees.
  void add_to_dk(const Gradient& of_row, Index t, KeySum& dk) const {
    const Real ds = of_row.ds[at(t)], size = std::abs(ds),
               total = of_row.f[at(t)] + of_row.t[at(t)];
    for (Index c = 0; c < sy_.p.head_dim; ++c) {
      const Real q = of_row.row.view.q(c), small = std::abs(q) < sy_.small_qk ? size + total : 0;
      dk.add(of_row.row.key[at(t)] * sy_.p.head_dim + c, Real(sy_.p.scale) * ds * q,
             std::abs(q) * (sy_.tau * (total * (1 + dk_share_) + size * dk_share_ + small) +
                            sy_.z * (1 + sy_.tau)));
    }
  }

  void add_to_dv(const Gradient& of_row, Index t, KeySum& dv) const {
    const Row& row = of_row.row;
    const Real p = row.p[at(t)], zeta = row.zeta[at(t)];
    const Real error = p * of_row.r[at(t)] + of_row.psi[at(t)] + sy_.z;
    for (Index c = 0; c < sy_.p.value_dim; ++c) {
      const Real d_o = row.view.d_o(c), small = std::abs(d_o) < sy_.small ? p + error : 0;
      dv.add(row.key[at(t)] * sy_.p.value_dim + c, zeta * p * d_o,
             zeta * std::abs(d_o) * (error * (1 + dv_share_) + p * dv_share_ + small));
    }
  }

  // "Gradients in parts": rho_out of what one query head gives.
  void round(KeySum& of_head, Real underflow) const {
    for (std::size_t e = 0; e < of_head.value.size(); ++e) {
      const Real so_far = of_head.bound[e] + underflow * Real(queries_ + 8) * sy_.kept();
      const Real error =
          so_far + (3 * sy_.u_s + sy_.u_zeta) * (std::abs(of_head.value[e]) + so_far);
      of_head.bound[e] += sy_.rho_out(of_head.value[e], error);
    }
  }

  // What is not a sum over rows of B_dK or B_dV; and section 6.
  Real bound_of(const KeySum& sums, std::size_t e, Real underflow, Real stored_factor) const {
    const Real N = Real(heads_ * queries_);
    const Real absolute =
        (underflow * (N + 8) + stored_ * sy_.eta_out * stored_factor) * sy_.kept();
    return sy_.complete(sums.bound[e] + absolute, sums.value[e], sy_.u_zeta) + sy_.flush;
  }

  const Symbols& sy_;
  Index queries_, heads_;
  KeySum dk_, dv_;
  std::vector<bool> seen_;
  Real stored_ = 0;  // M
  Real dk_share_ = 0, dv_share_ = 0;
};

// ---- Section 4: B_dBias, B_dSink --------------------------------------------------------------

// Of all rows of all heads, since they may share an element of the bias.
class ScoreSums {
 public:
  explicit ScoreSums(const Symbols& symbols)
      : sy_(symbols),
        bias_value_(zeros_of(sy_.p.bias_shape.value_or(Shape{}))),
        bias_bound_(bias_value_),
        bias_read_(bias_value_.size(), false),
        sink_read_(at(sy_.p.sink ? sy_.p.query_heads : 0), false),
        sink_value_(zeros_of(sy_.p.sink ? sy_.p.sink_shape() : Shape{})),
        sink_bound_(sink_value_) {
    Index N_b = 1;
    for (std::size_t axis = 0; sy_.p.bias_shape && axis < 4; ++axis) {
      if ((*sy_.p.bias_shape)[axis] == 1) N_b *= sy_.p.keep_shape()[axis];
    }
    G_b_ = gamma_of(steps(sy_.a.dk, N_b, 4 * N_b) + 8, sy_.widest(sy_.a.dk));
    Index N_z = 0;
    for (Index b = 0; b < sy_.p.batch; ++b) N_z += sy_.p.lengths(b).query;
    G_z_ = gamma_of(Real(N_z + 8), sy_.u_s);
  }

  void add_to_bias(const Gradient& of_row) {
    for (Index t = 0; sy_.p.bias_shape && t < of_row.row.n(); ++t) {
      const std::size_t e = of_row.row.view.bias_element(of_row.row.key[at(t)]);
      const Term ds = dbias_term(sy_, of_row, t);
      bias_read_[e] = true;
      bias_value_[e] += ds.value;
      bias_bound_[e] += ds.error * (1 + G_b_) + std::abs(ds.value) * G_b_ + 2 * sy_.z;
    }
  }
  void add_to_sink(const Row& row, Real D, Real E_D) {
    if (!sy_.p.sink) return;
    const Term term = dsink_term(sy_, row, D, E_D);
    const std::size_t h = at(row.view.h);
    sink_read_[h] = true;
    sink_value_[h] += term.value;
    sink_bound_[h] += term.error * (1 + G_z_) + std::abs(term.value) * G_z_;
  }

  std::vector<Real> dbias() const {
    std::vector<Real> bounds(bias_bound_.size(), 0);
    for (std::size_t e = 0; e < bounds.size(); ++e) {
      if (!bias_read_[e]) continue;
      bounds[e] = sy_.complete(bias_bound_[e] + 16 * sy_.z, bias_value_[e], 0) + sy_.flush;
    }
    return bounds;
  }
  std::vector<Real> dsink() const {
    std::vector<Real> bounds(sink_bound_.size(), 0);
    for (std::size_t h = 0; h < bounds.size(); ++h) {
      if (!sink_read_[h]) continue;
      const Real flush = sy_.flush > 0 ? Real(smallest_normal(DType::f32)) : 0;
      bounds[h] = sy_.complete(sink_bound_[h] + 16 * sy_.z, sink_value_[h], 0) + flush;
    }
    return bounds;
  }

 private:
  const Symbols& sy_;
  std::vector<Real> bias_value_, bias_bound_;
  std::vector<bool> bias_read_, sink_read_;
  std::vector<Real> sink_value_, sink_bound_;
  Real G_b_, G_z_;
};

}  // namespace

Forward forward(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  const Symbols symbols(p, with_stored(arithmetic, p, in));
  Forward bounds = {zeros_of(p.o_shape()), zeros_of(p.lse_shape())};
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for_each_row(p, in, b, h, [&](const View& view) {
        const Row row = row_of(symbols, view);
        std::copy(row.b_o.begin(), row.b_o.end(),
                  bounds.o.begin() + Index(first_of(p.o_shape(), view.row, h)));
        bounds.lse[first_of(p.lse_shape(), view.row, h)] = row.b_l;
      });
    }
  }
  return bounds;
}

Backward backward(const Problem& p, const Inputs& in, const Arithmetic& arithmetic) {
  const Symbols symbols(p, with_stored(arithmetic, p, in));
  Backward bounds = {zeros_of(p.q_shape()), zeros_of(p.k_shape()), zeros_of(p.v_shape())};
  ScoreSums of_scores(symbols);
  const auto add_head = [&](Index b, Index h, KeyHead& keys) {
    KeySum dk = keys.new_dk(), dv = keys.new_dv();
    for_each_row(p, in, b, h, [&](const View& view) {
      const Row row = row_of(symbols, view);
      if (row.n() == 0) return of_scores.add_to_sink(row, 0, symbols.z);
      const Gradient of_row = gradient_of(symbols, row);
      of_scores.add_to_sink(row, of_row.D, of_row.E_D);
      of_scores.add_to_bias(of_row);
      keys.add(of_row, dk, dv);
      for (Index c = 0; c < p.head_dim; ++c) {
        bounds.dq[first_of(p.q_shape(), view.row, h) + at(c)] = bound_of_dq(symbols, of_row, c);
      }
    });
    keys.close_head(dk, dv);
  };
  for (Index b = 0; b < p.batch; ++b) {
    for (Index kh = 0; kh < p.key_heads; ++kh) {
      KeyHead keys(symbols, b);
      for (Index h = kh * p.group_size(); h < (kh + 1) * p.group_size(); ++h) add_head(b, h, keys);
      for (Index j = 0; j < p.lengths(b).key; ++j) {
        if (!keys.seen(j)) continue;
        const Place place = p.key_place(b, j);
        const std::size_t k = first_of(p.k_shape(), place, kh),
                          v = first_of(p.v_shape(), place, kh);
        for (Index c = 0; c < p.head_dim; ++c) bounds.dk[k + at(c)] = keys.bound_of_dk(j, c);
        for (Index c = 0; c < p.value_dim; ++c) bounds.dv[v + at(c)] = keys.bound_of_dv(j, c);
      }
    }
  }
  if (p.bias_shape) bounds.dbias = of_scores.dbias();
  if (p.sink) bounds.dsink = of_scores.dsink();
  return bounds;
}

}  // namespace attest::exact_bound
