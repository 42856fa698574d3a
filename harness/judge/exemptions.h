// The rows that are not judged as all others, because the testee declares what becomes of them:
// rows beyond a query length that it leaves unwritten (MASK-15), and rows that see no key
// (EMPTY-5).
#pragma once

#include <optional>
#include <vector>

#include "spec/description.h"
#include "spec/inputs.h"
#include "spec/problem.h"
#include "spec/tensor_name.h"

namespace attest {

class Exemptions {
 public:
  Exemptions(const Problem& problem, const Inputs& inputs, const Description& testee);

  // Of an element of a returned tensor, by its dense index.
  bool may_be_unwritten(TensorName tensor, const Shape& shape, std::size_t element) const {
    return in(padding_, shape, element) && is_of_queries(tensor);
  }
  // Not by the reference.
  bool unjudged(TensorName tensor, const Shape& shape, std::size_t element) const {
    return may_be_unwritten(tensor, shape, element) || in(empty_of(tensor), shape, element);
  }
  // What stands there, as the testee declares it, in the terms in which it is judged.
  std::optional<double> declared(TensorName tensor, const Shape& shape, std::size_t element) const {
    if (may_be_unwritten(tensor, shape, element) || !in(empty_of(tensor), shape, element)) {
      return std::nullopt;
    }
    return tensor == TensorName::o ? o_ : lse_;
  }

  // Whether anything is exempt, and whether that is for a dialect of empty rows.
  bool any() const { return !padding_.empty() || dialect(); }
  bool dialect() const { return !empty_o_.empty() || !empty_lse_.empty(); }

 private:
  static bool in(const std::vector<bool>& rows, const Shape& shape, std::size_t element) {
    return !rows.empty() && rows[element / static_cast<std::size_t>(shape[kChannel])];
  }
  const std::vector<bool>& empty_of(TensorName tensor) const {
    static const std::vector<bool> kNone;
    return tensor == TensorName::o ? empty_o_ : tensor == TensorName::lse ? empty_lse_ : kNone;
  }

  // By row of O, LSE and dQ; empty if there is none.
  std::vector<bool> padding_, empty_o_, empty_lse_;
  std::optional<double> o_, lse_;  // what empty rows hold, where it is not declared in words
};

}  // namespace attest
