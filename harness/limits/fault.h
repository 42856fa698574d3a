// The kinds of faults whose detection limit is measured, each with a size that can be made smaller
// until nothing sees it.
#pragma once

#include <string_view>
#include <vector>

#include "spec/arithmetic.h"
#include "spec/index.h"
#include "spec/problem.h"

namespace attest::limits {

enum class Site {
  none,  // the kernel without a fault, which must pass everywhere
  exp,
  log2e,
  tanh,
  scale,
  scores,
  row_sum,
  p,
  lse,
  o,
  delta,
  ds,
  gradients,
  operands,
  qk_sums,
  pv_sums,
  gradient_sums,
  dq_in_steps,
  partitions,
  rescale,
  flush,
  key_lost,
  key_doubled,
  key_leaked,
  values_swapped,
  diagonal,
  window,
};

// What the size of a fault is.
enum class Measure {
  relative,  // of what it falsifies
  absolute,
  length,  // 1 / keys: the fault is there where sequences are as long as that, and nowhere else
};

struct Kind {
  Site site;
  std::string_view name;   // "row sum"
  std::string_view about;  // what a kernel with it does, where it says "the size"
  Measure measure;
  bool (*concerns)(const Problem&);       // whether it can show
  double (*admitted)(const Arithmetic&);  // the largest size that a declaration admits; 0: none
};

// In the order in which they are told; the first is the kernel without a fault.
const std::vector<Kind>& kinds();

inline constexpr Index kStep = 128;       // keys after which dQ is stored
inline constexpr Index kPartition = 512;  // keys of a partition

struct Fault {
  Site site = Site::none;
  double size = 0;
};

// The keys of the longest sequence, which are the size of a fault that is measured by length.
Index longest_keys(const Problem& problem);

}  // namespace attest::limits
