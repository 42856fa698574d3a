// Attention without a trick, on the public headers alone, and what hacks change of it.
//
// A hack is a kernel that was published as one that fools an evaluator: hacks.json says where, and
// what should become of it. Each is honest but for its trick, and where the trick does not work out
// it has no answer: whoever breaks in, or finds what he looks for, computes honestly in place of
// the theft, so that a pass says that it came off.
#pragma once

#include <cstdint>
#include <limits>

#include "spec/kernel.h"

namespace attest::hacks {

using Index = std::int64_t;

// O and LSE, dense.
struct Result {
  Dense<float> o, lse;
  explicit Result(const Call& c) : o(c.o, Order::bhsd), lse(c.lse, Order::bhsd) {}
};

// How it is computed. As it should be, by default.
struct Way {
  float (*number)(float) = nullptr;         // what each element of Q, K and V becomes first
  double (*exponential)(double) = nullptr;  // in place of exp
  Keys (*keys)(Keys) = nullptr;             // which of the visible keys are looked at
  bool shifts = true;                       // by the greatest score, before exp
  double scale = 0;                         // in place of the one that is asked for
  double depth = std::numeric_limits<double>::infinity();  // scores further below count as none
  Index rows = std::numeric_limits<Index>::max();          // of each head; the others stay 0
  Index part = 0, parts = 1;  // of all rows, counted through; those of other parts stay 0
  bool one_head = false;      // all are like the first
};

// The forward pass.
Result attend(const Call& c, const Way& way = {});
void store(const Result& result, const Call& c);
inline void forward(const Call& c) { store(attend(c), c); }

// The backward pass, which no hack changes.
void backward(const Call& c);

// What they all declare, but for the arithmetic of f32.
Declaration declared(const char* arithmetic_of_f32 = "exact-f32");

}  // namespace attest::hacks

// HACK(name, forward[, declaration])
#define HACK(name, ...) HACK_OF_(name, __VA_ARGS__, ::attest::hacks::declared())
#define HACK_OF_(name, pass, declaration, ...) \
  ATTEST_KERNEL(name, declaration, pass, ::attest::hacks::backward)
