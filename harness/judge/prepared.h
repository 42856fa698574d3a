// A case with its inputs, and what each arithmetic makes of it.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "harness/judge/excerpt.h"
#include "reference/statistical.h"
#include "reference/working.h"
#include "spec/inputs.h"
#include "spec/tensor_name.h"

namespace attest {

// Computed once for all testees.
class PreparedCase {
 public:
  PreparedCase(const Case& test_case, int threads)
      : PreparedCase(test_case, generate(test_case, threads), threads) {}

  // With inputs from elsewhere, of the shapes of its problem.
  PreparedCase(const Case& test_case, Inputs inputs, int threads)
      : case_(test_case),
        inputs_(std::move(inputs)),
        excerpt_(excerpt_of(test_case)),
        threads_(threads) {}

  // The same case with the keep-mask that a testee drew: for that testee alone.
  PreparedCase with_keep(Keep keep) const;

  const Case& test_case() const { return case_; }
  const Problem& problem() const { return case_.problem; }
  const Inputs& inputs() const { return inputs_; }
  const ForwardExpected& forward(const Arithmetic& arithmetic);
  const BackwardExpected& backward(const Arithmetic& arithmetic);
  const ForwardSpread& forward_spread(const Arithmetic& arithmetic);
  const BackwardSpread& backward_spread(const Arithmetic& arithmetic);

 private:
  static Inputs generate(const Case& test_case, int threads);
  const PassesExpected& passes(const Arithmetic& arithmetic);  // of a problem with a backward pass
  const Excerpt* excerpt() const { return excerpt_ ? &*excerpt_ : nullptr; }

  Case case_;
  Inputs inputs_;
  std::optional<Excerpt> excerpt_;
  int threads_;
  // Few testees, fewer arithmetics: a list is enough.
  std::vector<std::pair<Arithmetic, std::unique_ptr<ForwardExpected>>> forward_;
  std::vector<std::pair<Arithmetic, std::unique_ptr<PassesExpected>>> passes_;
  std::vector<std::pair<Arithmetic, std::unique_ptr<ForwardSpread>>> forward_spread_;
  std::vector<std::pair<Arithmetic, std::unique_ptr<BackwardSpread>>> backward_spread_;
};

// The expected values of a returned tensor, and how far random roundings take it from them.
const Expected& expected_of(TensorName tensor, PreparedCase& prepared,
                            const Arithmetic& arithmetic);

const Spread& spread_of(TensorName tensor, PreparedCase& prepared, const Arithmetic& arithmetic);

}  // namespace attest
