// The verdict on one tensor: every element against its bound (SPEC.md, NUM-1).
//
// An element passes iff the distance from the exact value to the rounding cell of the returned
// value is at most the bound. The test is `distance <= bound`, so NaN never passes. An element
// whose exact value is NaN is unspecified (FINITE-1 to FINITE-3, NUM-1): whatever stands there is
// passed over, and counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/working.h"
#include "spec/dtype.h"
#include "spec/tensor.h"
#include "spec/tensor_name.h"
#include "spec/verdict.h"

namespace attest {

struct TensorVerdict {
  TensorEvidence evidence;
  bool passed = true;  // every element is within its bound
  // No element has a bound that admits anything, and not all of them are unspecified.
  bool conclusive = true;
  bool nonfinite = false;  // a NaN or Inf stands where none may
  bool advised = true;     // every element is within what is recommended (SOFTMAX-3)
};

// How its elements are rounded: LSE to the nearest, whatever is declared of the others.
inline Rounding rounding_of(TensorName tensor, const Arithmetic& arithmetic) {
  return tensor == TensorName::lse ? Rounding::nearest : arithmetic.output_rounding;
}

// `bits` are the returned elements, in dense order, of `dtype`.
TensorVerdict judge(const std::vector<std::uint64_t>& bits, DType dtype, const Shape& shape,
                    const Expected& expected, Rounding rounding);

// Of each element its error over its bound; infinite where it is beyond a bound of 0, or no number;
// -1 where nothing is compared.
std::vector<double> ratios_to_bounds(const std::vector<std::uint64_t>& bits, DType dtype,
                                     const Expected& expected, Rounding rounding);

// The elements that break what is required of them, by their dense index.
std::vector<std::size_t> beyond_bounds(const std::vector<std::uint64_t>& bits, DType dtype,
                                       const Expected& expected, Rounding rounding);

}  // namespace attest
