// D = dO . O of each row, in fp32 to global memory: what both backward passes begin with.
#pragma once

#include <cstdint>

#include "impl/vendor/nvidia_grid/params.h"

namespace attest::vendor::nvidia_grid {

void dot_do_o(ThreadBlock& block, const Params& params, const HeadAt& at, std::int64_t first_row,
              std::int64_t rows);

}  // namespace attest::vendor::nvidia_grid
