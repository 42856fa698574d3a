#include "harness/judge/excerpt.h"

#include <algorithm>
#include <set>

#include "cases/philox.h"

namespace attest {
namespace {

std::vector<Index> groups(Index length, Index count, std::array<std::uint32_t, 2> key,
                          std::uint32_t stream) {
  const Index all = (length + 7) / 8;
  std::set<Index> chosen;
  if (all > 0) chosen = {0, all - 1};
  for (std::uint32_t n = 0; static_cast<Index>(chosen.size()) < std::min(count, all); ++n) {
    chosen.insert(static_cast<Index>(philox({n, stream, 0, 0}, key)[0]) % all);
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

std::optional<Excerpt> excerpt_of(const Case& test_case) {
  if (test_case.excerpt == 0) return std::nullopt;
  const auto key = philox_key(test_case.id + "#excerpt");
  const Problem& p = test_case.problem;
  return Excerpt{.query_groups = groups(p.query_len, test_case.excerpt, key, 0),
                 .key_groups = groups(p.key_len, test_case.excerpt, key, 1)};
}

}  // namespace attest
