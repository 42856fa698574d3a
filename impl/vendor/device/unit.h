// A part of a core that works by itself: a matrix unit, a vector unit, a mover of data. It has a
// clock of its own, which stands still while no program counts on it.
//
// The model of time of all mock devices: a unit is busy for the cycles that it is given, works in
// the order of its program, and begins what needs another unit's result no earlier than that is
// there (queue.h). A core is as long as its slowest unit; a device as its slowest core. Nothing
// else takes time: no contention, no refresh, no launch. The same program has the same cycles on
// every host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace attest::vendor::device {

using Cycles = std::int64_t;

struct Unit {
  std::string name;
  Cycles now = 0;   // the end of its last work
  Cycles busy = 0;  // of `now`, those in which it worked

  void spend(Cycles cycles) {
    now += cycles;
    busy += cycles;
  }
  void wait_until(Cycles time) { now = std::max(now, time); }
  // The share of `of` in which it worked, as profilers print it.
  double ratio(Cycles of) const {
    return of > 0 ? static_cast<double>(busy) / static_cast<double>(of) : 0;
  }
};

}  // namespace attest::vendor::device
