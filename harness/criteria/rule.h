// The rules by which other projects decide that an attention kernel is right, each from a
// description of its tests: what they compare, with which tolerance, and what becomes of NaN.
// `attest criteria` puts them beside Attest's own.
//
// A rule looks at one tensor at a time, and fails a kernel that it fails one tensor of. All of them
// are given the same exact values; those that measure a kernel against a run at low precision get
// that of eager.h. Guards, untouched inputs and repeated calls are no part of a rule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/dtype.h"
#include "spec/index.h"
#include "spec/tensor_name.h"

namespace attest::criteria {

// One tensor that came back: three lists of the same elements, without those that are unspecified.
struct Sample {
  TensorName tensor;
  DType dtype;  // of the problem
  const std::vector<double>& actual;
  const std::vector<double>& exact;
  const std::vector<double>& eager;  // of the run at low precision
  bool softcap = false;              // whether the problem has one
  bool bias = false;
  Index head_dim = 0;
};

enum class Ruling { passes, fails, not_compared };

struct Rule {
  std::string_view name;
  std::string_view source;    // of the tests that it stands in
  std::string_view says;      // the rule, in a line
  std::string_view nan;       // what becomes of a NaN
  std::vector<DType> dtypes;  // for which it states a tolerance
  std::string_view data;      // the class of inputs that is like those of its tests
  // What its project's tests do not try, in the words of known_features().
  std::vector<std::string> lacks = {};
  bool skips_padding = false;  // rows beyond a query length are not compared
  Ruling (*judge)(const Sample&);
};

}  // namespace attest::criteria
