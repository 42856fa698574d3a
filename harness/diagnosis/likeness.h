// Did you mean: what a testee returned that is wrong, beside what common mistakes return.
//
// A mistake is named if all elements of the tensors that are wrong lie within its bounds, and
// enough of them lie where the right answer cannot: so nothing is named that could have come about
// by chance. Where only some rows are wrong, a mistake may be named for those, if they are at least
// half of those that it would change in their heads: rows that it leaves as they are say nothing.
#pragma once

#include <functional>
#include <map>
#include <optional>
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
  Index rows = 0, of = 0;                   // that it explains, and would change in these heads
  Index heads = 0, of_heads = 0;            // in which something is wrong, and would be
  Index telling = 0;                        // elements
  std::vector<std::string> yields_to = {};  // if one of these explains as much

  bool whole() const { return rows == of && heads == of_heads; }
  // Whether that cannot have come about by chance, in this case alone.
  bool is_sure() const { return telling >= kLeastTelling; }
};

// What a failing case says of the mistakes.
struct Testimony {
  std::vector<Likeness> explaining = {};  // what is wrong, sure or not; the simplest first
  std::set<std::string> open = {};        // of which it says nothing; all others are disproved
};

// What a case asks, in whatever format.
std::string without_format(const std::string& case_id);

// Whether a failure tells of what is computed, and not of NaN and huge numbers that lie hidden, or
// of how tensors lie.
bool is_plain(const Case& failing);

// Whether what it returns is beyond being judged again and again.
bool is_too_large(const Case& failing);

// Whether it is numbers that are wrong: of nothing else can a mistake be told.
bool asks_for_names(const Verdict& verdict);

// Which mistakes explain what is wrong. Nothing if that was not looked at: nothing is wrong, the
// case is too large for it, or it was interrupted.
std::optional<Testimony> alike(PreparedCase& prepared, const Description& testee,
                               const Arithmetic& arithmetic, const Trial& trial,
                               const std::function<bool()>& interrupted);

// The best of them: sure ones first, whole ones before parts, then those that explain more tensors;
// of equally good ones all.
std::vector<Likeness> best(const std::vector<Likeness>& all);

// Those of one case that cannot be chance.
std::vector<Likeness> sure(const std::optional<Testimony>& testimony);

// What several failures of one kind have in common: one case may be too small to tell mistakes
// apart, so those are meant that explain some of them and that none disproves. A part of the rows
// of one case may be what a mistake gives by another way, and a tensor of few elements may be so by
// chance: that takes more cases. The same case in another format is none.
class Consensus {
 public:
  void add(const std::string& case_id, const Testimony& testimony);
  // How many different problems a mistake explains.
  std::size_t problems() const { return problems_.size(); }
  // Whether nothing is left that could be meant.
  bool is_hopeless() const;
  // Whether enough is known: so many cases explained, or none that can be.
  bool is_reached() const;

  // Each as the case tells of it in which all of them are seen.
  struct Meant {
    std::string case_id = {};  // the first that tells enough by itself, if one does
    std::vector<Likeness> alike = {};
  };
  Meant meant() const;

 private:
  struct Heard {
    std::string case_id;
    std::vector<Likeness> explaining;
  };
  std::vector<Heard> heard_ = {};
  std::set<std::string> problems_ = {};             // that were explained
  std::optional<std::set<std::string>> left_ = {};  // mistakes that no case disproves

  std::vector<Likeness> shared() const;
};

// What a testee meant that returned that: those that cannot be chance. An undeclared format is
// taken as the loosest.
std::vector<Likeness> meant_by(PreparedCase& prepared, const Description& testee,
                               const Trial& trial, const std::function<bool()>& interrupted);

// "O and LSE are exactly what the scale twice gives"; of several that cannot be told apart up to
// three.
std::string headline(const std::vector<Likeness>& all);

}  // namespace attest
