// The rows that are not judged, because the testee declares what becomes of them: rows beyond a
// query length that it leaves unwritten (MASK-15), and rows that see no key (EMPTY-5).
#pragma once

#include <string>
#include <vector>

#include "spec/description.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

class Exemptions {
 public:
  Exemptions(const Problem& problem, const Inputs& inputs, const Description& testee);

  // Of an element of a returned tensor, by its name in records and its dense index.
  bool may_be_unwritten(const std::string& tensor, const Shape& shape, std::size_t element) const {
    return in(padding_, shape, element) && is_row_of_queries(tensor);
  }
  bool unjudged(const std::string& tensor, const Shape& shape, std::size_t element) const {
    return may_be_unwritten(tensor, shape, element) ||
           (in(empty_, shape, element) &&
            ((empty_o_ && tensor == "O") || (empty_lse_ && tensor == "LSE")));
  }

  // Whether anything is exempt, and whether that is for a dialect of empty rows.
  bool any() const { return !padding_.empty() || !empty_.empty(); }
  bool dialect() const { return !empty_.empty(); }

 private:
  static bool is_row_of_queries(const std::string& tensor) {
    return tensor == "O" || tensor == "LSE" || tensor == "dQ";
  }
  static bool in(const std::vector<bool>& rows, const Shape& shape, std::size_t element) {
    return !rows.empty() && rows[element / static_cast<std::size_t>(shape[kChannel])];
  }

  // By row of O, LSE and dQ; empty if there is none.
  std::vector<bool> padding_, empty_;
  bool empty_o_, empty_lse_;
};

}  // namespace attest
