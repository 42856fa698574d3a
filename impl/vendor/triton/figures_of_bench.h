// The rows of the wrapper, which chooses how the kernel is compiled, and of the benchmark.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::triton {

std::vector<Figure> rows_of_the_wrapper();
std::vector<Figure> rows_of_the_benchmark();

}  // namespace attest::vendor::triton
