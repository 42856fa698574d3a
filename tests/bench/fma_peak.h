// What the processor can do at most: fused multiply-adds on f32 in registers, with nothing else.
// Benchmarks measure it beside what they compare with it, since the frequency may change at any
// time.
#pragma once

namespace attest {

// Floating-point operations a second of one thread, two for each multiply-add of each lane; takes
// about a third of a millisecond.
double fma_peak();

// Processor seconds of this thread: what it waits while others run does not count.
double thread_seconds();

}  // namespace attest
