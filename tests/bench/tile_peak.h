// What the processor's matrix tiles can do at most: products of bf16 tiles in registers, with
// nothing else.
#pragma once

namespace attest {

// Floating-point operations a second of one thread, as fma_peak() counts them; takes about a tenth
// of a millisecond. Only where impl::amx::missing_for_tiles() has no objection.
double tile_peak();

}  // namespace attest
