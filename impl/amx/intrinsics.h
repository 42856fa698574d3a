// The steps on the processor's own tiles.
#pragma once

#include "impl/amx/steps.h"

namespace attest::impl::amx {

// To be called only where missing_for_tiles() in availability.h has no objection.
const Steps& tile_steps();

}  // namespace attest::impl::amx
