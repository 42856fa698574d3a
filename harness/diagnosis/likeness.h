// Did you mean: what a testee returned that is wrong, beside what common mistakes return.
//
// A mistake is named if all elements of the tensors that are wrong lie within its bounds, and
// enough of them lie where the right answer cannot: so nothing is named that could have come about
// by chance. Where only some rows are wrong, a mistake may be named for those.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "spec/arithmetic.h"
#include "spec/description.h"
#include "spec/index.h"
#include "spec/tensor_name.h"
#include "spec/verdict.h"

namespace attest {

// So many elements, at least, tell a mistake from the right answer.
inline constexpr Index kLeastTelling = 8;

struct Likeness {
  std::string name;
  std::string clause;
  std::vector<TensorName> tensors;  // that are wrong, and are what it gives
  bool backward_alone = false;      // of the backward pass; the forward pass is right
  Index rows = 0, of = 0;           // of these tensors: that it explains, and all
  Index telling = 0;                // elements

  bool whole() const { return rows == of; }
};

// Whether it is numbers that are wrong: of nothing else can a mistake be told.
bool asks_for_names(const Verdict& verdict);

// The mistakes that explain what is wrong: of equally good ones all, the simplest first. Empty if
// none does, if nothing is wrong, or if the case is too large for that.
std::vector<Likeness> alike(PreparedCase& prepared, const Description& testee,
                            const Arithmetic& arithmetic, const Trial& trial,
                            const std::function<bool()>& interrupted);

// One case may be too small to tell mistakes apart: of several failures that are of one kind,
// those mistakes are meant that explain each of which anything is known. So many are asked, at
// most.
inline constexpr int kMostAsked = 3;
std::vector<Likeness> common(const std::vector<Likeness>& all, const std::vector<Likeness>& others);

// "O and LSE are exactly what the scale twice gives"; of several that cannot be told apart up to
// three.
std::string headline(const std::vector<Likeness>& all);

}  // namespace attest
