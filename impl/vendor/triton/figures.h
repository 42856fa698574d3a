// What the seed's text says of FlashAttention-2, line by line and in Triton, row by row.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::triton {

std::vector<Figure> triton_figures();

}  // namespace attest::vendor::triton
