// What makes the scores: the bias that a row shares (LAW-2), the scale (LAW-5), sinks (LAW-11),
// ALiBi (LAW-12), a softcap that caps nothing (LAW-13).
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

// ---- A bias constant over a row (LAW-2) --------------------------------------------------------

std::string unmet_by_row_bias(const Problem& p, const Inputs&) {
  if (!p.bias_shape) return "there is no bias";
  if (p.sink) return "a sink does not move with the bias";
  return "";
}

void row_bias(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant plain = {p, first.inputs()};
  plain.inputs.bias = coarse(plain.inputs.bias);
  const auto added = [](Index b, Index h, Index i) {
    return static_cast<double>((3 * b + 5 * h + 7 * i) % 9 - 4);
  };
  Variant moved = plain;
  moved.inputs.bias = tabulated(plain.inputs.bias.shape, [&](Index b, Index h, Index i, Index j) {
    return plain.inputs.bias.at(b, h, i, j) + added(b, h, i);
  });
  const Sample* before = experiment.attempt(std::move(plain));
  const Sample* after = before ? experiment.attempt(std::move(moved)) : nullptr;
  if (!after) return;
  const std::string how = "with a constant added to each row of the bias";
  for (const TensorName tensor : kReturnedTensors) {
    if (tensor != TensorName::lse) experiment.expect_same(*before, *after, tensor, how);
  }
  if (!after->has(TensorName::lse)) return;
  const Shape& shape = *p.bias_shape;
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (!first.sees_any(row)) return;
    const double constant = added(broadcast(shape[0], row.batch), broadcast(shape[1], row.head),
                                  broadcast(shape[2], row.query));
    experiment.expect_equal(TensorName::lse, {place.batch, row.head, place.position, 0},
                            before->lse(row) + exactly(constant), after->lse(row), how);
  });
}

// ---- A power of four between scale and Q (LAW-5) -----------------------------------------------

// Nothing may underflow or overflow on the way, whether q, k or both are scaled, by the scale or by
// its root, and whether they are rounded to the format after that; nor may a sum of products, whose
// terms are multiples of the last digits of both factors.
std::string unmet_by_rescaled_query(const Problem& p, const Inputs& in) {
  const double tau = std::abs(p.scale);
  if (tau == 0) return "the scale is 0";
  const Format format = format_of(p.dtype);
  const bool f64 = p.dtype == DType::f64;
  const double least = std::min({1.0, tau / 8, std::sqrt(tau) / 4});
  const double most = 16 * std::max({1.0, tau, std::sqrt(tau)});
  double smallest = 1, largest = 0;
  for (const Values* values : {&in.q, &in.k}) {
    for (const double x : values->data) {
      if (x != 0) smallest = std::min(smallest, std::abs(x));
      largest = std::max(largest, std::abs(x));
    }
  }
  const double underflow = smallest_normal(f64 ? DType::f64 : DType::f32);
  const double digits = std::ldexp(1.0, -2 * format.digits - 8);
  const double cap = std::max(1.0, p.softcap);
  if (smallest * least < smallest_normal(p.dtype) ||
      smallest * smallest * least * digits / cap < underflow) {
    return "what is scaled may underflow";
  }
  if (largest * most > largest_finite(p.dtype) / 4) return "what is scaled may overflow";
  return "";
}

// Whether a score that is stored before it is scaled has the same digits as four times that: each
// is 0 for certain, or as far from the least normal number as from the largest one. A sum of
// products may be far smaller than all of them.
bool stored_scores_are_normal(const Sample& sample) {
  const Problem& p = sample.problem();
  const Values &q = sample.inputs().q, &k = sample.inputs().k;
  const double least = smallest_normal(p.dtype), most = largest_finite(p.dtype) / 4;
  bool normal = true;
  for_each_query(p, [&](const Position& row, const Place& query) {
    for (Position at = row; at.key < p.lengths(row.batch).key; ++at.key) {
      if (!normal || !sample.sees(at)) continue;
      const Place key = p.key_place(at.batch, at.key);
      double score = 0, size = 0;
      bool whole = true;  // sums of whole numbers below 2^24 have no error
      for (Index d = 0; d < p.head_dim; ++d) {
        const double product = q.at(query.batch, at.head, query.position, d) *
                               k.at(key.batch, at.head / p.group_size(), key.position, d);
        score += product;
        size += std::abs(product);
        whole &= product == std::floor(product);
      }
      const double error =
          whole && size < 0x1p24 ? 0 : static_cast<double>(p.head_dim) * 0x1p-23 * size;
      const bool is_zero = score == 0 && error == 0;
      normal = is_zero || (std::abs(score) - error >= least && size < most);
    }
  });
  return normal;
}

void rescaled_query(Experiment& experiment) {
  const Sample& first = experiment.first();
  if (experiment.stores_scores() && (first.is_long() || !stored_scores_are_normal(first))) return;
  Variant variant = {first.problem(), first.inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  variant.problem.scale /= 4;
  for (double& q : variant.inputs.q.data) q *= 4;
  const Sample* other = experiment.attempt(std::move(variant));
  if (!other) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(first, *other, tensor, "with 4 Q and a quarter of the scale", true);
  }
}

// ---- A sink is a key without a value (LAW-11) --------------------------------------------------

std::string unmet_by_sink_as_key(const Problem& p, const Inputs&) {
  if (!p.sink) return "there is no sink";
  if (p.packed || p.paging.page_size > 0) return "keys are packed or paged";
  if (!p.key_lens.empty()) return "the batch elements have lengths of their own";
  if (p.slopes_shape) return "ALiBi counts from the end of the keys";
  return "";
}

void sink_as_key(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant with_sink = {p, first.inputs()};
  // A bias is kept in the format, a sink in f32.
  for (double& sink : with_sink.inputs.sink.data) sink = round_to(p.dtype, sink);

  const Index keys = p.key_len;
  const Selection selection = {.query_len = p.query_len, .key_len = keys + 1};
  Mask mask = mask_of(p, selection);
  if (mask.kind == Mask::Kind::dense) {
    DenseMask table = *mask.table;
    const auto row = static_cast<std::size_t>(keys + 1);
    for (std::size_t n = row - 1; n < table.allowed.size(); n += row) table.allowed[n] = 1;
    mask = Mask::dense(std::move(table));
  }
  Variant with_key = selected(p, with_sink.inputs, selection, mask);
  with_key.problem.sink = false;
  with_key.problem.bias_shape = with_key.problem.keep_shape();
  with_key.inputs.bias =
      tabulated(*with_key.problem.bias_shape, [&](Index b, Index h, Index i, Index j) {
        if (j == keys) return with_sink.inputs.sink.at(0, h, 0, 0);
        if (!p.bias_shape) return 0.0;
        const Position at = {.batch = b, .head = h, .query = i, .key = j};
        return first.inputs().bias.data[broadcast_index(*p.bias_shape, at)];
      });
  const Sample* sink = experiment.attempt(std::move(with_sink));
  const Sample* key = sink ? experiment.attempt(std::move(with_key)) : nullptr;
  if (!key) return;
  const std::string how = "with one more key of that score, whose V is 0, for the sink";
  experiment.expect_same_rows(*sink, *key, same_place, how);
  const auto but_the_last = [&](Index b, Index j) {
    return j < keys ? std::optional(Place{b, j}) : std::nullopt;
  };
  experiment.expect_same_keys(*sink, *key, but_the_last, how);
  if (!key->has(TensorName::dbias)) return;
  const Result dbias = (*key)[TensorName::dbias], dsink = (*sink)[TensorName::dsink];
  for (Index h = 0; h < p.query_heads; ++h) {
    Known sum = exactly(0);
    for (Index b = 0; b < p.batch; ++b) {
      for (Index i = 0; i < p.query_len; ++i) sum = sum + dbias.at({b, h, i, keys});
    }
    experiment.expect_equal(TensorName::dsink, {0, h, 0, 0}, dsink.at({0, h, 0, 0}), sum,
                            "as the sum of dBias " + how);
  }
}

// ---- ALiBi is a bias (LAW-12) ------------------------------------------------------------------

constexpr Index kFarthestDistance = 255;  // that has 8 digits

std::string unmet_by_alibi_as_bias(const Problem& p, const Inputs&) {
  if (!p.slopes_shape) return "there is no ALiBi";
  if (p.bias_shape) return "there is a bias already, and their sum may have to be rounded";
  if (p.query_len + p.key_len > kFarthestDistance) return "the format may not hold a distance";
  return "";
}

void alibi_as_bias(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  // Slopes that are powers of two, so that the bias need not be rounded.
  Variant sloped = {p, first.inputs()};
  Values& slopes = sloped.inputs.slopes;
  slopes = tabulated(slopes.shape, [](Index b, Index h, Index, Index) {
    return std::ldexp(1.0, -1 - static_cast<int>((b + h) % 6));
  });
  Variant biased = sloped;
  biased.problem.slopes_shape.reset();
  biased.problem.bias_shape = p.keep_shape();
  biased.inputs.slopes = {};
  biased.inputs.bias = tabulated(p.keep_shape(), [&](Index b, Index h, Index i, Index j) {
    const Lengths lengths = p.lengths(b);
    const Index distance = std::abs(i + lengths.key - lengths.query - j);
    return -slopes.at(broadcast(slopes.shape[0], b), h, 0, 0) * static_cast<double>(distance);
  });
  const Sample* alibi = experiment.attempt(std::move(sloped));
  const Sample* bias = alibi ? experiment.attempt(std::move(biased)) : nullptr;
  if (!bias) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(*alibi, *bias, tensor, "with that bias for ALiBi");
  }
}

// ---- A softcap far above the scores is none (LAW-13) -------------------------------------------

std::string unmet_by_huge_softcap(const Problem& p, const Inputs&) {
  return p.softcap != 0 ? "there is a softcap" : "";
}

void huge_softcap(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant variant = {first.problem(), first.inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  const double cap = variant.problem.softcap = 0x1p26;
  const Sample* capped = experiment.attempt(std::move(variant));
  if (!capped) return;
  const Problem& p = first.problem();
  const Inputs& in = first.inputs();
  for_each_query(p, [&](const Position& row, const Place& place) {
    // How far the cap moves a score of the row at most, and how large its values are.
    long double largest = 0, value = 0;
    Position at = row;
    for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
      if (!first.sees(at)) continue;
      const Place key = p.key_place(row.batch, at.key);
      const Index head = row.head / p.group_size();
      long double size = 0;
      for (Index c = 0; c < p.head_dim; ++c) {
        size += std::abs(in.q.at(place.batch, row.head, place.position, c)) *
                std::abs(static_cast<long double>(in.k.at(key.batch, head, key.position, c)));
      }
      largest = std::max(largest, size * std::abs(p.scale));
      for (Index c = 0; c < p.value_dim; ++c) {
        value = std::max<long double>(value, std::abs(in.v.at(key.batch, head, key.position, c)));
      }
    }
    const long double moved = largest * largest * largest / (3.0L * cap * cap) * 1.01L;
    const long double slack = std::expm1(2 * moved) * value / (1 - p.dropout.probability) * 1.01L;
    const std::string how = "without the softcap";
    for (Index c = 0; c < p.value_dim; ++c) {
      experiment.expect_equal(TensorName::o, {place.batch, row.head, place.position, c},
                              widened(capped->o(row, c), slack), first.o(row, c), how);
    }
    if (!capped->has(TensorName::lse)) return;
    experiment.expect_equal(TensorName::lse, {place.batch, row.head, place.position, 0},
                            widened(capped->lse(row), moved), first.lse(row), how);
  });
}

constexpr std::array kLawsOfScores = {
    Law{.name = "row_bias", .unmet = unmet_by_row_bias, .check = row_bias},
    Law{.name = "rescaled_query",
        .unmet = unmet_by_rescaled_query,
        .check = rescaled_query,
        .needs_determinism = true},
    Law{.name = "sink_as_key", .unmet = unmet_by_sink_as_key, .check = sink_as_key},
    Law{.name = "alibi_as_bias", .unmet = unmet_by_alibi_as_bias, .check = alibi_as_bias},
    Law{.name = "huge_softcap", .unmet = unmet_by_huge_softcap, .check = huge_softcap},
};

}  // namespace

std::span<const Law> laws_of_scores() { return kLawsOfScores; }

}  // namespace attest::laws
