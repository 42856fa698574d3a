// The honest kernel: sums in double, results rounded once.
#include "tests/hacks/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attest::hacks {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

Dense<float> changed(const Tensor& from, const Way& way) {
  Dense<float> numbers = gather<float>(from);
  for (Index n = 0; way.number && n < numbers.size(); ++n) {
    numbers.data()[n] = way.number(numbers.data()[n]);
  }
  return numbers;
}

// One row of weights, not normalised, and what they come to.
struct Weights {
  std::vector<double> of_key;
  double top = kNothing, sum = 0;

  // Of scores. Without a shift, what is too large for exp becomes infinite.
  Weights(std::vector<double> scores, const Way& way) : of_key(std::move(scores)) {
    for (const double s : of_key) top = std::max(top, s);
    if (!way.shifts) top = top == kNothing ? kNothing : 0;
    for (double& s : of_key) {
      const double below = s - top;
      s = below < -way.depth ? 0 : way.exponential ? way.exponential(below) : std::exp(below);
      sum += s;
    }
  }
};

}  // namespace

Result attend(const Call& c, const Way& way) {
  const Problem& p = c.problem;
  const Dense<float> q = changed(c.q, way), k = changed(c.k, way), v = changed(c.v, way);
  const double scale = way.scale != 0 ? way.scale : p.scale;
  Result result(c);
  for (Index row = 0; row < p.batch * p.query_heads * p.query_len; ++row) {
    const Index i = row % p.query_len, head = row / p.query_len % p.query_heads;
    const Index b = row / p.query_len / p.query_heads;
    if (i >= way.rows || row % way.parts != way.part) continue;
    if (way.one_head && head > 0) {
      for (Index d = 0; d < p.value_dim; ++d) result.o(b, head, i, d) = result.o(b, 0, i, d);
      result.lse(b, head, i, 0) = result.lse(b, 0, i, 0);
      continue;
    }
    const Index g = p.key_head(head);
    const Keys keys = way.keys ? way.keys(p.keys(b, i)) : p.keys(b, i);
    std::vector<double> scores;
    for (Index j = keys.begin; j < keys.end; ++j) {
      double dot = 0;
      for (Index d = 0; d < p.head_dim; ++d) dot += double(q(b, head, i, d)) * k(b, g, j, d);
      scores.push_back(dot * scale);
    }
    const Weights weights(std::move(scores), way);
    const bool empty = keys.size() <= 0;
    result.lse(b, head, i, 0) =
        static_cast<float>(empty ? kNothing : weights.top + std::log(weights.sum));
    for (Index d = 0; d < p.value_dim; ++d) {
      double sum = 0;
      for (Index j = keys.begin; j < keys.end; ++j) {
        sum += weights.of_key[static_cast<std::size_t>(j - keys.begin)] * v(b, g, j, d);
      }
      result.o(b, head, i, d) = static_cast<float>(empty ? 0 : sum / weights.sum);
    }
  }
  return result;
}

void store(const Result& result, const Call& c) {
  scatter(result.o, c.o);
  scatter(result.lse, c.lse);
}

void backward(const Call& c) {
  const Problem& p = c.problem;
  const auto q = gather<double>(c.q), k = gather<double>(c.k), v = gather<double>(c.v);
  const auto o = gather<double>(c.o), lse = gather<double>(c.lse), d_o = gather<double>(c.d_o);
  auto dq = dense<double>(c.dq), dk = dense<double>(c.dk), dv = dense<double>(c.dv);
  for (Index row = 0; row < p.batch * p.query_heads * p.query_len; ++row) {
    const Index i = row % p.query_len, h = row / p.query_len % p.query_heads;
    const Index b = row / p.query_len / p.query_heads, g = p.key_head(h);
    double mean = 0;  // of dP, weighted by P
    for (Index d = 0; d < p.value_dim; ++d) mean += d_o(b, h, i, d) * o(b, h, i, d);
    const Keys keys = p.keys(b, i);
    for (Index j = keys.begin; j < keys.end; ++j) {
      double dot = 0, dp = 0;
      for (Index d = 0; d < p.head_dim; ++d) dot += q(b, h, i, d) * k(b, g, j, d);
      for (Index d = 0; d < p.value_dim; ++d) dp += d_o(b, h, i, d) * v(b, g, j, d);
      const double weight = std::exp(dot * p.scale - lse(b, h, i, 0));
      const double ds = weight * (dp - mean) * p.scale;
      for (Index d = 0; d < p.value_dim; ++d) dv(b, g, j, d) += weight * d_o(b, h, i, d);
      for (Index d = 0; d < p.head_dim; ++d) {
        dq(b, h, i, d) += ds * k(b, g, j, d);
        dk(b, g, j, d) += ds * q(b, h, i, d);
      }
    }
  }
  scatter(dq, c.dq);
  scatter(dk, c.dk);
  scatter(dv, c.dv);
}

Declaration declared(const char* arithmetic_of_f32) {
  return declare()
      .version("1")
      .vendor("hacks")
      .profiles({"forward-core", "training-core"})
      .dtypes({"f32", "f16", "bf16"})
      .features({"causal", "lse", "gqa", "value-dim", "any-scale", "zero-sizes", "strides",
                 "transposed", "expanded", "backward"})
      .arithmetic("f32", arithmetic_of_f32)
      .arithmetic("f16", "exact-f32")
      .arithmetic("bf16", "exact-f32");
}

}  // namespace attest::hacks

HACK("honest", attest::hacks::forward)
