#include "harness/diagnosis/altered.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/diagnosis/setting.h"
#include "reference/working.h"

namespace attest {
namespace {

// A key head for each query head.
Setting with_own_key_heads(const Setting& setting) {
  Setting own = setting;
  own.problem.key_heads = setting.problem.query_heads;
  const auto spread = [&](const Values& values) {
    Shape shape = values.shape;
    shape[kHead] = setting.problem.query_heads;
    Values result = zeros(shape);
    for (Index at = 0; at < element_count(shape); ++at) {
      const auto [b, h, s, d] = coordinates(shape, at);
      result.data[static_cast<std::size_t>(at)] =
          values.at(b, setting.key_head[static_cast<std::size_t>(h)], s, d);
    }
    return result;
  };
  own.inputs.k = spread(setting.inputs.k);
  own.inputs.v = spread(setting.inputs.v);
  return own;
}

// The gradients of a key head: the sum of those of the query heads that add to it.
Expected gathered(const Expected& own, const Setting& setting, Shape shape) {
  Expected sum;
  sum.value.assign(static_cast<std::size_t>(element_count(shape)), 0);
  sum.bound = sum.value;
  Shape spread = shape;
  spread[kHead] = setting.problem.query_heads;
  for (Index at = 0; at < element_count(spread); ++at) {
    const auto [b, h, s, d] = coordinates(spread, at);
    const auto head = static_cast<std::size_t>(h);
    const auto into = static_cast<std::size_t>(dense_index(shape, b, setting.key_head[head], s, d));
    // Rounding their sum: a step for each head.
    sum.bound[into] += 2 * own.bound[static_cast<std::size_t>(at)];
    if (!setting.adds.empty() && !setting.adds[head]) continue;
    sum.value[into] += own.value[static_cast<std::size_t>(at)];
  }
  return sum;
}

// What one row of the backward pass needs.
struct BackwardRow {
  Index b, h, i;
  long double lse, delta, d_lse;
};

class GivenForward {
 public:
  GivenForward(const Setting& setting, const ForwardExpected& right)
      : setting_(setting), p_(setting.problem), in_(setting.inputs), right_(right) {
    for (const auto& [tensor, shape] : {std::pair{TensorName::dq, p_.q_shape()},
                                        {TensorName::dk, p_.k_shape()},
                                        {TensorName::dv, p_.v_shape()}}) {
      values_[tensor] = zeros(shape);
    }
    if (p_.bias_shape) values_[TensorName::dbias] = zeros(*p_.bias_shape);
    if (p_.sink) values_[TensorName::dsink] = zeros(p_.sink_shape());
  }

  std::map<TensorName, Values> gradients() {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < p_.lengths(b).query; ++i) add_row(row(b, h, i));
      }
    }
    return std::move(values_);
  }

 private:
  BackwardRow row(Index b, Index h, Index i) const {
    const Place at = p_.query_place(b, i);
    const Shape rows = p_.lse_shape();
    const auto n = static_cast<std::size_t>(dense_index(rows, at.batch, h, at.position, 0));
    BackwardRow row = {b, h, i, right_.lse.value[n], 0, p_.d_lse ? in_.d_lse.data[n] : 0};
    for (Index c = 0; c < p_.value_dim; ++c) {
      row.delta +=
          static_cast<long double>(in_.d_o.at(at.batch, h, at.position, c)) *
          right_.o.value[n * static_cast<std::size_t>(p_.value_dim) + static_cast<std::size_t>(c)];
    }
    return row;
  }

  void add_row(const BackwardRow& row) {
    if (p_.sink && std::isfinite(row.lse)) {
      double& sum = values_[TensorName::dsink].data[static_cast<std::size_t>(row.h)];
      const long double share = std::exp(in_.sink.data[static_cast<std::size_t>(row.h)] - row.lse);
      sum -= static_cast<double>(share * (row.delta - row.d_lse));
    }
    for (Index j = 0; j < p_.lengths(row.b).key; ++j) {
      const Position at = {row.b, row.h, row.i, j};
      if (visible(p_, at)) add_pair(row, at);
    }
  }

  void add_pair(const BackwardRow& row, const Position& at) {
    const Place query = p_.query_place(at.batch, at.query), key = p_.key_place(at.batch, at.key);
    const auto head = static_cast<std::size_t>(at.head);
    const Index key_head =
        setting_.key_head.empty() ? at.head / p_.group_size() : setting_.key_head[head];
    const bool adds = setting_.adds.empty() || setting_.adds[head];
    const Score score = score_of(setting_, at);
    if (score.whole() == -kInfinite) return;
    const long double weight = std::exp(score.whole() - row.lse);
    long double keep = 1;
    if (p_.dropout.mode != Dropout::Mode::none) {
      keep = in_.keep.at(at) ? 1 / (1 - static_cast<long double>(p_.dropout.probability)) : 0;
    }
    long double d_weight = 0;
    for (Index c = 0; c < p_.value_dim; ++c) {
      const double upstream = in_.d_o.at(query.batch, at.head, query.position, c);
      d_weight +=
          static_cast<long double>(upstream) * in_.v.at(key.batch, key_head, key.position, c);
      if (adds) {
        values_[TensorName::dv].at(key.batch, key_head, key.position, c) +=
            static_cast<double>(weight * keep * upstream);
      }
    }
    const long double ds = weight * (d_weight * keep - row.delta + row.d_lse);
    if (p_.bias_shape) {
      values_[TensorName::dbias].data[broadcast_element(*p_.bias_shape, at)] +=
          static_cast<double>(ds);
    }
    long double slope = 1;
    if (p_.softcap > 0) slope = 1 - std::pow(score.capped / p_.softcap, 2.0L);
    const long double product = ds * slope * p_.scale;
    for (Index d = 0; d < p_.head_dim; ++d) {
      values_[TensorName::dq].at(query.batch, at.head, query.position, d) +=
          static_cast<double>(product * in_.k.at(key.batch, key_head, key.position, d));
      if (adds) {
        values_[TensorName::dk].at(key.batch, key_head, key.position, d) +=
            static_cast<double>(product * in_.q.at(query.batch, at.head, query.position, d));
      }
    }
  }

  const Setting& setting_;
  const Problem& p_;
  const Inputs& in_;
  const ForwardExpected& right_;
  std::map<TensorName, Values> values_;
};

}  // namespace

ExpectedByName expect_altered(const Setting& setting, const Arithmetic& arithmetic) {
  const bool own = !setting.key_head.empty();
  const Setting spread = own ? with_own_key_heads(setting) : Setting{};
  const Setting& used = own ? spread : setting;
  ExpectedByName expected;
  if (!used.problem.backward) {
    ForwardExpected forward = expect_forward(used.problem, used.inputs, arithmetic);
    expected[TensorName::o] = std::move(forward.o);
    expected[TensorName::lse] = std::move(forward.lse);
    return expected;
  }
  PassesExpected passes = expect_passes(used.problem, used.inputs, arithmetic);
  for (const TensorName tensor : kReturnedTensors) expected[tensor] = std::move(passes[tensor]);
  if (own) {
    expected[TensorName::dk] =
        gathered(expected[TensorName::dk], setting, setting.problem.k_shape());
    expected[TensorName::dv] =
        gathered(expected[TensorName::dv], setting, setting.problem.v_shape());
  }
  return expected;
}

ExpectedByName expect_altered_backward(const Setting& setting, const ForwardExpected& right,
                                       bool takes_lse, const Arithmetic& arithmetic) {
  ExpectedByName expected = expect_altered(setting, arithmetic);
  ForwardExpected given = right;
  if (!takes_lse) given.lse = expected[TensorName::lse];
  // Weights are as much larger as the LSE that they are made with is too small.
  const auto& own_lse = expected[TensorName::lse].value;
  double larger = 1;
  for (std::size_t row = 0; row < own_lse.size() && row < given.lse.value.size(); ++row) {
    const double rise = own_lse[row] - given.lse.value[row];
    if (std::isfinite(rise)) larger = std::max(larger, std::exp(rise));
  }
  for (auto& [tensor, values] : GivenForward(setting, given).gradients()) {
    Expected& each = expected[tensor];
    if (each.value.size() != values.data.size()) continue;
    for (std::size_t at = 0; at < each.value.size(); ++at) {
      if (!std::isnan(each.value[at])) each.value[at] = values.data[at];
      each.bound[at] *= 2 * larger;
    }
    each.rest.clear();
  }
  return expected;
}

}  // namespace attest
