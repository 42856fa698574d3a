// Attention in double, straight from the formulas, with for each element a tolerance: a multiple of
// the roundoffs at work times the sum of the magnitudes that enter it. Coarser than the bounds of
// the standard, and independent of them.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

struct Expected {
  std::vector<double> value, tolerance;
};

struct ExpectedOutputs {
  Expected o, lse, dq, dk, dv;
};

inline ExpectedOutputs expect(const Problem& p, const Inputs& in) {
  const auto zeros = [](const Shape& shape) {
    const std::vector<double> none(static_cast<std::size_t>(element_count(shape)), 0.0);
    return Expected{none, none};
  };
  const auto at = [](const Shape& shape, Index b, Index h, Index s, Index d) {
    return static_cast<std::size_t>(dense_index(shape, b, h, s, d));
  };
  ExpectedOutputs out{zeros(p.o_shape()), zeros(p.lse_shape()), zeros(p.q_shape()),
                      zeros(p.k_shape()), zeros(p.v_shape())};
  const double u = unit_roundoff(p.dtype), wide = unit_roundoff(p.lse_dtype());
  const double tiny = p.dtype == DType::f16 ? 0x1p-24 : 0x1p-126;
  const double length = double(p.head_dim + p.value_dim + p.query_len * 4 + p.key_len + 32);

  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      const Index g = h / p.group_size();
      for (Index i = 0; i < p.query_len; ++i) {
        std::vector<Index> keys;
        std::vector<double> score;
        double most = 0, max = -std::numeric_limits<double>::infinity();
        for (Index j = 0; j < p.key_len; ++j) {
          if (!visible(p, {.batch = b, .head = h, .query = i, .key = j})) continue;
          double dot = 0, magnitude = 0;
          for (Index d = 0; d < p.head_dim; ++d) {
            const double product =
                in.q.data[at(p.q_shape(), b, h, i, d)] * in.k.data[at(p.k_shape(), b, g, j, d)];
            dot += product;
            magnitude += std::abs(product);
          }
          keys.push_back(j);
          score.push_back(p.scale * dot);
          max = std::max(max, score.back());
          most = std::max(most, std::abs(p.scale) * magnitude);
        }
        double sum = 0;
        for (const double s : score) sum += std::exp(s - max);
        const double lse = max + std::log(sum);
        const auto row = at(p.lse_shape(), b, h, i, 0);
        out.lse.value[row] = keys.empty() ? -std::numeric_limits<double>::infinity() : lse;
        // The relative error of a weight: of its score, of the sum, of its own rounding.
        const double score_error = 8 * wide * length * (1 + most);
        out.lse.tolerance[row] = score_error;
        const double error = score_error + 4 * u;
        std::vector<double> weight;
        for (const double s : score) weight.push_back(std::exp(s - lse));
        for (Index c = 0; c < p.value_dim; ++c) {
          const auto o = at(p.o_shape(), b, h, i, c);
          for (std::size_t n = 0; n < keys.size(); ++n) {
            const double v = in.v.data[at(p.v_shape(), b, g, keys[n], c)];
            out.o.value[o] += weight[n] * v;
            out.o.tolerance[o] += (weight[n] * error + tiny) * std::abs(v);
          }
          out.o.tolerance[o] += tiny;
        }
        if (!p.backward) continue;
        double delta = 0, delta_magnitude = 0;
        for (Index c = 0; c < p.value_dim; ++c) {
          const auto o = at(p.o_shape(), b, h, i, c);
          delta += in.d_o.data[o] * out.o.value[o];
          for (std::size_t n = 0; n < keys.size(); ++n) {
            delta_magnitude +=
                std::abs(in.d_o.data[o] * weight[n] * in.v.data[at(p.v_shape(), b, g, keys[n], c)]);
          }
        }
        for (std::size_t n = 0; n < keys.size(); ++n) {
          double dp = 0, dp_magnitude = 0;
          for (Index c = 0; c < p.value_dim; ++c) {
            const auto o = at(p.o_shape(), b, h, i, c), v = at(p.v_shape(), b, g, keys[n], c);
            dp += in.d_o.data[o] * in.v.data[v];
            dp_magnitude += std::abs(in.d_o.data[o] * in.v.data[v]);
            out.dv.value[v] += weight[n] * in.d_o.data[o];
            out.dv.tolerance[v] += (weight[n] * error + tiny) * std::abs(in.d_o.data[o]) + tiny;
          }
          const double ds = weight[n] * (dp - delta);
          const double ds_error =
              (weight[n] * error + tiny) * (1 + dp_magnitude + delta_magnitude) + tiny;
          for (Index d = 0; d < p.head_dim; ++d) {
            const auto q = at(p.q_shape(), b, h, i, d), k = at(p.k_shape(), b, g, keys[n], d);
            out.dq.value[q] += p.scale * ds * in.k.data[k];
            out.dq.tolerance[q] += std::abs(p.scale * in.k.data[k]) * ds_error + tiny;
            out.dk.value[k] += p.scale * ds * in.q.data[q];
            out.dk.tolerance[k] += std::abs(p.scale * in.q.data[q]) * ds_error + tiny;
          }
        }
      }
    }
  }
  return out;
}

}  // namespace attest
