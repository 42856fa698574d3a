#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "harness/judge/checks.h"
#include "spec/contains.h"

namespace attest {
namespace {

// The batch element whose tensor says nothing, as zeros would pass for all of it too; none if there
// is none. What is far smaller than its bound is zero by itself, as dQ of a row with one key.
std::optional<Index> passes_as_zeros(const Problem& p, const Returned& tensor,
                                     const Expected& expected) {
  constexpr double kZero = 0x1p-10;  // of its bound
  const bool of_keys = is_of_keys(tensor.name);
  std::vector<bool> some(static_cast<std::size_t>(p.batch)), tells(some);
  for (std::size_t i = 0; i < expected.value.size(); ++i) {
    const double exact = std::abs(expected.value[i]), bound = expected.bound[i];
    if (!(exact > kZero * bound)) continue;  // NaN too
    auto [b, h, s, d] = coordinates(tensor.shape, static_cast<Index>(i));
    if (p.packed) b = (of_keys ? p.key_lens : p.query_lens).element_of(s);
    some[static_cast<std::size_t>(b)] = true;
    if (exact > bound) tells[static_cast<std::size_t>(b)] = true;
  }
  for (std::size_t b = 0; b < some.size(); ++b) {
    if (some[b] && !tells[b]) return static_cast<Index>(b);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> check_zeros(PreparedCase& prepared, const Arithmetic& arithmetic,
                                   const Trial& trial) {
  using enum TensorName;
  const Problem& p = prepared.problem();
  for (const Returned& tensor : trial.returned) {
    if (!is_among(tensor.name, std::array{o, dq, dk, dv})) continue;
    if (p.paging.page_size > 0 && is_of_keys(tensor.name)) continue;  // pages are of any element
    const auto element = passes_as_zeros(p, tensor, expected_of(tensor.name, prepared, arithmetic));
    if (!element) continue;
    const std::string of = p.batch > 1 ? fmt::format(" of batch element {}", *element) : "";
    return Finding{.outcome = Outcome::inconclusive,
                   .message = fmt::format("zeros would pass for {}{} too, all of which is smaller "
                                          "than its bound; fewer keys, or a tighter arithmetic, "
                                          "tell more",
                                          name(tensor.name), of)};
  }
  return std::nullopt;
}

}  // namespace attest
