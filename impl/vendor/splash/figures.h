// What the seed says of splash attention with lazy masks, and where it is to be seen here.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::splash {

std::vector<Figure> splash_figures();

}  // namespace attest::vendor::splash
