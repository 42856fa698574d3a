// FlashAttentionScoreGrad on the device. For each basic block of the score matrix, as the seed
// numbers the steps:
//
//   1  P  = exp(scale q k^T - max) / sum, from the statistics of the forward pass; hidden ones 0
//   2  dP = dropout(dy v^T)
//   3  dS = P (dP - rowsum(dy * attention_in))
//   4  dq = dS k * scale        5  dk = dS^T q * scale        6  dv = dropout(P)^T dy
//
// The cube core computes the products of a launch, several neighbouring blocks of a row, at once:
// mm1 (dy v^T), mm2 (q k^T), then 4 to 6, which are added to sums in f32 in the workspace; it
// begins the next launch before the products 4 to 6 of this one. The vector core does the rest,
// block by block in two halves, Sub (dropout of dP, and the row sums taken off) and Softmax (P, dS,
// and the dropped P); Sub of the next block stands before Softmax of this one, where scores are
// waited for. When all cores are done, the sums are scaled and cast.
//
//   cube     mm1(0) mm2(0) mm1(1) mm2(1)                products(0) mm1(2) mm2(2) ...
//   vector          Sub(0.0) Sub(0.1) Softmax(0.0) Sub(0.2) Softmax(0.1) ...
#pragma once

#include "impl/vendor/ascend/plan.h"
#include "impl/vendor/ascend/profile.h"

namespace attest::vendor::ascend {

// Of as many cores as the tiling says; the sums are cleared before and cast after.
Profile run_backward(const Plan& plan);

}  // namespace attest::vendor::ascend
