// What the seed's text says of both grids, and what the mock makes of it.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::nvidia_grid {

std::vector<Figure> nvidia_grid_figures();

}  // namespace attest::vendor::nvidia_grid
