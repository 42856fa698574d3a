// One element of a batch by itself: its problem, its inputs, and its share of what the whole batch
// returned (DET-2).
#pragma once

#include <optional>

#include "harness/judge/trial.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

struct Alone {
  Problem problem;
  Inputs inputs;
};

// Batch element `b`, as a batch of one. What a testee draws itself (dropout) has no such part:
// `problem` must not ask for it.
Alone alone(const Problem& problem, const Inputs& inputs, Index b);

// What batch element `b` has of a tensor that the whole batch returned; nothing of a tensor that
// sums over the batch.
std::optional<Returned> share_of(const Problem& problem, const Returned& whole, Index b);

}  // namespace attest
