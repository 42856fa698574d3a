// Gradients: linear in the loss (LAW-14), and what they are sums of, and add up to (LAW-15).
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/laws/law.h"
#include "harness/laws/running.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

std::string unmet_by_gradients(const Problem& p, const Inputs&) {
  return p.backward ? "" : "there are no gradients";
}

// ---- Linear in the loss (LAW-14) ---------------------------------------------------------------

void linear_gradient(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant one = {first.problem(), first.inputs()};
  one.inputs.d_o = coarse(first.inputs().d_o);
  one.inputs.d_lse = coarse(first.inputs().d_lse);
  Variant two = one, both = one;
  two.inputs.d_o = shuffled(first.inputs().d_o);
  two.inputs.d_lse = shuffled(first.inputs().d_lse);
  both.inputs.d_o = less_twice(one.inputs.d_o, two.inputs.d_o);
  both.inputs.d_lse = less_twice(one.inputs.d_lse, two.inputs.d_lse);
  const Sample* a = experiment.attempt(std::move(one));
  const Sample* b = a ? experiment.attempt(std::move(two)) : nullptr;
  const Sample* sum = b ? experiment.attempt(std::move(both)) : nullptr;
  if (!sum) return;
  for (const TensorName tensor : kGradients) {
    if (!sum->has(tensor)) continue;
    const Result of_sum = (*sum)[tensor], of_a = (*a)[tensor], of_b = (*b)[tensor];
    for (Index n = 0; n < element_count(of_sum.shape()); ++n) {
      const At at = coordinates(of_sum.shape(), n);
      experiment.expect_equal(tensor, at, of_sum.at(at), of_a.at(at) + -2 * of_b.at(at),
                              "of one loss less twice another, for that loss");
    }
  }
}

// All of whose terms are 0: unless one is 0 times what may have overflowed.
void expect_zero(Experiment& experiment, const Result& gradient, const At& at, const char* how) {
  if (!gradient.at(at).tells_nothing()) experiment.expect_exactly(gradient, at, 0, how);
}

// A loss that does not depend on O gives V no gradient; none at all gives no gradient.
void zero_loss(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  for (double& x : variant.inputs.d_o.data) x = 0;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  for (const TensorName tensor : kGradients) {
    if (!sample->has(tensor)) continue;
    if (sample->problem().d_lse && tensor != TensorName::dv) continue;
    const Result gradient = (*sample)[tensor];
    for (Index n = 0; n < element_count(gradient.shape()); ++n) {
      expect_zero(experiment, gradient, coordinates(gradient.shape(), n), "for dO = 0");
    }
  }
}

// ---- Sums (LAW-15) -----------------------------------------------------------------------------

std::string unmet_by_value_sums(const Problem& p, const Inputs& in) {
  if (p.sink) return "a sink takes its share";
  if (p.dropout.mode != Dropout::Mode::none) return "dropout leaves keys out";
  return unmet_by_gradients(p, in);
}

// sum_j dV_j = sum_i dO_i over the rows of the group that see a key.
void value_sums(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      std::vector<Known> loss(static_cast<std::size_t>(p.value_dim), exactly(0));
      for (Position row = {.batch = b, .head = h * p.group_size()};
           row.head < (h + 1) * p.group_size(); ++row.head) {
        for (row.query = 0; row.query < p.lengths(b).query; ++row.query) {
          if (!first.sees_any(row)) continue;
          const Place place = p.query_place(b, row.query);
          for (Index c = 0; c < p.value_dim; ++c) {
            Known& sum = loss[static_cast<std::size_t>(c)];
            sum = sum + exactly(first.inputs().d_o.at(place.batch, row.head, place.position, c));
          }
        }
      }
      for (Index c = 0; c < p.value_dim; ++c) {
        experiment.expect_equal(
            TensorName::dv, {b, h, 0, c}, first.sum_over_keys(TensorName::dv, b, h, c),
            loss[static_cast<std::size_t>(c)], "as the sum of dO, for that of all keys from here");
      }
    }
  }
}

std::string unmet_by_key_sums(const Problem& p, const Inputs& in) {
  if (p.softcap != 0) return "a softcap has its own slope for each key";
  if (p.sink) return "a sink takes its share";
  if (p.d_lse) return "dLSE moves all scores of a row";
  return unmet_by_gradients(p, in);
}

// sum_j dK_j = 0: one vector added to all keys changes nothing.
void key_sums(Experiment& experiment) {
  const Problem& p = experiment.first().problem();
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      for (Index c = 0; c < p.head_dim; ++c) {
        experiment.expect_equal(TensorName::dk, {b, h, 0, c},
                                experiment.first().sum_over_keys(TensorName::dk, b, h, c),
                                exactly(0), "for the sum of all keys from here");
      }
    }
  }
}

std::string unmet_by_logit_sums(const Problem& p, const Inputs& in) {
  return p.bias_shape ? unmet_by_gradients(p, in) : "there is no bias";
}

// The sums over keys of dBias: p_sink D + (1 - p_sink) dLSE of all rows that read them; and all of
// a head's, with dSink: the sum of dLSE.
void logit_sums(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const Inputs& in = first.inputs();
  const Result dbias = first[TensorName::dbias];
  const Shape& shape = dbias.shape();
  Shape sums_shape = shape;
  sums_shape[3] = 1;
  const auto count = static_cast<std::size_t>(element_count(sums_shape));
  std::vector<Known> rows(count, exactly(0));
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (!first.sees_any(row)) return;
    const Known loss = exactly(p.d_lse ? in.d_lse.at(place.batch, row.head, place.position, 0) : 0);
    Known sum = loss;
    if (p.sink) {
      Known d = exactly(0);
      for (Index c = 0; c < p.value_dim; ++c) {
        d = d + in.d_o.at(place.batch, row.head, place.position, c) * first.o(row, c);
      }
      const Known share = exp_of_difference(exactly(in.sink.at(0, row.head, 0, 0)), first.lse(row));
      sum = loss + share * (d - loss);
    }
    Known& total = rows[static_cast<std::size_t>(
        broadcast_index(sums_shape, row.batch, row.head, row.query, 0))];
    total = total + sum;
  });
  for (std::size_t n = 0; n < count; ++n) {
    At at = coordinates(sums_shape, static_cast<Index>(n));
    Known sum = exactly(0);
    for (at[3] = 0; at[3] < shape[3]; ++at[3]) sum = sum + dbias.at(at);
    at[3] = 0;
    experiment.expect_equal(TensorName::dbias, at, sum, rows[n],
                            "as what its row adds up to, for the sum of all keys from here");
  }
  if (!p.sink || shape[1] == 1) return;
  // What the logits of a head have in common moves LSE alone.
  const Result dsink = first[TensorName::dsink];
  for (Index h = 0; h < p.query_heads; ++h) {
    Known logits = dsink.at({0, h, 0, 0}), loss = exactly(0);
    for (Index n = 0; n < element_count(shape); ++n) {
      const At at = coordinates(shape, n);
      if (at[1] == h) logits = logits + dbias.at(at);
    }
    for_each_query(p, [&](const Position& row, const Place& place) {
      if (row.head != h || !p.d_lse) return;
      loss = loss + exactly(in.d_lse.at(place.batch, h, place.position, 0));
    });
    experiment.expect_equal(TensorName::dsink, {0, h, 0, 0}, logits, loss,
                            "as the sum of dLSE, for that of dSink and the head's dBias");
  }
}

// ---- Where all scores are 0, gradients are sums of the inputs (LAW-15) -------------------------

std::string unmet_by_zero_scores(const Problem& p, const Inputs& in) {
  if (!has_reaches(p)) return "keys that a row sees do not lie side by side";
  if (p.slopes_shape) return "a bias tells keys apart";
  if (static_cast<double>(p.batch * p.key_heads * (p.query_len + p.key_len)) *
          static_cast<double>(p.head_dim * p.value_dim) >
      0x1p26) {
    return "sums of so many products take too long";
  }
  // V is at most 16 and dO at most 9, which bounds X; sums of dS and K, or Q, must not overflow,
  // not even before they are scaled.
  const double x = 2.0 * 16 * 9 * static_cast<double>(p.value_dim),
               rows = static_cast<double>(p.group_size() * p.query_len);
  const double most =
      std::max(1.0, std::abs(p.scale)) * x * std::max(largest_of(in.k), rows * largest_of(in.q));
  if (!(most < largest_finite(p.lse_dtype()) / 2)) return "sums of gradients may overflow";
  return unmet_by_value_sums(p, in);
}

// A loss that goes along with Q, and does not vanish on average.
Values loss_like(const Values& q, const Shape& shape) {
  return tabulated(shape, [&](Index b, Index h, Index i, Index c) {
    return 1 + coarse(q.at(b, h, i, c % q.shape[kChannel]));
  });
}

// The rows of one key head, with all that they have in common.
struct Group {
  const Sample& sample;
  Index b, h;

  Lengths lengths() const { return sample.problem().lengths(b); }
  double key(const Values& values, Index j, Index c) const {
    const Place place = sample.problem().key_place(b, j);
    return values.at(place.batch, h, place.position, c);
  }
  // Calls visit(head, i, place, keys) for its rows that see a key.
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    const Problem& p = sample.problem();
    for (Index i = 0; i < lengths().query; ++i) {
      const Reach keys = keys_seen(p, b, i);
      if (keys.size() == 0) continue;
      for (Index head = h * p.group_size(); head < (h + 1) * p.group_size(); ++head) {
        visit(head, i, p.query_place(b, i), keys);
      }
    }
  }
  KnownSums sums_of(const Values& values) const {
    KnownSums sums(lengths().key, values.shape[kChannel]);
    for (Index j = 0; j < lengths().key; ++j) {
      for (Index c = 0; c < values.shape[kChannel]; ++c) sums.add(j, c, key(values, j, c));
    }
    sums.run();
    return sums;
  }
  // dLSE - D of a row, where O is the mean of V.
  Known slope(const KnownSums& v, Index head, Place place, const Reach& keys) const {
    const Problem& p = sample.problem();
    const Inputs& in = sample.inputs();
    Known d = exactly(0);
    for (Index c = 0; c < p.value_dim; ++c) {
      d = d + in.d_o.at(place.batch, head, place.position, c) * v.over(keys, c);
    }
    const double loss = p.d_lse ? in.d_lse.at(place.batch, head, place.position, 0) : 0;
    return exactly(loss) - 1 / static_cast<long double>(keys.size()) * d;
  }
};

// K = 0: dV_j = sum_i dO_i / n_i and dK_j = scale sum_i (dP_ij - D_i + dLSE_i) q_i / n_i over the
// rows that see the key; dQ has no term but zeros.
void zero_keys(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  for (double& k : variant.inputs.k.data) k = 0;
  for (double& v : variant.inputs.v.data) v = whole(v);
  variant.inputs.d_o = loss_like(variant.inputs.q, variant.problem.o_shape());
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  const Inputs& in = sample->inputs();
  const Result dq = (*sample)[TensorName::dq], dk = (*sample)[TensorName::dk],
               dv = (*sample)[TensorName::dv];
  for (Group group = {*sample, 0, 0}; group.b < p.batch; ++group.b) {
    for (group.h = 0; group.h < p.key_heads; ++group.h) {
      const KnownSums v = group.sums_of(in.v);
      const Index rows = group.lengths().query;
      KnownSums loss(rows, p.value_dim), products(rows, p.head_dim * p.value_dim),
          slopes(rows, p.head_dim);
      group.for_each_row([&](Index head, Index i, Place place, const Reach& keys) {
        const long double share = 1 / static_cast<long double>(keys.size());
        const Known slope = group.slope(v, head, place, keys);
        const long double size = std::max(std::abs(slope.low), std::abs(slope.high));
        for (Index c = 0; c < p.head_dim; ++c) {
          const double q = in.q.at(place.batch, head, place.position, c);
          slopes.add(i, c, share * q * slope.value, share * std::abs(q) * size);
          for (Index e = 0; e < p.value_dim; ++e) {
            products.add(i, c * p.value_dim + e,
                         share * q * in.d_o.at(place.batch, head, place.position, e));
          }
          expect_zero(experiment, dq, {place.batch, head, place.position, c}, "for K = 0");
        }
        for (Index e = 0; e < p.value_dim; ++e) {
          loss.add(i, e, share * in.d_o.at(place.batch, head, place.position, e));
        }
      });
      for (KnownSums* sums : {&loss, &products, &slopes}) sums->run();
      for (Index j = 0; j < group.lengths().key; ++j) {
        const Reach seen = queries_that_see(p, group.b, j);
        const Place place = p.key_place(group.b, j);
        for (Index e = 0; e < p.value_dim; ++e) {
          const At at = {place.batch, group.h, place.position, e};
          experiment.expect_equal(TensorName::dv, at, dv.at(at), loss.over(seen, e),
                                  "as the sum of dO / n, for K = 0");
        }
        for (Index c = 0; c < p.head_dim; ++c) {
          Known sum = slopes.over(seen, c);
          for (Index e = 0; e < p.value_dim; ++e) {
            sum = sum + group.key(in.v, j, e) * products.over(seen, c * p.value_dim + e);
          }
          const At at = {place.batch, group.h, place.position, c};
          experiment.expect_equal(TensorName::dk, at, dk.at(at), p.scale * sum,
                                  "as what dO, Q and V make of P = 1 / n, for K = 0");
        }
      }
    }
  }
}

// Q = 0: dQ_i = scale sum_j (dP_ij - D_i + dLSE_i) k_j / n_i; dK has no term but zeros.
void zero_queries(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  Inputs& changed = variant.inputs;
  changed.d_o = loss_like(changed.q, variant.problem.o_shape());
  for (double& q : changed.q.data) q = 0;
  // V goes along with K, so that the sum does not vanish on average.
  changed.v = tabulated(changed.v.shape, [&](Index b, Index h, Index s, Index c) {
    return whole(changed.k.at(b, h, s, c % changed.k.shape[kChannel]));
  });
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  const Inputs& in = sample->inputs();
  const Result dq = (*sample)[TensorName::dq], dk = (*sample)[TensorName::dk];
  for (Group group = {*sample, 0, 0}; group.b < p.batch; ++group.b) {
    for (group.h = 0; group.h < p.key_heads; ++group.h) {
      const KnownSums v = group.sums_of(in.v), k = group.sums_of(in.k);
      KnownSums products(group.lengths().key, p.head_dim * p.value_dim);
      for (Index j = 0; j < group.lengths().key; ++j) {
        const Place place = p.key_place(group.b, j);
        for (Index c = 0; c < p.head_dim; ++c) {
          for (Index e = 0; e < p.value_dim; ++e) {
            products.add(j, c * p.value_dim + e,
                         static_cast<long double>(group.key(in.k, j, c)) * group.key(in.v, j, e));
          }
          expect_zero(experiment, dk, {place.batch, group.h, place.position, c}, "for Q = 0");
        }
      }
      products.run();
      group.for_each_row([&](Index head, Index, Place place, const Reach& keys) {
        const long double share = 1 / static_cast<long double>(keys.size());
        const Known slope = group.slope(v, head, place, keys);
        for (Index c = 0; c < p.head_dim; ++c) {
          Known sum = slope * k.over(keys, c);
          for (Index e = 0; e < p.value_dim; ++e) {
            sum = sum + in.d_o.at(place.batch, head, place.position, e) *
                            products.over(keys, c * p.value_dim + e);
          }
          const At at = {place.batch, head, place.position, c};
          experiment.expect_equal(TensorName::dq, at, dq.at(at), share * (p.scale * sum),
                                  "as what dO, K and V make of P = 1 / n, for Q = 0");
        }
      });
    }
  }
}

void zero_scores(Experiment& experiment) {
  zero_keys(experiment);
  zero_queries(experiment);
}

constexpr std::array kLawsOfGradients = {
    Law{.name = "linear_gradient", .unmet = unmet_by_gradients, .check = linear_gradient},
    Law{.name = "zero_loss", .unmet = unmet_by_gradients, .check = zero_loss},
    Law{.name = "value_sums", .unmet = unmet_by_value_sums, .check = value_sums},
    Law{.name = "key_sums", .unmet = unmet_by_key_sums, .check = key_sums},
    Law{.name = "zero_scores", .unmet = unmet_by_zero_scores, .check = zero_scores},
    Law{.name = "logit_sums",
        .unmet = unmet_by_logit_sums,
        .check = logit_sums,
        .needs_lse_of_sinks = true},
};

}  // namespace

std::span<const Law> laws_of_gradients() { return kLawsOfGradients; }

}  // namespace attest::laws
