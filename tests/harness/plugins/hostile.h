// What the plug-in `hostile` does, and how a test tells it to.
#pragma once

#include <cmath>

namespace attest::hostile {

inline constexpr int kReplyFd = 4;  // SPEC.md, the worker protocol

enum class Deed {
  nothing,
  segfault,
  kills_itself,
  kills_all,
  stops_itself,
  exits,
  aborts,
  hangs,
  dawdles,
  overwrites_input,
  resizes_memory,
  breaks_in,
  floods,
  leaves_child,
  hoards,
  babbles,
  hangs_up,
  writes_behind,
  writes_before,
  writes_elsewhere,
  reads_behind,
  opens_guard,
  closes_guard_again,
  returns_nan,
  writes_nothing,
  fails,
  forks,
  uses_up_descriptors,
  writes_late,
};
inline constexpr int kDeeds = 29;

// A deed crosses as the scale of a problem.
inline double scale_of(Deed deed) { return 1 + static_cast<int>(deed) / 64.0; }
inline Deed deed_of(double scale) { return static_cast<Deed>(std::lround((scale - 1) * 64)); }

}  // namespace attest::hostile
