// The rows that are not judged, because the testee declares what becomes of them: rows beyond a
// query length that it leaves unwritten (MASK-15), and rows that see no key (EMPTY-5).
#pragma once

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
  bool unjudged(TensorName tensor, const Shape& shape, std::size_t element) const {
    return may_be_unwritten(tensor, shape, element) ||
           (in(empty_, shape, element) &&
            ((empty_o_ && tensor == TensorName::o) || (empty_lse_ && tensor == TensorName::lse)));
  }

  // Whether anything is exempt, and whether that is for a dialect of empty rows.
  bool any() const { return !padding_.empty() || !empty_.empty(); }
  bool dialect() const { return !empty_.empty(); }

 private:
  static bool in(const std::vector<bool>& rows, const Shape& shape, std::size_t element) {
    return !rows.empty() && rows[element / static_cast<std::size_t>(shape[kChannel])];
  }

  // By row of O, LSE and dQ; empty if there is none.
  std::vector<bool> padding_, empty_;
  bool empty_o_, empty_lse_;
};

}  // namespace attest
