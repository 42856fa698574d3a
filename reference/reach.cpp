#include "reference/reach.h"

#include "spec/assert.h"

namespace attest {
namespace {

bool has_reaches(const Mask& mask) {
  switch (mask.kind) {
    case Mask::Kind::full:
    case Mask::Kind::band:
    case Mask::Kind::prefix:
      return true;
    case Mask::Kind::all_of:
      return std::all_of(mask.parts.begin(), mask.parts.end(),
                         [](const Mask& part) { return has_reaches(part); });
    default:
      return false;
  }
}

// The key on the diagonal of query 0.
Index shift_of(const Mask& band, const Lengths& lengths) {
  return band.offset + (band.anchor == Anchor::bottom_right ? lengths.key - lengths.query : 0);
}

void cut(Reach& reach, Index begin, Index end) {
  reach.begin = std::max(reach.begin, begin);
  reach.end = std::max(reach.begin, std::min(reach.end, end));
}

void cut_keys(const Mask& mask, const Lengths& lengths, Index b, Index i, Reach& keys) {
  if (mask.kind == Mask::Kind::band) {
    const Index diagonal = i + shift_of(mask, lengths);
    if (mask.left != kUnbounded) cut(keys, diagonal - mask.left, keys.end);
    if (mask.right != kUnbounded) cut(keys, keys.begin, diagonal + mask.right + 1);
  } else if (mask.kind == Mask::Kind::prefix) {
    cut(keys, 0, mask.prefix_of(b));
  }
  for (const Mask& part : mask.parts) cut_keys(part, lengths, b, i, keys);
}

void cut_queries(const Mask& mask, const Lengths& lengths, Index b, Index j, Reach& queries) {
  if (mask.kind == Mask::Kind::band) {
    const Index diagonal = j - shift_of(mask, lengths);
    if (mask.right != kUnbounded) cut(queries, diagonal - mask.right, queries.end);
    if (mask.left != kUnbounded) cut(queries, queries.begin, diagonal + mask.left + 1);
  } else if (mask.kind == Mask::Kind::prefix && j >= mask.prefix_of(b)) {
    cut(queries, 0, 0);
  }
  for (const Mask& part : mask.parts) cut_queries(part, lengths, b, j, queries);
}

}  // namespace

bool has_reaches(const Problem& problem) {
  return !problem.bias_shape && has_reaches(problem.mask);
}

Reach keys_seen(const Problem& problem, Index b, Index i) {
  ATTEST_ASSERT(has_reaches(problem));
  const Lengths lengths = problem.lengths(b);
  Reach keys = {0, i < lengths.query ? lengths.key : 0};
  cut_keys(problem.mask, lengths, b, i, keys);
  return keys;
}

Reach queries_that_see(const Problem& problem, Index b, Index j) {
  ATTEST_ASSERT(has_reaches(problem));
  const Lengths lengths = problem.lengths(b);
  Reach queries = {0, j < lengths.key ? lengths.query : 0};
  cut_queries(problem.mask, lengths, b, j, queries);
  return queries;
}

}  // namespace attest
