// Gradients: linear in the loss (LAW-14), and what they add up to (LAW-15).
#include <array>

#include "harness/property/law.h"
#include "harness/property/variant.h"

namespace attest::property {
namespace {

constexpr std::array<const char*, 5> kGradients = {"dQ", "dK", "dV", "dBias", "dSink"};

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
  for (const char* tensor : kGradients) {
    if (!sum->has(tensor)) continue;
    const Result of_sum = (*sum)[tensor], of_a = (*a)[tensor], of_b = (*b)[tensor];
    for (Index n = 0; n < element_count(of_sum.shape()); ++n) {
      const At at = coordinates(of_sum.shape(), n);
      experiment.expect_equal(tensor, at, of_sum.at(at), of_a.at(at) + -2 * of_b.at(at),
                              "of one loss less twice another, for that loss");
    }
  }
}

// A loss that does not depend on O gives V no gradient; none at all gives no gradient.
void zero_loss(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  for (double& x : variant.inputs.d_o.data) x = 0;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  for (const char* tensor : kGradients) {
    if (!sample->has(tensor)) continue;
    if (sample->problem().d_lse && std::string(tensor) != "dV") continue;
    const Result gradient = (*sample)[tensor];
    for (Index n = 0; n < element_count(gradient.shape()); ++n) {
      const At at = coordinates(gradient.shape(), n);
      if (gradient.at(at).tells_nothing()) continue;  // 0 times an O that overflowed
      experiment.expect_exactly(gradient, at, 0, "for dO = 0");
    }
  }
}

// ---- Sums (LAW-15) -----------------------------------------------------------------------------

// Adds up a tensor over the positions of the keys of one batch element and key head.
Known sum_over_keys(const Sample& sample, const char* tensor, Index b, Index h, Index c) {
  const Problem& p = sample.problem();
  const Result result = sample[tensor];
  Known sum = exactly(0);
  for (Index j = 0; j < p.lengths(b).key; ++j) {
    const Place place = p.key_place(b, j);
    sum = sum + result.at({place.batch, h, place.position, c});
  }
  return sum;
}

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
        experiment.expect_equal("dV", {b, h, 0, c}, sum_over_keys(first, "dV", b, h, c),
                                loss[static_cast<std::size_t>(c)],
                                "as the sum of dO, for that of all keys from here");
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
        experiment.expect_equal("dK", {b, h, 0, c},
                                sum_over_keys(experiment.first(), "dK", b, h, c), exactly(0),
                                "for the sum of all keys from here");
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
  const Result dbias = first["dBias"];
  const Shape& shape = dbias.shape();
  Shape sums_shape = shape;
  sums_shape[3] = 1;
  const auto count = static_cast<std::size_t>(element_count(sums_shape));
  std::vector<Known> rows(count, exactly(0));
  const auto axis = [&](std::size_t n, Index position) { return shape[n] == 1 ? 0 : position; };
  if (p.sink && !first.has("LSE")) return;
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
        dense_index(sums_shape, axis(0, row.batch), axis(1, row.head), axis(2, row.query), 0))];
    total = total + sum;
  });
  for (std::size_t n = 0; n < count; ++n) {
    At at = coordinates(sums_shape, static_cast<Index>(n));
    Known sum = exactly(0);
    for (at[3] = 0; at[3] < shape[3]; ++at[3]) sum = sum + dbias.at(at);
    at[3] = 0;
    experiment.expect_equal("dBias", at, sum, rows[n],
                            "as what its row adds up to, for the sum of all keys from here");
  }
  if (!p.sink || shape[1] == 1) return;
  // What the logits of a head have in common moves LSE alone.
  const Result dsink = first["dSink"];
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
    experiment.expect_equal("dSink", {0, h, 0, 0}, logits, loss,
                            "as the sum of dLSE, for that of dSink and the head's dBias");
  }
}

constexpr std::array kLawsOfGradients = {
    Law{.name = "linear_gradient", .unmet = unmet_by_gradients, .check = linear_gradient},
    Law{.name = "zero_loss", .unmet = unmet_by_gradients, .check = zero_loss},
    Law{.name = "value_sums", .unmet = unmet_by_value_sums, .check = value_sums},
    Law{.name = "key_sums", .unmet = unmet_by_key_sums, .check = key_sums},
    Law{.name = "logit_sums", .unmet = unmet_by_logit_sums, .check = logit_sums},
};

}  // namespace

std::span<const Law> laws_of_gradients() { return kLawsOfGradients; }

}  // namespace attest::property
