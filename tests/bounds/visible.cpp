// Which elements take part, once for all kernels that are given a problem.
#include <algorithm>
#include <cmath>

#include "tests/bounds/kernel.h"

namespace attest::bounds {
namespace {

// Whether heads may see different keys.
bool differs_by_head(const Mask& mask) {
  return (mask.table && mask.table->shape[kHead] > 1) ||
         std::any_of(mask.parts.begin(), mask.parts.end(), differs_by_head);
}

}  // namespace

std::vector<std::uint8_t> visible_elements(const Problem& problem, const Inputs& inputs) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(element_count(problem.keep_shape())));
  const Index plane = problem.query_len * problem.key_len;
  const bool alike = !differs_by_head(problem.mask);
  auto to = result.begin();
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      if (h > 0 && alike) {
        to = std::copy_n(to - plane, plane, to);
        continue;
      }
      for (Index i = 0; i < problem.query_len; ++i) {
        for (Index j = 0; j < problem.key_len; ++j) {
          *to++ = visible(problem, {.batch = b, .head = h, .query = i, .key = j});
        }
      }
    }
  }
  if (!problem.bias_shape) return result;
  for (std::size_t e = 0; e < result.size(); ++e) {
    if (!result[e]) continue;
    auto place = coordinates(problem.keep_shape(), static_cast<Index>(e));
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if ((*problem.bias_shape)[axis] == 1) place[axis] = 0;
    }
    result[e] = std::isfinite(inputs.bias.at(place[0], place[1], place[2], place[3]));
  }
  return result;
}

}  // namespace attest::bounds
