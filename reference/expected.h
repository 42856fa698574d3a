// What a correct result must be, tensor by tensor, as the working reference tells it and the judge
// takes it; and what may be asked of it.
#pragma once

#include <cstddef>
#include <vector>

#include "spec/index.h"
#include "spec/per_tensor.h"
#include "spec/problem.h"

namespace attest {

// What a tensor must be, element by element, in dense order.
struct Expected {
  std::vector<double> value;
  // What `value` leaves of the exact value; empty unless the dtype is f64, whose results double
  // cannot judge.
  std::vector<double> rest = {};
  // The bound B on the distance between the exact value and the rounding cell of a correct result.
  // 0 demands the value itself; infinity admits anything, which makes a verdict inconclusive.
  std::vector<double> bound = {};
  // The bound where scores are too large for SOFTMAX-2, by SOFTMAX-3, which is recommended;
  // `bound` is infinite there. Empty if no score is; infinite elsewhere.
  std::vector<double> recommended = {};
};

// LSE is -inf for a row that sees nothing, not even a sink.
using ForwardExpected = PerForward<Expected>;
// Of the shapes of what each is the gradient of; empty if there is none.
using BackwardExpected = PerGradient<Expected>;
using PassesExpected = PerTensor<Expected>;

// A part of a problem that is too long to be computed as a whole: of each head some query rows and
// some keys, in groups of 8 neighbours (8g to 8g + 7 of a batch element), none twice. What belongs
// to others, and what lies beyond a length, is unspecified: its value is NaN. So is dSink of a head
// that some batch element has no keys of; dBias is always whole, and takes all rows of all heads.
struct Excerpt {
  // Of O, LSE and dQ, for query head h of batch element b at b * query_heads + h.
  std::vector<std::vector<Index>> query_groups;
  // Of dK and dV, for key head h at b * key_heads + h. They take all rows that read the head.
  std::vector<std::vector<Index>> key_groups;
};

// The same groups of all heads.
inline Excerpt excerpt_of_all(const Problem& problem, const std::vector<Index>& query_groups,
                              const std::vector<Index>& key_groups) {
  const auto heads = [&](Index of_each) { return std::size_t(problem.batch * of_each); };
  return {.query_groups = {heads(problem.query_heads), query_groups},
          .key_groups = {heads(problem.key_heads), key_groups}};
}

// What the bounds count: all roundings, or those alone that have a direction, and so do not average
// out (NUMERICS.md, section 12): functions, constants, truncation, underflow.
enum class Roundings { all, systematic };

}  // namespace attest
