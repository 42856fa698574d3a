// What a profiler would print of a run: the cycles of each core, and of the longest one the share
// in which each unit was busy.
#pragma once

#include <cstdint>

#include "impl/vendor/ascend/atlas_a2.h"

namespace attest::vendor::ascend {

struct Profile {
  device::Elapsed elapsed;
  // Of the longest core.
  double mte2_ratio = 0, cube_ratio = 0, fixpipe_ratio = 0;        // aic_..._ratio
  double vector_mte2_ratio = 0, vector_ratio = 0, mte3_ratio = 0;  // aiv_..._ratio
  Cycles mte2 = 0, cube = 0, fixpipe = 0, vector = 0;              // busy
  int64_t trips = 0;      // of the vector core's loop: blocks
  int64_t handovers = 0;  // between its cube and its vector core
  int64_t bursts = 0;     // of FixPipe
  int64_t ub_used = 0;    // bytes of ubBuffer that anything was put into

  Cycles cycles() const { return elapsed.longest(); }
  // Keeps the figures of the longest core; answers its cycles.
  Cycles take(AiCore& core, int64_t core_trips, int64_t core_handovers, int64_t core_ub_used) {
    const Cycles now = core.now();
    if (now < longest_) return now;
    longest_ = now;
    mte2_ratio = core.mte2.unit().ratio(now), cube_ratio = core.cube.ratio(now);
    fixpipe_ratio = core.fixpipe.unit().ratio(now);
    vector_mte2_ratio = core.vector_mte2.unit().ratio(now);
    vector_ratio = core.vector.ratio(now), mte3_ratio = core.mte3.unit().ratio(now);
    mte2 = core.mte2.unit().busy, cube = core.cube.busy, fixpipe = core.fixpipe.unit().busy;
    vector = core.vector.busy;
    trips = core_trips, handovers = core_handovers, bursts = core.fixpipe.bursts();
    ub_used = core_ub_used;
    return now;
  }

 private:
  Cycles longest_ = -1;
};

}  // namespace attest::vendor::ascend
