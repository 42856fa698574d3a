// What a kernel should return: the exact values, and as the bound of each element a multiple of the
// roundoffs at work times the sum of the magnitudes that enter it. Coarser than the bounds of the
// standard, and independent of them.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "reference/exact.h"
#include "reference/expected.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// Of one visible element of the score matrix.
struct ExpectedWeight {
  Index key;
  Place place;   // of the key
  double p;      // its weight
  double kept;   // keep/(1-p) of dropout
  double slope;  // the derivative of the softcap, at most 1
};

inline PassesExpected expect(const Problem& p, const Inputs& in) {
  using T = long double;
  const auto inputs = exact::inputs_as<T>(in);
  const auto start = [](const exact::Tensor<T>& exact_values) {
    Expected expected;
    for (const T value : exact_values.data) expected.value.push_back(static_cast<double>(value));
    expected.bound.assign(expected.value.size(), 0.0);
    return expected;
  };
  const exact::Outputs<T> outputs = exact::forward(p, inputs);
  PassesExpected out{.forward = {.o = start(outputs.o), .lse = start(outputs.lse)}, .backward = {}};
  if (p.backward) {
    const exact::Gradients<T> gradients = exact::backward(p, inputs);
    out.backward = {.dq = start(gradients.dq),
                    .dk = start(gradients.dk),
                    .dv = start(gradients.dv),
                    .dbias = start(gradients.dbias),
                    .dsink = start(gradients.dsink)};
  }
  const auto at = [](const Shape& shape, Index b, Index h, Index s, Index d) {
    return static_cast<std::size_t>(dense_index(shape, b, h, s, d));
  };
  const Shape bias_shape = p.bias_shape.value_or(Shape{});
  const auto bias_at = [&](Index b, Index h, Index i, Index j) {
    return static_cast<std::size_t>(broadcast_index(bias_shape, b, h, i, j));
  };
  const double u = unit_roundoff(p.dtype), wide = unit_roundoff(p.lse_dtype());
  const double tiny = has_short_range(p.dtype) ? 2 * half_smallest_subnormal(p.dtype) : 0x1p-126;
  const double length = double(p.head_dim + p.value_dim + p.query_len * 4 + p.key_len + 32);
  const double rescale = 1 / (1 - p.dropout.probability);

  for (Index b = 0; b < p.batch; ++b) {
    const Lengths lengths = p.lengths(b);
    for (Index h = 0; h < p.query_heads; ++h) {
      const Index g = h / p.group_size();
      for (Index i = 0; i < lengths.query; ++i) {
        const Place row = p.query_place(b, i);
        const double lse = out.forward.lse.value[at(p.lse_shape(), row.batch, h, row.position, 0)];
        std::vector<ExpectedWeight> weights;
        double most = p.sink ? std::abs(in.sink.at(0, h, 0, 0)) : 0;  // the largest magnitude
        for (Index j = 0; j < lengths.key; ++j) {
          if (!visible(p, {.batch = b, .head = h, .query = i, .key = j})) continue;
          const double bias = p.bias_shape ? in.bias.data[bias_at(b, h, i, j)] : 0;
          if (std::isinf(bias)) continue;
          const Place place = p.key_place(b, j);
          double dot = 0, magnitude = 0;
          for (Index d = 0; d < p.head_dim; ++d) {
            const double product =
                in.q.at(row.batch, h, row.position, d) * in.k.at(place.batch, g, place.position, d);
            dot += p.scale * product;
            magnitude += std::abs(p.scale * product);
          }
          const double tanh = p.softcap > 0 ? std::tanh(dot / p.softcap) : 0;
          double score = (p.softcap > 0 ? p.softcap * tanh : dot) + bias;
          double alibi = 0;
          if (p.slopes_shape) {
            alibi = in.slopes.at(broadcast((*p.slopes_shape)[0], b), h, 0, 0) *
                    static_cast<double>(std::abs(i + lengths.key - lengths.query - j));
          }
          score -= alibi;
          most = std::max(most, magnitude + std::abs(bias) + std::abs(alibi));
          const bool drops = p.dropout.mode != Dropout::Mode::none;
          weights.push_back({.key = j,
                             .place = place,
                             .p = std::exp(score - lse),
                             .kept = !drops                     ? 1
                                     : in.keep.at({b, h, i, j}) ? rescale
                                                                : 0,
                             .slope = 1 - tanh * tanh});
        }
        // The relative error of a weight: of its score, of the sum, of its own rounding.
        const double score_error = 8 * wide * length * (1 + most);
        const double error = score_error + 4 * u;
        out.forward.lse.bound[at(p.lse_shape(), row.batch, h, row.position, 0)] = score_error;
        double delta_magnitude = 0;
        for (Index c = 0; c < p.value_dim; ++c) {
          const auto o = at(p.o_shape(), row.batch, h, row.position, c);
          for (const ExpectedWeight& w : weights) {
            const double v = std::abs(in.v.at(w.place.batch, g, w.place.position, c));
            out.forward.o.bound[o] += rescale * (w.p * error + tiny) * v;
            if (p.backward) delta_magnitude += std::abs(in.d_o.data[o]) * w.p * w.kept * v;
          }
          out.forward.o.bound[o] += tiny;
        }
        if (!p.backward) continue;
        const double d_lse = p.d_lse ? std::abs(in.d_lse.at(row.batch, h, row.position, 0)) : 0;
        for (const ExpectedWeight& w : weights) {
          double dp_magnitude = 0;
          for (Index c = 0; c < p.value_dim; ++c) {
            const double d_o = std::abs(in.d_o.at(row.batch, h, row.position, c));
            dp_magnitude += d_o * w.kept * std::abs(in.v.at(w.place.batch, g, w.place.position, c));
            out.backward.dv.bound[at(p.v_shape(), w.place.batch, g, w.place.position, c)] +=
                rescale * (w.p * error + tiny) * d_o + tiny;
          }
          const double ds_error =
              (w.p * error + tiny) * (1 + dp_magnitude + delta_magnitude + d_lse) + tiny;
          for (Index d = 0; d < p.head_dim; ++d) {
            const auto q = at(p.q_shape(), row.batch, h, row.position, d);
            const auto k = at(p.k_shape(), w.place.batch, g, w.place.position, d);
            out.backward.dq.bound[q] += std::abs(p.scale * in.k.data[k]) * ds_error + tiny;
            out.backward.dk.bound[k] += std::abs(p.scale * in.q.data[q]) * ds_error + tiny;
          }
          if (p.bias_shape) out.backward.dbias.bound[bias_at(b, h, i, w.key)] += ds_error + tiny;
        }
        if (p.sink) {
          const double share = std::exp(in.sink.at(0, h, 0, 0) - lse);
          out.backward.dsink.bound[static_cast<std::size_t>(h)] +=
              (share * error + tiny) * (1 + delta_magnitude + d_lse);
        }
      }
    }
  }
  return out;
}

}  // namespace attest
