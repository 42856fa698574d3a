#include "harness/criteria/eager.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/judge/schedule.h"

namespace attest::criteria {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A key that a query sees.
struct Seen {
  Index key;
  float slope = 1;  // of the softcap
  float s = 0;      // its score
  float p = 0;      // its share
  float kept = 1;   // 0 if dropout drops it
};

struct Row {
  std::vector<Seen> seen = {};
  float p_sink = 0;
  float lse = kMinusInfinity;
};

class Eager {
 public:
  Eager(const Problem& problem, const Inputs& inputs)
      : p_(problem),
        in_(inputs),
        keep_scale_(problem.dropout.mode == Dropout::Mode::none
                        ? 1.0F
                        : static_cast<float>(1 / (1 - problem.dropout.probability))),
        scaled_k_(scaled(inputs.k, static_cast<float>(problem.scale))),
        scaled_v_(scaled(inputs.v, keep_scale_)),
        o_(zeros(problem.o_shape())),
        lse_(zeros(problem.lse_shape())) {
    if (!problem.backward) return;
    dq_ = zeros(problem.q_shape());
    dk_ = zeros(problem.k_shape());
    dv_ = zeros(problem.v_shape());
    if (problem.bias_shape) dbias_.resize(inputs.bias.data.size());
    dsink_.resize(inputs.sink.data.size());
  }

  EagerOutputs run() {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) head(b, h);
    }
    EagerOutputs out = {{o_.data, lse_.data}, {}};
    if (!p_.backward) return out;
    // Each query head's share of dK and dV is rounded before the group is added up.
    for (Values* sum : {&dk_, &dv_}) {
      for (double& value : sum->data) value = rounded(static_cast<float>(value));
    }
    const auto all_rounded = [&](const std::vector<float>& sums) {
      std::vector<double> values;
      for (const float sum : sums) values.push_back(rounded(sum));
      return values;
    };
    out.backward = {dq_.data, dk_.data, dv_.data, all_rounded(dbias_), all_rounded(dsink_)};
    return out;
  }

 private:
  float rounded(float value) const { return static_cast<float>(round_to(p_.dtype, value)); }

  float at_query(const Values& tensor, Index b, Index h, Index i, Index c) const {
    const Place place = p_.query_place(b, i);
    return static_cast<float>(tensor.at(place.batch, h, place.position, c));
  }
  float at_key(const Values& tensor, Index b, Index h, Index j, Index c) const {
    const Place place = p_.key_place(b, j);
    return static_cast<float>(tensor.at(place.batch, h / p_.group_size(), place.position, c));
  }
  Values scaled(Values tensor, float factor) const {
    for (double& value : tensor.data) value = rounded(static_cast<float>(value) * factor);
    return tensor;
  }

  void score(const Position& at, Seen& key) const {
    float s = 0;
    for (Index c = 0; c < p_.head_dim; ++c) {
      s += at_query(in_.q, at.batch, at.head, at.query, c) *
           at_key(scaled_k_, at.batch, at.head, at.key, c);
    }
    s = rounded(s);
    if (p_.softcap > 0) {
      const auto cap = static_cast<float>(p_.softcap);
      const float t = rounded(std::tanh(rounded(s / cap)));
      s = rounded(cap * t);
      key.slope = rounded(1 - rounded(t * t));
    }
    if (p_.bias_shape) {
      s = rounded(s + static_cast<float>(in_.bias.data[broadcast_index(in_.bias.shape, at)]));
    }
    if (p_.slopes_shape) {
      const Lengths lengths = p_.lengths(at.batch);
      const Index distance = at.query + (lengths.key - lengths.query) - at.key;
      const auto slope = static_cast<float>(in_.slopes.data[broadcast_index(in_.slopes.shape, at)]);
      s = rounded(s - rounded(slope * static_cast<float>(std::abs(distance))));
    }
    key.s = s;
  }

  Row softmax(Index b, Index h, Index i) const {
    Row row;
    const Lengths lengths = p_.lengths(b);
    if (i >= lengths.query) return row;
    const bool drops = p_.dropout.mode != Dropout::Mode::none;
    const float sink = p_.sink ? static_cast<float>(in_.sink.at(0, h, 0, 0)) : kMinusInfinity;
    float top = sink;
    for (Index j = 0; j < lengths.key; ++j) {
      const Position at = {.batch = b, .head = h, .query = i, .key = j};
      if (!sees(p_, in_, at)) continue;
      Seen key = {.key = j};
      score(at, key);
      key.kept = drops && !in_.keep.at(at) ? 0.0F : 1.0F;
      top = std::max(top, key.s);
      row.seen.push_back(key);
    }
    if (top == kMinusInfinity) return row;
    float sum = 0;
    for (Seen& key : row.seen) {
      key.p = std::exp(key.s - top);
      sum += key.p;
    }
    row.p_sink = std::exp(sink - top);
    sum += row.p_sink;
    for (Seen& key : row.seen) key.p = rounded(key.p / sum);
    row.p_sink = rounded(row.p_sink / sum);
    row.lse = top + std::log(sum);
    return row;
  }

  void head(Index b, Index h) {
    std::vector<float> dk(static_cast<std::size_t>(p_.key_len * p_.head_dim));
    std::vector<float> dv(static_cast<std::size_t>(p_.key_len * p_.value_dim));
    for (Index i = 0; i < p_.stored_queries(b); ++i) {
      const Row row = softmax(b, h, i);
      const Place place = p_.query_place(b, i);
      lse_.at(place.batch, h, place.position, 0) = row.lse;
      for (Index c = 0; c < p_.value_dim; ++c) {
        float o = 0;
        for (const Seen& key : row.seen)
          o += key.p * key.kept * at_key(scaled_v_, b, h, key.key, c);
        o_.at(place.batch, h, place.position, c) = rounded(o);
      }
      if (p_.backward) gradients(b, h, i, row, dk, dv);
    }
    if (!p_.backward) return;
    for (Index j = 0; j < p_.stored_keys(b); ++j) {
      const Place place = p_.key_place(b, j);
      const Index key_head = h / p_.group_size();
      const auto scale = static_cast<float>(p_.scale);
      for (Index c = 0; c < p_.head_dim; ++c) {
        dk_.at(place.batch, key_head, place.position, c) +=
            rounded(rounded(dk[static_cast<std::size_t>(j * p_.head_dim + c)]) * scale);
      }
      for (Index c = 0; c < p_.value_dim; ++c) {
        dv_.at(place.batch, key_head, place.position, c) +=
            rounded(rounded(dv[static_cast<std::size_t>(j * p_.value_dim + c)]) * keep_scale_);
      }
    }
  }

  // What one row adds to the gradients.
  void gradients(Index b, Index h, Index i, const Row& row, std::vector<float>& dk,
                 std::vector<float>& dv) {
    if (row.lse == kMinusInfinity) return;
    std::vector<float> dp;
    float common = 0;
    for (const Seen& key : row.seen) {
      float sum = 0;
      for (Index c = 0; c < p_.value_dim; ++c) {
        const float d_o = at_query(in_.d_o, b, h, i, c);
        sum += d_o * at_key(scaled_v_, b, h, key.key, c);
        dv[static_cast<std::size_t>(key.key * p_.value_dim + c)] += key.p * key.kept * d_o;
      }
      dp.push_back(rounded(sum) * key.kept);
      common += key.p * dp.back();
    }
    const float d_lse = p_.d_lse ? at_query(in_.d_lse, b, h, i, 0) : 0;
    if (p_.sink) {
      dsink_[static_cast<std::size_t>(h)] += rounded(row.p_sink * (d_lse - common));
    }
    std::vector<float> dq(static_cast<std::size_t>(p_.head_dim));
    for (std::size_t n = 0; n < row.seen.size(); ++n) {
      const Seen& key = row.seen[n];
      float ds = rounded(key.p * (dp[n] - common + d_lse));
      if (p_.bias_shape) {
        dbias_[broadcast_index(in_.bias.shape,
                               {.batch = b, .head = h, .query = i, .key = key.key})] += ds;
      }
      if (p_.softcap > 0) ds = rounded(ds * key.slope);
      for (Index c = 0; c < p_.head_dim; ++c) {
        dq[static_cast<std::size_t>(c)] += ds * at_key(scaled_k_, b, h, key.key, c);
        dk[static_cast<std::size_t>(key.key * p_.head_dim + c)] += ds * at_query(in_.q, b, h, i, c);
      }
    }
    const Place place = p_.query_place(b, i);
    for (Index c = 0; c < p_.head_dim; ++c) {
      dq_.at(place.batch, h, place.position, c) = rounded(dq[static_cast<std::size_t>(c)]);
    }
  }

  const Problem& p_;
  const Inputs& in_;
  float keep_scale_;  // 1 / (1 - p) of dropout
  Values scaled_k_, scaled_v_;
  Values o_, lse_, dq_ = {}, dk_ = {}, dv_ = {};
  std::vector<float> dbias_ = {}, dsink_ = {};
};

}  // namespace

EagerOutputs run_eagerly(const Problem& problem, const Inputs& inputs) {
  return Eager(problem, inputs).run();
}

}  // namespace attest::criteria
