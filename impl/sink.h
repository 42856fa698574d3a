// Sinks: a logit of each query head that joins the denominator and has no value (SINK-1, SINK-2).
//
// In the forward pass a sink is a key with its own score and the value 0, seen by every real row:
// a softmax that begins with it needs nothing else.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "impl/call.h"
#include "impl/elements.h"
#include "impl/sequence.h"

namespace attest::impl {

// The logit; -inf, which adds nothing, where there are no sinks.
template <class R>
R sink_of(const Call& call, std::int64_t head) {
  if (!call.problem.has_sink) return -std::numeric_limits<R>::infinity();
  return Plane<const float>(call.inputs.sink, 0, head).at(0, 0);
}

// dSink of one head, the sum over all rows of p_z (dLSE - D). Always in this order, so that neither
// the threads nor the blocks of the rest of the pass can change it.
template <class T, class R = Real<T>>
void sink_gradient(const Call& call, std::int64_t head) {
  const attest_problem& p = call.problem;
  const R sink = sink_of<R>(call, head);
  double sum = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const auto o = query_plane<const T>(call, call.inputs.o, b, head);
    const auto d_o = query_plane<const T>(call, call.inputs.d_o, b, head);
    const auto lse = query_plane<const R>(call, call.inputs.lse, b, head);
    const auto d_lse = query_plane<const R>(call, call.inputs.d_lse, b, head);
    for (std::int64_t i = 0; i < call.lengths_of(b).query; ++i) {
      double row = p.has_dlse ? d_lse.at(i, 0) : R(0);
      for (std::int64_t c = 0; c < p.value_dim; ++c) {
        const double value = widen(o.at(i, c));
        // A row that sees no key has O = 0, and gives nothing whatever its dO is (EMPTY-4).
        if (value != 0) row -= value * widen(d_o.at(i, c));
      }
      sum += row * std::exp(sink - lse.at(i, 0));
    }
  }
  Plane<float>(call.outputs.dsink, 0, head).at(0, 0) = static_cast<float>(sum);
}

}  // namespace attest::impl
