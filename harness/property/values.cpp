// O as a weighted mean of the visible V: LAW-3 and LAW-4.
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/property/law.h"
#include "harness/property/variant.h"

namespace attest::property {
namespace {

double value_of_key(const Sample& sample, const Position& at, Index c) {
  const Problem& p = sample.problem();
  const Place place = p.key_place(at.batch, at.key);
  return sample.inputs().v.at(place.batch, at.head / p.group_size(), place.position, c);
}

// What the keys have of a row: 1 less the sink's share.
Known share_of_keys(const Sample& sample, const Position& row) {
  if (!sample.problem().sink) return exactly(1);
  const Known sink = exactly(sample.inputs().sink.at(0, row.head, 0, 0));
  return exactly(1) - exp_of_difference(sink, sample.lse(row));
}

std::string unmet_by_any_v(const Problem&, const Inputs&) { return ""; }
std::string unmet_by_dropout(const Problem& p, const Inputs&) {
  return p.dropout.mode != Dropout::Mode::none ? "dropout leaves keys out" : "";
}

// ---- O is linear in V (LAW-3) ------------------------------------------------------------------

void linear_values(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant one = {first.problem(), first.inputs()};
  one.problem.backward = one.problem.d_lse = false;
  one.inputs.v = coarse(first.inputs().v);
  Variant two = one, both = one;
  two.inputs.v = shuffled(first.inputs().v);
  both.inputs.v = less_twice(one.inputs.v, two.inputs.v);
  const Sample* a = experiment.attempt(std::move(one));
  const Sample* b = a ? experiment.attempt(std::move(two)) : nullptr;
  const Sample* sum = b ? experiment.attempt(std::move(both)) : nullptr;
  if (!sum) return;
  for (const char* tensor : {"O", "LSE"}) {
    if (!sum->has(tensor)) continue;
    const Result of_sum = (*sum)[tensor], of_a = (*a)[tensor], of_b = (*b)[tensor];
    const bool is_o = std::string(tensor) == "O";
    for (Index n = 0; n < element_count(of_sum.shape()); ++n) {
      const At at = coordinates(of_sum.shape(), n);
      const Known right = is_o ? of_a.at(at) + -2 * of_b.at(at) : of_a.at(at);
      experiment.expect_equal(tensor, at, of_sum.at(at), right,
                              is_o ? "of O(V) - 2 O(W), for V - 2 W" : "with another V");
    }
  }
}

// ---- Shares of a row add up to 1 (LAW-4) -------------------------------------------------------

void ones(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  for (double& v : variant.inputs.v.data) v = 1;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  if (p.sink && !sample->has("LSE")) return;
  for_each_query(p, [&](const Position& row, const Place& place) {
    const bool empty = !sample->sees_any(row);
    const Known share = empty ? exactly(0) : share_of_keys(*sample, row);
    for (Index c = 0; c < p.value_dim; ++c) {
      experiment.expect_equal("O", {place.batch, row.head, place.position, c}, sample->o(row, c),
                              share, "for V = 1, less the sink's share");
    }
  });
}

std::string unmet_by_identity(const Problem& p, const Inputs& in) {
  if (p.key_len > p.value_dim) return "V has fewer channels than there are keys";
  return unmet_by_dropout(p, in);
}

// V that names its keys gives the rows of P.
void identity_values(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant variant = {p, first.inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  Values& v = variant.inputs.v;
  v = zeros(v.shape);
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.lengths(b).key; ++j) {
      const Place place = p.key_place(b, j);
      for (Index h = 0; h < p.key_heads; ++h) {
        for (Index c = 0; c < p.value_dim; ++c) v.at(place.batch, h, place.position, c) = j == c;
      }
    }
  }
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Result o = (*sample)["O"];
  for_each_query(p, [&](const Position& row, const Place& place) {
    Known sum = exactly(0);
    for (Index c = 0; c < p.value_dim; ++c) {
      const At at = {place.batch, row.head, place.position, c};
      Position key = row;
      key.key = c;
      if (c >= p.lengths(row.batch).key || !sample->sees(key)) {
        experiment.expect_exactly(o, at, 0, "for a key that the row does not see");
      } else if (o.value(at) < 0) {
        experiment.expect_exactly(o, at, 0, "or more, being a share");
      }
      sum = sum + o.at(at);
    }
    if (!sample->sees_any(row) || (p.sink && !sample->has("LSE"))) return;
    experiment.expect_equal("O", {place.batch, row.head, place.position, 0}, sum,
                            share_of_keys(*sample, row), "as the sum of its row of P");
  });
}

// min V <= O <= max V.
void hull(Experiment& experiment) {
  const Sample& sample = experiment.first();
  const Problem& p = sample.problem();
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (!sample.sees_any(row)) return;
    for (Index c = 0; c < p.value_dim; ++c) {
      double low = p.sink ? 0 : HUGE_VAL, high = p.sink ? 0 : -HUGE_VAL;
      Position at = row;
      for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
        if (!sample.sees(at)) continue;
        low = std::min(low, value_of_key(sample, at, c));
        high = std::max(high, value_of_key(sample, at, c));
      }
      const Known o = sample.o(row, c);
      const double nearest = std::clamp(static_cast<double>(o.value), low, high);
      experiment.expect_equal("O", {place.batch, row.head, place.position, c}, o,
                              {nearest, low, high}, "as the nearest that lies among the visible V");
    }
  });
}

// ---- A query of zeros sees all keys alike (LAW-4) ----------------------------------------------

std::string unmet_by_zero_query(const Problem& p, const Inputs& in) {
  if (p.bias_shape || p.slopes_shape) return "a bias tells keys apart";
  if (p.sink) return "a sink takes its share";
  return unmet_by_dropout(p, in);
}

void zero_query(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  for (double& q : variant.inputs.q.data) q = 0;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  for_each_query(p, [&](const Position& row, const Place& place) {
    Index count = 0;
    std::vector<Known> sums(static_cast<std::size_t>(p.value_dim), exactly(0));
    Position at = row;
    for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
      if (!sample->sees(at)) continue;
      ++count;
      for (Index c = 0; c < p.value_dim; ++c) {
        Known& sum = sums[static_cast<std::size_t>(c)];
        sum = sum + exactly(value_of_key(*sample, at, c));
      }
    }
    if (count == 0) return;
    const long double share = 1 / static_cast<long double>(count);
    for (Index c = 0; c < p.value_dim; ++c) {
      experiment.expect_equal("O", {place.batch, row.head, place.position, c}, sample->o(row, c),
                              share * sums[static_cast<std::size_t>(c)],
                              "as the mean of the visible V, for Q = 0");
    }
    if (!sample->has("LSE")) return;
    const long double log = std::log(static_cast<long double>(count));
    experiment.expect_equal("LSE", {place.batch, row.head, place.position, 0}, sample->lse(row),
                            1 * exactly(log), "as the logarithm of the number of keys, for Q = 0");
  });
}

constexpr std::array kLawsOfValues = {
    Law{.name = "linear_values", .unmet = unmet_by_any_v, .check = linear_values},
    Law{.name = "ones", .unmet = unmet_by_dropout, .check = ones},
    Law{.name = "identity_values", .unmet = unmet_by_identity, .check = identity_values},
    Law{.name = "hull", .unmet = unmet_by_dropout, .check = hull},
    Law{.name = "zero_query", .unmet = unmet_by_zero_query, .check = zero_query},
};

}  // namespace

std::span<const Law> laws_of_values() { return kLawsOfValues; }

}  // namespace attest::property
