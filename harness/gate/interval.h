// How sure a median is that was measured so many times.
#pragma once

#include <vector>

#include "reports/interval.h"

namespace attest {

// Of independent measurements, at least one, however they are distributed: between the order
// statistics that a fair coin says (a sign test turned round). The level is 0.95, or what so few
// give, where they are no more than five.
Interval interval_of(std::vector<double> measured);

}  // namespace attest
