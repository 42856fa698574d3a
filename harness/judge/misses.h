// Where results miss their bounds: which tensors, and what the rows of queries have in common in
// which they do. This is the evidence by which a clause is blamed (blame.h).
#pragma once

#include <array>
#include <boost/container/flat_set.hpp>
#include <set>
#include <utility>

#include "harness/judge/prepared.h"
#include "harness/judge/subject.h"
#include "harness/judge/trial.h"

namespace attest {

// In the forward pass, or, if that is right, in the gradients.
class Misses {
 public:
  Misses(const Subject& subject, const Trial& trial);

  bool none() const { return tensors_.empty(); }
  bool has(TensorName tensor) const { return tensors_.contains(tensor); }
  bool only(TensorName tensor) const { return tensors_.size() == 1 && has(tensor); }
  bool gradients() const { return !none() && !has(TensorName::o) && !has(TensorName::lse); }
  bool nonfinite() const { return nonfinite_; }

  // Of all misses in tensors that have rows of queries, if there are any.
  bool only_empty_rows() const { return rows_ > 0 && empty_rows_ == rows_; }
  bool only_beyond_query_lengths() const { return rows_ > 0 && beyond_ == rows_; }
  // Whether tensors of rows of queries are all that miss.
  bool of_queries_alone() const { return of_queries_alone_; }

  // Whether an empty row holds what a row does that sees keys: a sum of moderate size.
  bool empty_rows_saw_keys() const { return saw_keys_; }
  // Whether some row that sees several keys is right, of an element that fails: what changes all
  // scores changes it too.
  bool some_rows_are_right() const { return some_are_right_; }
  // Whether a row that sees every key has a sum that is not too small: hiding keys makes it so.
  bool full_rows_lack_nothing() const { return full_rows_lack_nothing_; }
  // Whether some sum is too small, as none is of a row that sees more than it may.
  bool some_sums_are_low() const { return low_sums_; }
  // Whether just those heads fail that would read other keys if groups were interleaved.
  bool only_heads_of_other_groups() const { return heads_of_other_groups_ && of_queries_alone_; }
  bool all_heads() const { return all_heads_; }
  // Whether heads fail in some rows in which others, that see the same, are right.
  bool heads_differ() const { return heads_differ_; }
  // Whether batch elements fail, but not the first: it begins where its tensor does.
  bool spares_first_element() const { return batch_ > 1 && !elements_.contains(0); }
  // Whether a row fails of an element whose keys are as many as there are.
  bool of_longest_element() const { return of_longest_; }
  // Whether O fails in a row whose LSE is right: its scores and what it sees are.
  bool sums_are_right() const { return sums_are_right_; }
  // Whether O is another in some of these rows if the weights of its keys are.
  bool weights_show() const { return weights_show_; }
  // Whether LSE is a known multiple of what it should be: to another base, negated, nothing.
  bool lse_in_other_units() const { return lse_in_other_units_; }
  // Whether no element is off by more than a small part of the largest of its tensor: digits are
  // missing, or a few of many keys.
  bool slight() const { return slight_; }

 private:
  using Row = std::array<Index, 3>;  // batch element, head and position, as stored
  using Rows = boost::container::flat_set<Row>;

  void add(const Subject& subject, PreparedCase& prepared, const Returned& tensor);
  void look_at_rows(const Inputs& inputs);
  void look_at_right_rows(const Inputs& inputs, const Shape& shape);
  void look_at_sums(const Trial& trial, PreparedCase& prepared, const Arithmetic& arithmetic);
  void look_at_sum(const Row& row, double value, double exact);
  void look_at_heads();
  // Of a packed tensor, whose sequences follow each other.
  std::pair<Index, Index> element_and_row(Index b, Index i) const;

  const Problem& problem_;
  Index batch_;
  std::set<TensorName> tensors_ = {};
  Rows missed_rows_ = {}, o_rows_ = {}, lse_rows_ = {};
  Rows empty_ = {}, full_ = {};
  std::set<Index> elements_ = {};
  bool nonfinite_ = false, of_queries_alone_ = true, heads_of_other_groups_ = false;
  bool all_heads_ = false, heads_differ_ = false, of_longest_ = false;
  bool saw_keys_ = false, some_are_right_ = false, full_rows_lack_nothing_ = false;
  bool low_sums_ = false, sums_are_right_ = false, weights_show_ = false;
  bool lse_in_other_units_ = false, slight_ = true;
  Index rows_ = 0, empty_rows_ = 0, beyond_ = 0;
};

}  // namespace attest
