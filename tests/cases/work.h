// What a case costs.
#pragma once

#include "spec/problem.h"

namespace attest {

// Multiply-adds of both matrix products of the forward pass within the lengths, 3.5 times with a
// backward.
inline double work_of_case(const Problem& p) {
  double pairs = 0;
  for (Index b = 0; b < p.batch; ++b) {
    pairs += static_cast<double>(p.lengths(b).query * p.lengths(b).key);
  }
  return pairs * static_cast<double>(p.query_heads * (p.head_dim + p.value_dim)) *
         (p.backward ? 3.5 : 1);
}

}  // namespace attest
