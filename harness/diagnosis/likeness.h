// Did you mean: what a testee returned that is wrong, beside what common mistakes return.
//
// A mistake is named if all elements of the tensors that are wrong lie within its bounds, and
// enough of them lie where the right answer cannot: so nothing is named that could have come about
// by chance. Where only some rows are wrong, a mistake may be named for those.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
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
  std::vector<TensorName> tensors;          // that are wrong, and are what it gives
  bool backward_alone = false;              // of the backward pass; the forward pass is right
  Index rows = 0, of = 0;                   // of these tensors: that it explains, and all
  Index telling = 0;                        // elements
  std::vector<std::string> yields_to = {};  // if one of these explains as much

  bool whole() const { return rows == of; }
  // Whether that cannot have come about by chance, in this case alone.
  bool is_sure() const { return telling >= kLeastTelling; }
};

// What a case asks, in whatever format.
std::string without_format(const std::string& case_id);

// Whether a failure tells of what is computed, and not of NaN and huge numbers that lie hidden, or
// of how tensors lie.
bool is_plain(const Case& failing);

// Whether it is numbers that are wrong: of nothing else can a mistake be told.
bool asks_for_names(const Verdict& verdict);

// The mistakes that explain what is wrong, sure or not, the simplest first. Empty if none does,
// if nothing is wrong, or if the case is too large for that.
std::vector<Likeness> alike(PreparedCase& prepared, const Description& testee,
                            const Arithmetic& arithmetic, const Trial& trial,
                            const std::function<bool()>& interrupted);

// The best of them: sure ones first, whole ones before parts, then those that explain more tensors;
// of equally good ones all.
std::vector<Likeness> best(const std::vector<Likeness>& all);

// What several failures of one kind have in common: one case may be too small to tell mistakes
// apart, so those are meant that explain each of which anything is known. A part of the rows of one
// case may be what a mistake gives by another way, and a tensor of few elements may be so by
// chance: that takes more cases, and for a part at least half of those that were asked. The same
// case in another format is none.
class Consensus {
 public:
  void add(const std::string& case_id, const std::vector<Likeness>& all);
  // Whether enough is known: so many cases explained, or nothing left that explains them.
  bool is_reached() const;
  std::vector<Likeness> meant() const;

 private:
  std::vector<Likeness> shared_ = {};
  Index telling(const Likeness& likeness) const;  // elements, in all cases

  std::map<std::string, std::map<std::string, Index>> telling_ = {};  // by mistake and case
  std::set<std::string> asked_ = {}, cases_ = {};  // all, and those that are explained
};

// What a testee meant that returned that, if it cannot be chance: headline() of the best.
std::string meant(PreparedCase& prepared, const Description& testee, const Trial& trial,
                  const std::function<bool()>& interrupted);

// "O and LSE are exactly what the scale twice gives"; of several that cannot be told apart up to
// three.
std::string headline(const std::vector<Likeness>& all);

}  // namespace attest
