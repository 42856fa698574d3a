// Reads bottom up: spread_forward and spread_backward, then what rows bring to the gradients. One
// row is in statistical/row.h. The symbols and formulas are those of NUMERICS.md, section 12.
#include "reference/statistical.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/statistical/row.h"
#include "reference/working.h"

namespace attest {
namespace bound::statistical {
namespace {

// visit(b, h, i) for each query within its length.
template <class Visit>
void for_each_query(const Problem& p, const Visit& visit) {
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) visit(b, h, i);
    }
  }
}

// What is summed over query rows: the proxy of its terms, and what its own additions work on.
struct Total {
  std::vector<double> variance, size;

  explicit Total(const Shape& shape) : variance(at(element_count(shape))), size(variance) {}
  void add(std::size_t element, double noise, double term) {
    variance[element] += noise * noise;
    size[element] += std::abs(term);
  }
  // Besides, the sum is rounded to `stored` so many times.
  std::vector<double> deviation(const Product& product, double roundings,
                                const Narrow<double>& stored = {}, double times = 0) const {
    std::vector<double> result;
    for (std::size_t e = 0; e < variance.size(); ++e) {
      const double in_memory = times * square(stored.roundoff * size[e] + stored.underflow);
      result.push_back(
          std::sqrt(variance[e] + noise_of_sum(product, roundings, size[e]) + in_memory));
    }
    return result;
  }
};

// The deviations of all gradients: add every row, then ask.
class Gradients {
 public:
  Gradients(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic)
      : p_(problem),
        in_(inputs),
        a_(arithmetic),
        noise_(problem, inputs, arithmetic),
        group_(problem.key_heads > 0 ? problem.group_size() : 1),
        tau_(std::abs(problem.scale)),
        dq_(at(element_count(problem.q_shape()))),
        dk_(problem.k_shape()),
        dv_(problem.v_shape()),
        dbias_(problem.bias_shape.value_or(Shape{})),
        dsink_(problem.sink ? problem.sink_shape() : Shape{}) {}

  void add_row(Index b, Index h, Index i) {
    Forward row = noise_.forward(b, h, i);
    const Backward of_row = noise_.backward(row, b, h, i);
    put_dq(row, of_row, p_.query_place(b, i), h);
    add_to_keys(row, of_row, p_.query_place(b, i), h);
    if (p_.bias_shape) add_to_bias(row, of_row, {.batch = b, .head = h, .query = i});
    if (p_.sink) dsink_.add(at(h), of_row.sigma_dsink, of_row.dsink);
  }

  const std::vector<double>& dq() const { return dq_; }
  std::vector<double> dk() const { return of_keys(dk_, a_.dk); }
  std::vector<double> dv() const { return of_keys(dv_, a_.dv); }
  std::vector<double> dbias() const {
    double readers = 1;  // N_b
    for (std::size_t axis = 0; p_.bias_shape && axis < 4; ++axis) {
      if ((*p_.bias_shape)[axis] == 1) readers *= double(p_.keep_shape()[axis]);
    }
    return dbias_.deviation(of_scores(), readers + 8);
  }
  std::vector<double> dsink() const {
    Index rows = 0;  // N_z
    for (Index b = 0; b < p_.batch; ++b) rows += p_.lengths(b).query;
    return dsink_.deviation(of_scores(), double(rows + 8));
  }

 private:
  void put_dq(const Forward& row, const Backward& of_row, Place place, Index h) {
    Channels own(at(p_.head_dim), 0.0), of_l = own, of_d = own, size = own;
    for (std::size_t t = 0; t < row.keys.size(); ++t) {
      const double* k = channels_of(in_.k, row.keys[t].place, h / group_);
      const double p_g = row.keys[t].p * row.keys[t].g, ds = of_row.ds_g[t];
      for (std::size_t c = 0; c < own.size(); ++c) {
        own[c] += square(of_row.sigma_g[t] * k[c]);
        of_l[c] += ds * k[c];
        of_d[c] += p_g * k[c];
        size[c] += std::abs(ds * k[c]);
      }
    }
    const auto n = double(row.keys.size());
    const Index first = dense_index(p_.q_shape(), place.batch, h, place.position, 0);
    for (std::size_t c = 0; c < own.size(); ++c) {
      const double together = std::sqrt(own[c]) + of_row.sigma_l * std::abs(of_l[c]) +
                              of_row.sigma_d * std::abs(of_d[c]);
      dq_[at(first) + c] = tau_ * std::sqrt(square(together) + noise_of_sum(a_.dq, n + 8, size[c]));
    }
  }

  void add_to_keys(const Forward& row, const Backward& of_row, Place place, Index h) {
    const Channels q = row_of(in_.q, place, h), d_o = row_of(in_.d_o, place, h);
    for (std::size_t t = 0; t < row.keys.size(); ++t) {
      const Key& key = row.keys[t];
      const Place to = key.place;
      const double ds = of_row.ds_g[t];
      const double sigma = tau_ * (of_row.sigma_g[t] + std::abs(ds) * of_row.sigma_l +
                                   key.p * key.g * of_row.sigma_d);
      const auto k = at(dense_index(p_.k_shape(), to.batch, h / group_, to.position, 0));
      for (std::size_t c = 0; c < q.size(); ++c) dk_.add(k + c, sigma * q[c], tau_ * ds * q[c]);
      const auto v = at(dense_index(p_.v_shape(), to.batch, h / group_, to.position, 0));
      for (std::size_t c = 0; c < d_o.size(); ++c) {
        dv_.add(v + c, key.zeta * of_row.sigma_p[t] * d_o[c], key.zeta * key.p * d_o[c]);
      }
    }
  }

  // Keys that share an element of the bias share the errors of L and D too.
  void add_to_bias(const Forward& row, const Backward& of_row, Position position) {
    const Shape& shape = *p_.bias_shape;
    const bool shared = shape[3] == 1;
    std::size_t element = 0;
    double of_all = 0;
    for (std::size_t t = 0; t < row.keys.size(); ++t) {
      position.key = row.keys[t].j;
      element = broadcast_index(shape, position);
      const double sigma = of_row.sigma[t] + std::abs(of_row.ds[t]) * of_row.sigma_l +
                           row.keys[t].p * of_row.sigma_d;
      of_all += sigma;
      dbias_.add(element, shared ? 0 : sigma, of_row.ds[t]);
    }
    if (shared && !row.keys.empty()) dbias_.add(element, of_all, 0);
  }

  // dK and dV: also as they are stored, or rounded by head.
  std::vector<double> of_keys(const Total& total, const Product& product) const {
    Index longest = 0;
    double times = a_.rounds_head_gradients && group_ > 1 ? double(group_) : 0;
    for (Index b = 0; b < p_.batch; ++b) {
      longest = std::max(longest, p_.lengths(b).query);
      times = std::max(times, times_stored(p_, noise_.model(), b));
    }
    return total.deviation(product, double(group_ * longest + 8), noise_.model().stored, times);
  }

  // Sums of dBias and dSink are made in the accumulator of dK or in the softmax's.
  Product of_scores() const {
    Product sums = a_.dk;
    sums.operand_roundoff = 0;
    sums.accumulator_roundoff =
        std::max(sums.truncates ? 0 : sums.accumulator_roundoff, a_.softmax_roundoff);
    sums.truncates = false;
    return sums;
  }

  const Problem& p_;
  const Inputs& in_;
  const Arithmetic& a_;
  Noise noise_;
  Index group_;
  double tau_;
  std::vector<double> dq_;
  Total dk_, dv_, dbias_, dsink_;
};

}  // namespace
}  // namespace bound::statistical

using namespace bound;
using namespace bound::statistical;

ForwardSpread spread_forward(const Problem& problem, const Inputs& inputs,
                             const Arithmetic& arithmetic, int threads) {
  ForwardExpected drift =
      expect_forward(problem, inputs, arithmetic, threads, nullptr, Roundings::systematic);
  ForwardSpread result = {.o = {std::move(drift.o.bound), {}},
                          .lse = {std::move(drift.lse.bound), {}}};
  result.o.deviation.assign(result.o.drift.size(), 0);
  result.lse.deviation.assign(result.lse.drift.size(), 0);
  const Noise noise(problem, inputs, arithmetic);
  const Shape o = problem.o_shape(), lse = problem.lse_shape();
  for_each_query(problem, [&](Index b, Index h, Index i) {
    const Forward row = noise.forward(b, h, i);
    const Place place = problem.query_place(b, i);
    result.lse.deviation[at(dense_index(lse, place.batch, h, place.position, 0))] = row.sigma_l;
    std::copy(row.sigma_o.begin(), row.sigma_o.end(),
              result.o.deviation.begin() + dense_index(o, place.batch, h, place.position, 0));
  });
  return result;
}

BackwardSpread spread_backward(const Problem& problem, const Inputs& inputs,
                               const Arithmetic& arithmetic, int threads) {
  BackwardExpected drift =
      expect_backward(problem, inputs, arithmetic, threads, nullptr, Roundings::systematic);
  Gradients sums(problem, inputs, arithmetic);
  for_each_query(problem, [&](Index b, Index h, Index i) { sums.add_row(b, h, i); });
  return {.dq = {std::move(drift.dq.bound), sums.dq()},
          .dk = {std::move(drift.dk.bound), sums.dk()},
          .dv = {std::move(drift.dv.bound), sums.dv()},
          .dbias = {std::move(drift.dbias.bound), sums.dbias()},
          .dsink = {std::move(drift.dsink.bound), sums.dsink()}};
}

double deviations_of(double elements, double chance) {
  return std::sqrt(2 * std::log(2 * std::max(elements, 1.0) / chance));
}

double mean_square_limit(double groups, double chance) {
  // P(mean > x) <= exp(-groups (x - 1 - log x) / 2); bisected, as the left side rises.
  const double wanted = 2 * std::log(1 / chance) / std::max(groups, 1.0);
  double low = 1, high = 2 * wanted + 10;
  while (high - low > 1e-12 * high) {
    const double x = (low + high) / 2;
    (x - 1 - std::log(x) < wanted ? low : high) = x;
  }
  return high;
}

}  // namespace attest
