// What the kernels are compared with: forward passes of one head of f32, softmax(q k' / sqrt(dim))
// v.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "impl/engine/engine.h"

#ifdef ATTEST_BENCH_BLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int threads);
#endif

namespace attest {

struct RivalCall {
  const impl::Engine<float>& engine;  // for its exponential function
  std::int64_t length, dim;
  const float *q, *k, *v;
  float* o;
  float* workspace;
};

constexpr std::int64_t kLongestRival = 4096;

inline std::int64_t rival_workspace(std::int64_t length) { return length * (length + 64); }

// The formula, a row at a time: each number is a sum in a loop of its own.
inline void textbook_forward(const RivalCall& call) {
  const float scale = 1 / std::sqrt(static_cast<float>(call.dim));
  float* const p = call.workspace;
  for (std::int64_t i = 0; i < call.length; ++i) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < call.length; ++j) {
      float score = 0;
      for (std::int64_t c = 0; c < call.dim; ++c) {
        score += call.q[i * call.dim + c] * call.k[j * call.dim + c];
      }
      p[j] = score * scale;
      max = std::max(max, p[j]);
    }
    for (std::int64_t j = 0; j < call.length; ++j) {
      p[j] = std::exp(p[j] - max);
      sum += p[j];
    }
    for (std::int64_t c = 0; c < call.dim; ++c) {
      float value = 0;
      for (std::int64_t j = 0; j < call.length; ++j) value += p[j] * call.v[j * call.dim + c];
      call.o[i * call.dim + c] = value / sum;
    }
  }
}

#ifdef ATTEST_BENCH_BLAS
// Two matrix products by OpenBLAS, with the vectorised softmax of the engine between them, over
// kRows rows at a time.
template <std::int64_t kRows>
void blas_forward(const RivalCall& call) {
  openblas_set_num_threads(1);
  const float scale = 1 / std::sqrt(static_cast<float>(call.dim));
  const int dim = static_cast<int>(call.dim), keys = static_cast<int>(call.length);
  const std::int64_t stride = call.length + 16;
  float max[kRows], sum[kRows];
  for (std::int64_t begin = 0; begin < call.length; begin += kRows) {
    const int rows = static_cast<int>(std::min(kRows, call.length - begin));
    float* const o = call.o + begin * call.dim;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, dim, scale,
                call.q + begin * call.dim, dim, call.k, dim, 0, call.workspace,
                static_cast<int>(stride));
    std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, rows, 0.0f);
    call.engine.absorb({call.workspace, rows, call.length, stride}, {max, sum, {o, rows, 0, 0}});
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, keys, 1, call.workspace,
                static_cast<int>(stride), call.v, dim, 0, o, dim);
    for (int i = 0; i < rows; ++i) {
      for (int c = 0; c < dim; ++c) o[i * dim + c] /= sum[i];
    }
  }
}
#endif

}  // namespace attest
