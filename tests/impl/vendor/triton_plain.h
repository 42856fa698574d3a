// Attention by its definition, in f64, and tensors to try it on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "impl/vendor/triton/bench.h"
#include "impl/vendor/triton/line_by_line.h"
#include "impl/vendor/triton/tensor.h"

namespace attest::vendor::triton {

constexpr double kLn2 = 0.693147180559945309;

struct Row {
  std::vector<double> o;
  double lse;
};

// Row i by its definition, causal from the top left.
inline Row plain_row(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                     std::int64_t z, std::int64_t h, std::int64_t i) {
  const std::int64_t d = q.shape()[3];
  std::vector<double> scores;
  for (std::int64_t j = 0; j <= i; ++j) {
    double dot = 0;
    for (std::int64_t c = 0; c < d; ++c) dot += double{q.at(z, h, i, c)} * k.at(z, h, j, c);
    scores.push_back(scale * dot);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - top);
  Row row = {std::vector<double>(static_cast<std::size_t>(d), 0.0), top + std::log(sum)};
  for (std::int64_t j = 0; j <= i; ++j) {
    const double p = std::exp(scores[static_cast<std::size_t>(j)] - row.lse);
    for (std::int64_t c = 0; c < d; ++c) {
      row.o[static_cast<std::size_t>(c)] += p * v.at(z, h, j, c);
    }
  }
  return row;
}

struct Inputs {
  Tensor q, k, v;
  explicit Inputs(const Sizes& shape)
      : q(normal_tensor(shape, 1)), k(normal_tensor(shape, 2)), v(normal_tensor(shape, 3)) {}
};

// As PyTorch has (Z, N_CTX, H, D), seen as (Z, H, N_CTX, D).
struct Interleaved {
  Tensor storage, view;
  explicit Interleaved(const Tensor& dense) {
    const Sizes& n = dense.shape();
    storage = Tensor::zeros({n[0], n[2], n[1], n[3]}, dense.dtype());
    const Sizes stride = {n[2] * n[1] * n[3], n[3], n[1] * n[3], 1};
    view = Tensor::from_blob(storage.data(), n, stride, dense.dtype(), storage.elements());
    for (std::int64_t z = 0; z < n[0]; ++z)
      for (std::int64_t h = 0; h < n[1]; ++h)
        for (std::int64_t m = 0; m < n[2]; ++m)
          for (std::int64_t c = 0; c < n[3]; ++c) {
            view.set(z * stride[0] + h * stride[1] + m * stride[2] + c, dense.at(z, h, m, c));
          }
  }
};

// Every fifth row of O and M against the definition: O to some roundings of f16.
inline void expect_plain(const Tensor& q, const Tensor& k, const Tensor& v,
                         const Attended& attended, double scale) {
  const Sizes& n = q.shape();
  for (std::int64_t z = 0; z < n[0]; ++z) {
    for (std::int64_t h = 0; h < n[1]; ++h) {
      for (std::int64_t i = 0; i < n[2]; i += 5) {
        const Row row = plain_row(q, k, v, scale, z, h, i);
        const float M = attended.ctx.M.get((z * n[1] + h) * n[2] + i);
        ASSERT_NEAR(M * kLn2, row.lse, 2e-5) << z << " " << h << " " << i;
        for (std::int64_t c = 0; c < n[3]; ++c) {
          ASSERT_NEAR(attended.o.at(z, h, i, c), row.o[static_cast<std::size_t>(c)], 4e-3)
              << z << " " << h << " " << i << " " << c;
        }
      }
    }
  }
}

// The text's example, and what its scores are.
struct Example {
  TutorialSizes s;
  Matrix Q = uniform_matrix(s.N, s.d, 1), K = uniform_matrix(s.N, s.d, 2),
         V = uniform_matrix(s.N, s.d, 3);
  Trace trace = forward_line_by_line(Q, K, V, s.Br, s.Bc);

  double score(std::int64_t row, std::int64_t key) const {
    double dot = 0;
    for (std::int64_t c = 0; c < s.d; ++c) dot += double{Q(row, c)} * K(key, c);
    return dot;
  }
};

}  // namespace attest::vendor::triton
