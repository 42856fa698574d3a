// How a testee says otherwise what the standard says: what it returns in place of LSE, what its
// rows without keys hold, how it counts the ends of a window (SPEC.md, chapter "Description",
// "Dialects"). The harness translates: a testee is asked and judged in its own dialect.
//
//   "lse": {"as": "maximum_and_sum", "base": 2}
//   "empty_rows": {"lse": "inf", "o": "the mean of V"}
//   "window": {"left": "exclusive", "unbounded": -1}
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/arithmetic.h"
#include "spec/mask.h"
#include "spec/tensor_name.h"

namespace attest {

// What rows without keys hold of one tensor.
struct EmptyRows {
  bool differs = false;              // from EMPTY-1, EMPTY-2
  std::optional<double> value = {};  // that is checked; none: declared in words alone
};

// How the two numbers of a window are counted, which the standard takes as inclusive ends.
struct WindowEnds {
  bool left_exclusive = false;   // -left < key - query: a key less than the standard's
  bool right_exclusive = false;  // key - query < right
  // Both numbers are the width of the window: floor(w / 2) keys before the query, and of the w - 1
  // that are left as many after it as are missing.
  bool centred = false;
  Index unbounded = kUnbounded;  // what stands for an end that there isn't
  friend bool operator==(const WindowEnds&, const WindowEnds&) = default;
};

struct Dialect {
  LseForm lse = {};
  WindowEnds window = {};
  // Of O and LSE; of the maximum and the sum, where these stand in place of LSE.
  EmptyRows empty_o = {}, empty_lse = {}, empty_maximum = {}, empty_sum = {};

  // The tensors that stand for LSE.
  std::vector<TensorName> statistics() const;
  // Of a tensor that a forward call returns.
  const EmptyRows& empty(TensorName tensor) const;
  // Whether LSE of empty rows is another than EMPTY-2 has it.
  bool lse_of_empty_differs() const;
};

// The part of a description that tells of it: its keys "lse", "empty_rows" and "window", each
// optional. Throws InputError for what is not understood.
Dialect parse_dialect(const nlohmann::json& keys);

// A window that sees the same keys, in the testee's numbers; empty if it has none. Bands that are
// no windows, as causal ones, are the same in all dialects.
struct WindowNumbers {
  Index left, right;
  friend bool operator==(const WindowNumbers&, const WindowNumbers&) = default;
};
std::optional<WindowNumbers> numbers_of(const Mask& band, const WindowEnds& ends);

// The first window of a mask that the testee cannot say, in words; empty if there is none.
std::string unsayable(const Mask& mask, const WindowEnds& ends);

// How windows are counted, in words; empty where it is the standard's way.
std::string to_string(const WindowEnds& ends);

// LSE in base e of what a testee returned in its place: of LSE, or of the maximum and the sum. In
// wide arithmetic, rounded to f64.
double natural_lse(const LseForm& form, double statistic, double sum);

}  // namespace attest
