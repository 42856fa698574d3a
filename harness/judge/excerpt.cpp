#include "harness/judge/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cases/philox.h"

namespace attest {
namespace {

constexpr Index kGroup = 8, kTile = 64;

using Key = std::array<std::uint32_t, 2>;

// What a drawing is for, so that each has numbers of its own.
enum Stream : std::uint32_t { kQueries, kKeys, kQueryHeads, kKeyHeads };

// Numbers below `end`, the n-th of those for `what` and `whose`.
Index drawn(Key key, Index end, std::uint32_t n, Stream what, Index whose = 0) {
  const auto word = philox({n, what, static_cast<std::uint32_t>(whose), 0}, key)[0];
  return static_cast<Index>(word) % end;
}

std::vector<Index> groups(Index length, Index count, Key key, Stream what) {
  const Index all = (length + kGroup - 1) / kGroup;
  std::set<Index> chosen;
  if (all > 0) chosen = {0, all - 1};
  for (std::uint32_t n = 0; static_cast<Index>(chosen.size()) < std::min(count, all); ++n) {
    chosen.insert(drawn(key, all, n, what));
  }
  return {chosen.begin(), chosen.end()};
}

// The same of one head, which others do not share: the first, the last, then by turns at an edge of
// a tile and anywhere twice. One that has no rows has a group all the same: it is chosen.
std::vector<Index> groups_of_head(Index length, Index count, Key key, Stream what, Index head) {
  const Index all = std::max<Index>((length + kGroup - 1) / kGroup, 1);
  const Index edges = (length - 1) / kTile;  // between tiles
  std::set<Index> chosen = {0, all - 1};
  for (std::uint32_t n = 0; static_cast<Index>(chosen.size()) < std::min(count, all); ++n) {
    if (edges > 0 && n % 3 == 0) {
      const Index edge = 1 + drawn(key, edges, n, what, head);
      chosen.insert(edge * kTile / kGroup - (n / 3 + static_cast<std::uint32_t>(head)) % 2);
    } else {
      chosen.insert(drawn(key, all, n, what, head));
    }
  }
  return {chosen.begin(), chosen.end()};
}

// So many of them: one end, any, the other end, then any.
std::set<Index> heads(Index all, Index count, Key key, Stream what) {
  std::set<Index> chosen;
  const bool last_first = drawn(key, 2, ~0u, what) == 1;
  for (std::uint32_t n = 0; static_cast<Index>(chosen.size()) < std::min(count, all); ++n) {
    chosen.insert(n == 0 || n == 2 ? ((n == 0) == last_first ? all - 1 : 0)
                                   : drawn(key, all, n, what));
  }
  return chosen;
}

Excerpt excerpt_by_heads(const Case& test_case, Key key) {
  const Problem& p = test_case.problem;
  const ExcerptHeads& count = *test_case.excerpt_heads;
  const Index query_heads = p.batch * p.query_heads, key_heads = p.batch * p.key_heads;
  Excerpt excerpt = {.query_groups = std::vector<std::vector<Index>>(std::size_t(query_heads)),
                     .key_groups = std::vector<std::vector<Index>>(std::size_t(key_heads))};
  for (const Index head : heads(query_heads, count.query, key, kQueryHeads)) {
    excerpt.query_groups[std::size_t(head)] = groups_of_head(
        p.lengths(head / p.query_heads).query, test_case.excerpt, key, kQueries, head);
  }
  const auto choose_keys = [&](Index head) {
    excerpt.key_groups[std::size_t(head)] =
        groups_of_head(p.lengths(head / p.key_heads).key, test_case.excerpt, key, kKeys, head);
  };
  if (!p.sink) {
    for (const Index head : heads(key_heads, count.key, key, kKeyHeads)) choose_keys(head);
    return excerpt;
  }
  const Index of_each = std::max<Index>(count.key / std::max<Index>(p.batch, 1), 1);
  for (const Index head : heads(p.key_heads, of_each, key, kKeyHeads)) {
    for (Index b = 0; b < p.batch; ++b) choose_keys(b * p.key_heads + head);
  }
  return excerpt;
}

}  // namespace

std::optional<Excerpt> excerpt_of(const Case& test_case) {
  if (test_case.excerpt == 0) return std::nullopt;
  const Key key = philox_key(test_case.id + "#excerpt");
  if (test_case.excerpt_heads) return excerpt_by_heads(test_case, key);
  const Problem& p = test_case.problem;
  return excerpt_of_all(p, groups(p.query_len, test_case.excerpt, key, kQueries),
                        groups(p.key_len, test_case.excerpt, key, kKeys));
}

std::string shares_of(const Verdict& verdict) {
  std::string text;
  for (const auto& [tensor, e] : verdict.tensors) {
    if (e.compared + e.unspecified >= e.elements) continue;
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", name(tensor), e.compared,
                        e.elements);
  }
  return text.empty() ? text : text + " elements";
}

}  // namespace attest
