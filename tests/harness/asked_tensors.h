// What a kernel returns of a problem, before there are any elements.
#pragma once

#include <utility>

#include "harness/judge/trial.h"
#include "spec/problem.h"

namespace attest {

inline Trial asked_tensors(const Problem& p) {
  Trial trial;
  for (const auto& [tensor, shape] : {std::pair{TensorName::o, p.o_shape()},
                                      {TensorName::lse, p.lse_shape()},
                                      {TensorName::dq, p.q_shape()},
                                      {TensorName::dk, p.k_shape()},
                                      {TensorName::dv, p.v_shape()}}) {
    if (is_gradient(tensor) && !p.backward) continue;
    const DType dtype = tensor == TensorName::lse ? p.lse_dtype() : p.dtype;
    trial.returned.push_back({tensor, dtype, shape, {}, 0, {}});
  }
  return trial;
}

}  // namespace attest
