#include "harness/judge/exemptions.h"

#include "harness/judge/schedule.h"

namespace attest {
namespace {

bool sees_a_key(const Problem& p, const Inputs& in, Position position) {
  const Index keys = p.lengths(position.batch).key;
  for (position.key = 0; position.key < keys; ++position.key) {
    if (visible(p, position) && !bias_hides(p, in, position)) return true;
  }
  return false;
}

}  // namespace

Exemptions::Exemptions(const Problem& p, const Inputs& in, const Description& testee)
    : empty_o_(testee.empty_o_differs), empty_lse_(testee.empty_lse_differs && testee.has("lse")) {
  const bool skips_padding = testee.leaves_padding_unwritten && !p.packed && !p.query_lens.empty();
  const bool dialect = empty_o_ || empty_lse_;
  if (!skips_padding && !dialect) return;
  const Shape shape = p.lse_shape();
  const auto rows = static_cast<std::size_t>(element_count(shape));
  std::vector<bool> padding(rows), empty(rows);
  bool any_padding = false, any_empty = false;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.stored_queries(b); ++i) {
        const Place place = p.query_place(b, i);
        const auto row =
            static_cast<std::size_t>(dense_index(shape, place.batch, h, place.position, 0));
        if (skips_padding && i >= p.lengths(b).query) {
          padding[row] = any_padding = true;
        } else if (dialect && !sees_a_key(p, in, {.batch = b, .head = h, .query = i})) {
          empty[row] = any_empty = true;
        }
      }
    }
  }
  if (any_padding) padding_ = std::move(padding);
  if (any_empty) empty_ = std::move(empty);
}

}  // namespace attest
