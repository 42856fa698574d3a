#include "harness/judge/misses.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "harness/judge/checks.h"
#include "harness/judge/judge.h"
#include "spec/tensor.h"

namespace attest {
namespace {

// Of long problems so many pairs of a query and a key are looked at.
constexpr Index kMostPairs = Index(1) << 22;
// An error of a smaller part of a tensor's largest value is slight.
constexpr double kSlight = 1.0 / 64;
// The sum of a row that sees keys; what stands for -inf lies far below.
constexpr double kModerate = 1000;

std::vector<Index> visible_keys(const Problem& problem, const Inputs& inputs, Position row) {
  std::vector<Index> keys;
  for (row.key = 0; row.key < problem.lengths(row.batch).key; ++row.key) {
    if (sees(problem, inputs, row)) keys.push_back(row.key);
  }
  return keys;
}

// Whether all of these keys have the same V.
bool same_values(const Problem& p, const Inputs& inputs, const Position& row,
                 const std::vector<Index>& keys) {
  const Index head = row.head / p.group_size();
  for (const Index key : keys) {
    const Place a = p.key_place(row.batch, keys[0]), b = p.key_place(row.batch, key);
    for (Index d = 0; d < p.value_dim; ++d) {
      if (inputs.v.at(a.batch, head, a.position, d) != inputs.v.at(b.batch, head, b.position, d)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

Misses::Misses(const Subject& subject, const Trial& trial)
    : problem_(subject.problem()), batch_(subject.problem().batch) {
  // What a testee drew is part of its problem.
  std::optional<PreparedCase> own;
  if (trial.keep) own = subject.prepared.with_keep(*trial.keep);
  PreparedCase& prepared = own ? *own : subject.prepared;
  for (const bool gradients : {false, true}) {
    for (const Returned& tensor : trial.returned) {
      if (is_gradient(tensor.name) == gradients) add(subject, prepared, tensor);
    }
    if (!tensors_.empty()) break;
  }
  if (none()) return;
  look_at_rows(prepared.inputs());
  for (const Returned& tensor : trial.returned) {
    if (has(tensor.name) && is_of_queries(tensor.name)) {
      look_at_right_rows(prepared.inputs(), tensor.shape);
      break;
    }
  }
  look_at_heads();
  if (!gradients()) look_at_sums(trial, prepared, subject.arithmetic);
}

void Misses::add(const Subject& subject, PreparedCase& prepared, const Returned& tensor) {
  const Expected& whole = expected_of(tensor.name, prepared, subject.arithmetic);
  const std::optional<Expected> part = without_exempt(subject, whole, tensor);
  const std::vector<std::size_t> missed =
      beyond_bounds(tensor.bits, tensor.dtype, part ? *part : whole,
                    rounding_of(tensor.name, subject.arithmetic));
  if (missed.empty()) return;
  tensors_.insert(tensor.name);
  of_queries_alone_ &= is_of_queries(tensor.name);
  double largest = 0, off = 0;
  for (const double exact : whole.value) {
    if (std::isfinite(exact)) largest = std::max(largest, std::abs(exact));
  }
  Rows rows;  // in their order: each comes last
  for (const std::size_t i : missed) {
    const double value = decode(tensor.dtype, tensor.bits[i]);
    nonfinite_ |= !std::isfinite(value);
    off = std::max(off, std::abs(value - whole.value[i]));
    if (!is_of_queries(tensor.name)) continue;
    const auto place = coordinates(tensor.shape, static_cast<Index>(i));
    rows.insert(rows.end(), {place[0], place[1], place[2]});
  }
  missed_rows_.insert(boost::container::ordered_unique_range, rows.begin(), rows.end());
  if (tensor.name == TensorName::o) o_rows_ = rows;
  if (tensor.name == TensorName::lse) lse_rows_ = rows;
  slight_ &= off <= kSlight * largest && !nonfinite_;
}

void Misses::look_at_rows(const Inputs& inputs) {
  for (const Row& stored : missed_rows_) {
    if (rows_ * problem_.key_len >= kMostPairs) return;
    ++rows_;
    const auto [b, i] = element_and_row(stored[0], stored[2]);
    const Lengths lengths = problem_.lengths(b);
    const bool is_beyond = i >= lengths.query;
    beyond_ += is_beyond;
    if (is_beyond) continue;
    const Position row = {.batch = b, .head = stored[1], .query = i};
    const std::vector<Index> keys = visible_keys(problem_, inputs, row);
    const auto count = static_cast<Index>(keys.size());
    if (keys.empty()) empty_.insert(empty_.end(), stored);
    empty_rows_ += keys.empty();
    if (count == lengths.key && count > 0) full_.insert(full_.end(), stored);
    elements_.insert(b);
    of_longest_ |= lengths.key == problem_.key_len;
    weights_show_ = weights_show_ || !same_values(problem_, inputs, row, keys);
  }
}

// Stops at the first row that is right and sees several keys.
void Misses::look_at_right_rows(const Inputs& inputs, const Shape& shape) {
  Index looked_at = 0;
  for (Index at = 0; at < shape[0] * shape[1] * shape[2]; ++at) {
    const Row row = {at / (shape[1] * shape[2]), at / shape[2] % shape[1], at % shape[2]};
    if (missed_rows_.contains(row)) continue;
    if (!heads_differ_) {
      for (Index h = 0; h < shape[1]; ++h)
        heads_differ_ |= missed_rows_.contains({row[0], h, row[2]});
    }
    if (some_are_right_ || ++looked_at * problem_.key_len >= kMostPairs) continue;
    const auto [b, i] = element_and_row(row[0], row[2]);
    if (i >= problem_.lengths(b).query || !elements_.contains(b)) continue;
    const Position place = {.batch = b, .head = row[1], .query = i};
    some_are_right_ = visible_keys(problem_, inputs, place).size() > 1;
  }
}

void Misses::look_at_sums(const Trial& trial, PreparedCase& prepared,
                          const Arithmetic& arithmetic) {
  constexpr double kLog2OfE = 1.4426950408889634;
  for (const Returned& lse : trial.returned) {
    if (lse.name != TensorName::lse) continue;
    for (const Row& row : o_rows_) sums_are_right_ |= !lse_rows_.contains(row);
    const std::vector<double>& exact = expected_of(lse.name, prepared, arithmetic).value;
    const auto place = [&](const Row& row) {
      return static_cast<std::size_t>(dense_index(lse.shape, row[0], row[1], row[2], 0));
    };
    for (const Row& row : lse_rows_) {
      look_at_sum(row, decode(lse.dtype, lse.bits[place(row)]), exact[place(row)]);
    }
    for (const double factor : {kLog2OfE, 1 / kLog2OfE, -1.0, 0.0}) {
      lse_in_other_units_ |= std::all_of(lse_rows_.begin(), lse_rows_.end(), [&](const Row& row) {
        const double value = decode(lse.dtype, lse.bits[place(row)]);
        const double wanted = factor * exact[place(row)];
        return std::isfinite(value) &&
               std::abs(value - wanted) <= 1e-3 * std::abs(exact[place(row)]);
      });
    }
  }
}

void Misses::look_at_sum(const Row& row, double value, double exact) {
  if (empty_.contains(row)) {
    saw_keys_ |= o_rows_.contains(row) && std::abs(value) < kModerate;
    return;
  }
  const bool low = value < exact;
  low_sums_ |= low;
  full_rows_lack_nothing_ |= full_.contains(row) && !low;
}

void Misses::look_at_heads() {
  std::set<Index> heads, others;
  for (const Row& row : missed_rows_) heads.insert(row[1]);
  all_heads_ = static_cast<Index>(heads.size()) == problem_.query_heads;
  if (problem_.key_heads <= 1 || problem_.key_heads == problem_.query_heads) return;
  for (Index h = 0; h < problem_.query_heads; ++h) {
    if (h / problem_.group_size() != h % problem_.key_heads) others.insert(h);
  }
  heads_of_other_groups_ = !heads.empty() && heads == others;
}

std::pair<Index, Index> Misses::element_and_row(Index b, Index i) const {
  if (!problem_.packed) return {b, i};
  const Index element = problem_.query_lens.element_of(i);
  return {element, i - problem_.query_lens.start(element)};
}

}  // namespace attest
