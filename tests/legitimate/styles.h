// The legitimate kernels: as different from each other as kernels may be, and every one right.
#pragma once

#include <string>
#include <vector>

#include "tests/bounds/kernel.h"

namespace attest::legitimate {

// Those of tests/bounds whose arithmetic may be declared, and more of the kind: every block size,
// order, number of splits.
std::vector<bounds::Style> legitimate_styles();

// As it computes in a format.
bounds::Style in_format(bounds::Style style, DType dtype);

// What a plug-in declares of its dialect: the keys "lse", "empty_rows" and "window", if it has any.
std::string dialect_json(const bounds::Style& style);

// What a plug-in declares of it, in the words of spec/arithmetic.h.
std::string arithmetic_json(const bounds::Style& style, DType dtype);

}  // namespace attest::legitimate
