// What a testee would have to declare of its arithmetic for what it returned to lie within its
// bounds: a right kernel fails where it says too little of how it rounds. Decides no verdict.
// Source: NUMERICS.md, section 9.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/diagnosis/likeness.h"
#include "harness/judge/prepared.h"
#include "harness/judge/trial.h"
#include "spec/description.h"

namespace attest {

// Each admits all of it by itself: `"grouped_gradients": "rounded"`, as a description has it; the
// tightest first. If it takes several, "anything" stands for them. Nothing if no declaration does,
// if nothing lies beyond a bound, if the case is too large for that, or if it was interrupted.
std::vector<std::string> looser_declarations(PreparedCase& prepared, const Description& testee,
                                             const Trial& trial,
                                             const std::function<bool()>& interrupted);

// What explains a failure, in a line: the mistakes that are meant, or else declarations that would
// admit it; empty if nothing does.
std::string explanation(const std::vector<Likeness>& meant, PreparedCase& prepared,
                        const Description& testee, const Trial& trial,
                        const std::function<bool()>& interrupted);

// The clause that is to blame for what such declarations explain: nothing is wrong but how closely
// it is computed.
inline constexpr const char* kClauseOfDeclarations = "NUM-1";

// What admits several failures alike.
class Admitting {
 public:
  void add(std::vector<std::string> declarations);
  // Whether one of them lies within no bounds at all.
  bool is_hopeless() const;
  // What admits each of them; or else, as one, what does so together.
  std::vector<std::string> all() const;

 private:
  std::vector<std::vector<std::string>> failures_ = {};
};

}  // namespace attest
