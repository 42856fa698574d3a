#include "cases/shape_excerpt.h"

#include <algorithm>

namespace attest {
namespace {

// Work is counted in pairs of a row and a key times channels, 4 of which take the reference about a
// nanosecond on one core; each pair has some that depends on no channel.
constexpr double kOfPair = 64;
constexpr double kOfRows = 12e9, kOfKeys = 24e9;
constexpr Index kGroup = 8, kFewGroups = 8, kManyGroups = 16;

// The keys that lie between the first and the last that a row sees, on the mean over some rows.
double keys_of_a_row(const Problem& p) {
  constexpr Index kRows = 32;
  double sum = 0;
  for (Index n = 0; n < kRows; ++n) {
    Position at = {.batch = n % p.batch};
    const Lengths lengths = p.lengths(at.batch);
    at.query = std::max<Index>(lengths.query - 1, 0) * n / (kRows - 1);
    Index first = lengths.key, last = -1;
    for (at.key = 0; lengths.query > 0 && at.key < lengths.key; ++at.key) {
      if (!visible(p, at)) continue;
      first = std::min(first, at.key);
      last = at.key;
    }
    sum += double(std::max<Index>(last - first + 1, 0));
  }
  return sum / double(kRows);
}

// Of one row of one head. In long double all takes ten times as long.
double work_of_row(const Problem& p) {
  const double slower = p.dtype == DType::f64 ? 10 : 1;
  return slower * keys_of_a_row(p) * (double(p.head_dim + p.value_dim) + kOfPair);
}

Index at_least_one(double count, Index most) {
  return std::clamp<Index>(static_cast<Index>(std::min(count, double(most))), 1,
                           std::max<Index>(most, 1));
}

}  // namespace

void choose_excerpt(Case& test_case, double share) {
  const Problem& p = test_case.problem;
  if (test_case.excerpt > 0 || p.batch == 0 || p.query_heads == 0) return;
  const double of_row = work_of_row(p), of_head = of_row * double(p.query_len);
  const Index query_heads = p.batch * p.query_heads, key_heads = p.batch * p.key_heads;
  if (of_head * double(query_heads) <= share * kOfRows) return;
  const auto fit = [&](Index groups) {
    return share * kOfRows / (of_row * double(groups * kGroup));
  };
  test_case.excerpt = fit(kManyGroups) < double(query_heads) ? kFewGroups : kManyGroups;
  test_case.excerpt_heads = {
      .query = at_least_one(fit(test_case.excerpt), query_heads),
      .key = at_least_one(share * kOfKeys / (of_head * double(p.group_size())), key_heads)};
}

void choose_laws(Case& test_case) {
  constexpr Index kFew = Index(1) << 22;  // elements
  const Problem& p = test_case.problem;
  const Mask::Kind kind = p.mask.kind;
  const bool side_by_side = kind == Mask::Kind::full || kind == Mask::Kind::band;
  const bool adds = p.bias_shape || p.slopes_shape || p.sink;
  if (test_case.excerpt == 0 || !test_case.laws.empty() || !side_by_side || adds || p.softcap > 0 ||
      p.dropout.mode != Dropout::Mode::none ||
      element_count(p.q_shape()) + element_count(p.k_shape()) > kFew) {
    return;
  }
  test_case.laws = {"finite"};
}

}  // namespace attest
