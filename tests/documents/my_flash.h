// The function of README.md's ten lines: attention on dense BHSD.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

inline void my_flash(const float* q, const float* k, const float* v, float* o, std::int64_t batch,
                     std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t dim,
                     double scale, bool causal) {
  for (std::int64_t row = 0; row < batch * heads * queries; ++row) {
    const std::int64_t first = row / queries * keys * dim, i = row % queries;
    const std::int64_t seen = causal && i + 1 < keys ? i + 1 : keys;
    std::vector<float> s;
    float top = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < dim; ++d) dot += q[row * dim + d] * k[first + j * dim + d];
      s.push_back(dot * static_cast<float>(scale));
      top = std::fmax(top, s.back());
    }
    for (float& x : s) sum += x = std::exp(x - top);
    for (std::int64_t j = 0; j < seen; ++j) {
      const float weight = s[static_cast<std::size_t>(j)] / sum;
      for (std::int64_t d = 0; d < dim; ++d) o[row * dim + d] += weight * v[first + j * dim + d];
    }
  }
}
