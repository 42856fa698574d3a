// How long something takes, whatever becomes of the time of day.
#pragma once

#include <chrono>

namespace attest {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace attest
