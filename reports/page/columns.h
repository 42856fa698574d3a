// What a page's scripts know of a record: all verdicts, as columns of small numbers and lists of
// words that they point into; of failures, and of what came closest to its bound, the evidence.
//
// It must stay small whatever is recorded, so that much is told in two digits (code.h), and of each
// list only so much. results.jsonl has all.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reports/digest.h"
#include "reports/groups.h"

namespace attest::page {

class Columns {
 public:
  // The record, the digest and the groups must outlive it.
  Columns(const Record& record, const Digest& digest, const std::vector<FailureGroup>& groups);
  ~Columns();

  // Where the scripts find a verdict: by case, then by testee.
  std::size_t place_of(const VerdictRecord& verdict) const;

  // The number of what was said of a verdict: its reason and message.
  std::size_t said_of(const Verdict& verdict) const;

  // All of it as JSON, for packed().
  std::string text() const;

 private:
  class Words;
  class Lists;
  class Maker;
  std::unique_ptr<Maker> maker_;
};

// Of all failures those that are told in full, so many at most: of each group the first, then of
// each the second, and so on.
std::vector<const VerdictRecord*> told_first(const std::vector<FailureGroup>& groups,
                                             std::size_t most);

}  // namespace attest::page
