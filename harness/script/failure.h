// A failure as scripts in any language tell it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "harness/process/testee.h"
#include "spec/tensor.h"
#include "spec/verdict.h"

namespace attest::scripts {

struct Failure {
  const Case& test_case;
  const Verdict& verdict;
  const Testee& testee;
  TensorName tensor;  // that is furthest beyond its bound
  const TensorEvidence& worst;

  const Problem& problem() const { return test_case.problem; }
  bool is_gradient() const { return tensor != TensorName::o && tensor != TensorName::lse; }
  std::string element() const;               // "0, 1, 4, 2"
  std::vector<std::string> comment() const;  // who, what, on which problem: lines
};

// Where the mask is a band of whole sequences, the least and the most of key - query that is seen.
struct Diagonals {
  std::optional<Index> least, most;
};
std::optional<Diagonals> diagonals_of(const Problem& problem);
// Causal at the top left, which functions have a flag for.
bool has_causal_flag(const Problem& problem);

bool sees_all(const Problem& problem);
// Which keys are seen, as ones and zeros in dense order of that shape: of all batch elements and
// heads, or of one where all are alike.
std::pair<Shape, std::string> table_of(const Problem& problem);
std::vector<double> bias_of(const Case& test_case);

// The lines, with their ends.
std::string text_of(const std::vector<std::string>& lines);

}  // namespace attest::scripts
