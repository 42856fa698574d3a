// FlashAttentionScore on the device: a core's rows of blocks, its cube and its vector core at once.
//
//   cube     scores(0) scores(1)      pv(0) scores(2)      pv(1) ...
//   vector             softmax(0) softmax(1)    output(0) softmax(2)    output(1) ...
//
//   scores   S = q k^T                          softmax  P = exp(scale S - max), max and sum so far
//   pv       P v, P in the operator's format    output   out = out exp(old max - max) + P v
//
// What passes between them lies in a ping-pong workspace of global memory; a queue says which half
// is whose. A row's output is divided by its sum when its last block has come.
#pragma once

#include "impl/vendor/ascend/plan.h"
#include "impl/vendor/ascend/profile.h"

namespace attest::vendor::ascend {

// Of as many cores as the tiling says.
Profile run_forward(const Plan& plan);

}  // namespace attest::vendor::ascend
