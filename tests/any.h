// Random choices for properties in RapidCheck, which begins with small ranges and small numbers of
// cases; here all of a range is wanted from the first case on.
#pragma once

#include <rapidcheck.h>

#include "spec/index.h"
#include "spec/mask.h"

namespace attest {

template <class T>
rc::Gen<T> range(T least, T beyond) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, beyond));
}

template <class T>
T within(T least, T beyond) {
  return *range<T>(least, beyond);
}

// True once in `times`; shrinks to false.
inline bool once_in(Index times) { return within<Index>(0, times) == times - 1; }

// Shrinks to the first.
inline Anchor any_anchor() { return *rc::gen::element(Anchor::top_left, Anchor::bottom_right); }

// An axis that may broadcast.
inline Index one_or(Index size) { return *rc::gen::element(Index(1), size); }

}  // namespace attest
