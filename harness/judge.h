// The verdict on one tensor: every element against its bound (SPEC.md, NUM-1).
//
// An element passes iff the distance from the exact value to the rounding cell of the returned
// value is at most the bound. The test is `distance <= bound`, so NaN never passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/working.h"
#include "spec/dtype.h"
#include "spec/tensor.h"
#include "spec/verdict.h"

namespace attest {

struct TensorVerdict {
  TensorEvidence evidence;
  bool passed = true;      // every element is within its bound
  bool conclusive = true;  // no element has a bound that admits anything
  bool nonfinite = false;  // a NaN or Inf stands where none may
};

// `bits` are the returned elements, in dense order, of `dtype`.
TensorVerdict judge(const std::vector<std::uint64_t>& bits, DType dtype, const Shape& shape,
                    const Expected& expected, Rounding rounding);

}  // namespace attest
