// What the seed's text says of the operators, and what the mock makes of it.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::ascend {

std::vector<Figure> ascend_figures();

}  // namespace attest::vendor::ascend
