// The checks that a case is put to, each of which returns what it finds: nothing if all is well.
#pragma once

#include <optional>
#include <string>

#include "harness/judge/finding.h"
#include "harness/judge/subject.h"
#include "harness/judge/trial.h"

namespace attest {

// Whether the case is about something that the testee doesn't promise; `of_laws` is what its laws
// need that isn't, if anything.
std::optional<Finding> check_promises(Subject& subject, const std::optional<std::string>& of_laws);

// Whether the testee refuses that problem, and whether it may (CALL-1).
std::optional<Finding> check_support(Subject& subject, const Problem& problem);

// Elements that hold their poison in both trials, whose poisons differ (SAFE-3).
std::optional<Finding> check_written(const Trial& first, const Trial& second,
                                     const Exemptions& exemptions);

// What can be told of two equal calls before any number is: all is written, and the keep-masks that
// were drawn are right.
std::optional<Finding> check_whole(const Subject& subject, const Trial& first, const Trial& second);

// The first element whose bits differ between two trials, or two tensors, in words.
std::optional<std::string> difference(const Trial& first, const Trial& second,
                                      const Exemptions& exemptions);
std::optional<std::string> difference(const Returned& a, const Returned& b,
                                      const Exemptions& exemptions);

// All that came back against its bounds (NUM-1): of two trials that may differ only if each is
// within them, and not at all if the testee is deterministic (DET-1).
std::optional<Finding> check_bounds(Subject& subject, const Trial& first, const Trial& second);
// Of one trial; the evidence is recorded where it is worse than what is there.
std::optional<Finding> check_bounds(Subject& subject, const Trial& trial, PreparedCase& prepared);

// What passes where zeros would is not told to be right: of many keys, weights are so small that
// what each may be off by comes to more than the tensor is.
std::optional<Finding> check_zeros(PreparedCase& prepared, const Arithmetic& arithmetic,
                                   const Trial& trial);

// A number in O where a NaN of Q, K or V that the row sees makes it none (FINITE-4), in a case that
// cites the clause.
std::optional<Finding> check_shown(PreparedCase& prepared, const Trial& trial);

// The expected values with those unspecified that this testee is not judged on, if any are.
std::optional<Expected> without_exempt(const Subject& subject, const Expected& whole,
                                       const Returned& tensor);

// Roundings as a whole (NUM-3), on the case's own inputs and, if they exceed a limit, on others: a
// correct testee may have bad luck once.
std::optional<Finding> check_noise(Subject& subject, const Trial& first);

// What is wrong with the keep-masks that two equal calls returned, flush with the end and the start
// of their pages (DROP-3): they differ, or lack bytes; the rate is not 1-p, give or take the
// quantum, in all of it, in a head or in a batch element; elements depend on each other.
std::optional<Finding> check_keep(const Problem& problem, const Inputs& inputs, double quantum,
                                  const Keep& first, const Keep& second);

// That another seed or offset draws another keep-mask (DROP-3).
std::optional<Finding> check_draws(Subject& subject, const Keep& keep);

// Right for any number of threads (CALL-2), and the same bits if that is declared (DET-3). Numbers
// that miss their bounds come without a clause, as from check_bounds.
std::optional<Finding> check_threads(Subject& subject, const Trial& first);

// Each batch element by itself has the bits that it has in its batch (DET-2).
std::optional<Finding> check_neighbours(Subject& subject, const Trial& first);

// The blocks that the testee reports (SCHED-1 to SCHED-3).
std::optional<Finding> check_schedule(Subject& subject, const Trial& first);

// What calls take at several lengths (MEM-1, MEM-2).
std::optional<Finding> check_memory(Subject& subject);

// The case once more as the mode that it is about has it, or after calls of other shapes and
// strides (DEV-1 to DEV-4).
std::optional<Finding> check_device(Subject& subject);

}  // namespace attest
