// Numbers of which a page tells two digits, as whole numbers that take little room.
#pragma once

namespace attest::page {

// 0 for 0; -1 for NaN, -2 for infinity; else of m * 10^(e - 1), m of two digits, rounded up so that
// nothing looks better than it is: (e + 40) * 90 + (m - 10) + 1. What is not within 10^-40 and
// 10^40 is told as the nearest that is. More than 1 stays more than 1. Page data.js reads it.
int code_of(double value);

}  // namespace attest::page
