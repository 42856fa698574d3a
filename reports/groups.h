// Failures that are alike, so that a page can tell one of each first.
//
// Alike are those of one testee with the same outcome, reason and blamed clause in the same
// tensors, whatever their format. The simplest stands for all: the one whose problem takes the
// fewest words, and of those the first. What is diagnosed (harness/diagnosis) is such a group.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "reports/digest.h"

namespace attest {

// What they have in common.
struct FailureKind {
  std::string testee;
  Outcome outcome;
  Reason reason;
  std::string blamed;
  std::vector<TensorName> tensors;  // beyond their bounds
  auto operator<=>(const FailureKind&) const = default;
};
FailureKind kind_of(const std::string& testee, const Verdict& verdict);

struct FailureGroup {
  std::vector<const VerdictRecord*> failures;  // the simplest first
  std::vector<std::string> dtypes;             // in which they occur

  const VerdictRecord& simplest() const { return *failures.front(); }
};

// Of all failures of the digest; the groups whose simplest is the simplest first, NOT_RUN last.
std::vector<FailureGroup> failure_groups(const Digest& digest);

// "MASK-3 — causal, bottom right, and with any offset"; the label alone if it is none of ours.
std::string clause_with_title(const std::string& label);

// Tensors beyond their bounds.
std::vector<TensorName> failing_tensors(const Verdict& verdict);

// "diagnosis: O is exactly what no scale (SCORE-1) gives"; empty if nothing is known.
std::string diagnosis_line(const Digest& digest, const FailureGroup& group);

// "37 like it, in f32, f16"; empty for a group of one.
std::string others_text(const FailureGroup& group);

}  // namespace attest
