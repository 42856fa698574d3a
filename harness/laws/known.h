// What a returned number says of the exact one: if the testee is right, that lies within its bound
// B of the rounding cell of what was returned (NUM-1). Laws are equations between exact values; one
// is broken where no values within these intervals fulfil it (NUMERICS.md, section "Laws").
//
// Every operation rounds outwards, so an interval never excludes what it should hold.
#pragma once

#include "spec/dtype.h"

namespace attest::laws {

struct Known {
  long double value = 0;          // what was returned, or what an operation makes of it
  long double low = 0, high = 0;  // the exact value lies between them; NaN: nothing fits

  bool tells_nothing() const;
};

// A returned number with its bound. NaN fits nothing; an infinite bound tells nothing.
Known returned(DType dtype, double value, double bound, Rounding rounding);

Known exactly(long double value);
Known nothing_known();

Known operator+(const Known& a, const Known& b);
Known operator-(const Known& a, const Known& b);
Known operator*(long double factor, const Known& a);
Known operator*(const Known& a, const Known& b);

// The same, give or take `slack`.
Known widened(Known a, long double slack);

// log(exp a + exp b), exp(a - b), and w a + (1 - w) b for 0 <= w <= 1.
Known log_sum_exp(const Known& a, const Known& b);
Known exp_of_difference(const Known& a, const Known& b);
Known mixture(const Known& weight, const Known& a, const Known& b);

// 1 / (1 + exp(b - a)): the weight of what has the logarithm a beside what has b.
Known weight_beside(const Known& a, const Known& b);

// How far the values of the two lie apart, as a share of what the intervals allow: at most 1 where
// some value lies in both.
struct Gap {
  long double apart, allowed;
  double ratio;
};
Gap gap_between(const Known& a, const Known& b);

}  // namespace attest::laws
