// The least fault of each kind that is seen, by format, under each of several declarations: a
// faulty output is computed once for each size, and judged under all of them.
//
// It is taken that a case which sees a fault sees a larger one of its kind too. So the result does
// not depend on the order of the cases, nor on the number of jobs.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/limits/fault.h"
#include "spec/description.h"

namespace attest::limits {

struct Declaration {
  std::string name;   // "tightest"
  std::string about;  // in a line
  Description testee;
};

// The tightest that may be declared, in one pass over the keys and in eight splits; what is in use
// on GPUs; and none. The first says something of each format.
std::vector<Declaration> declarations();

// A case that sees the least fault that any sees, the first of them.
struct Sight {
  double size = 0;
  std::string case_id = {};
  std::string message = {};  // of its verdict
};

struct Limit {
  const Kind* kind = nullptr;
  DType dtype = DType::f32;
  std::size_t declaration = 0;
  double admitted = 0;             // as Kind::admitted
  std::optional<Sight> seen = {};  // none if no size is
  // The largest size that nothing sees, of those that were tried; 0: there is none, as where no
  // case is longer.
  double missed = 0;
};

struct Limits {
  std::vector<Limit> limits = {};          // by kind, format, declaration; none without a fault
  std::size_t cases = 0;                   // that were tried
  std::size_t undrawn = 0;                 // that were not: the kernel draws no dropout of its own
  std::vector<std::string> left_out = {};  // nor these, as they take too long
  std::vector<std::string> false_alarms = {};  // on which the kernel without a fault failed
};

// Of so many cases, each made when it is its turn, on so many threads. `beside` is what other cases
// have seen, as of the same number and order of limits: the search begins there. `tried` is called
// after each case.
Limits search(std::size_t cases, const std::function<Case(std::size_t)>& make,
              const std::vector<Kind>& of, const std::vector<Declaration>& declarations, int jobs,
              const Limits* beside, const std::function<void()>& tried,
              const std::function<bool()>& interrupted);

}  // namespace attest::limits
