// What the seed says of FlashAttention on Wormhole, row by row, beside what the mock comes to.
#pragma once

#include <vector>

#include "impl/vendor/figure.h"

namespace attest::vendor::wormhole {

std::vector<Figure> wormhole_figures();

}  // namespace attest::vendor::wormhole
