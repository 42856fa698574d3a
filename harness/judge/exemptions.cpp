#include "harness/judge/exemptions.h"

#include "harness/judge/schedule.h"

namespace attest {
namespace {

bool sees_a_key(const Problem& p, const Inputs& in, Position position) {
  const Index keys = p.lengths(position.batch).key;
  for (position.key = 0; position.key < keys; ++position.key) {
    if (sees(p, in, position)) return true;
  }
  return false;
}

// What LSE of empty rows is, as it is made of what they hold; none where that is said in words.
std::optional<double> lse_of_empty(const Dialect& dialect, const Problem& p) {
  const auto stored = [&](TensorName tensor) -> std::optional<double> {
    const auto value = dialect.empty(tensor).value;
    if (!value) return std::nullopt;
    return round_to(p.lse_dtype(), *value);
  };
  const auto tensors = dialect.statistics();
  const auto first = stored(tensors.front()), last = stored(tensors.back());
  if (!first || !last) return std::nullopt;
  if (dialect.lse == LseForm{}) return first;
  return natural_lse(dialect.lse, *first, *last);
}

}  // namespace

Exemptions::Exemptions(const Problem& p, const Inputs& in, const Description& testee) {
  const Dialect& dialect = testee.dialect;
  const bool skips_padding = testee.leaves_padding_unwritten && !p.packed && !p.query_lens.empty();
  const bool o_differs = dialect.empty_o.differs;
  const bool lse_differs = testee.returns_lse(p.dtype) && dialect.lse_of_empty_differs();
  if (!skips_padding && !o_differs && !lse_differs) return;
  o_ = dialect.empty_o.value;
  lse_ = lse_of_empty(dialect, p);
  const Shape shape = p.lse_shape();
  const auto rows = static_cast<std::size_t>(element_count(shape));
  std::vector<bool> padding(rows), empty_o(rows), empty_lse(rows);
  bool any_padding = false, any_o = false, any_lse = false;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.stored_queries(b); ++i) {
        const Place place = p.query_place(b, i);
        const auto row =
            static_cast<std::size_t>(dense_index(shape, place.batch, h, place.position, 0));
        const bool real = i < p.lengths(b).query;
        if (skips_padding && !real) {
          padding[row] = any_padding = true;
          continue;
        }
        if (!o_differs && !lse_differs) continue;
        if (sees_a_key(p, in, {.batch = b, .head = h, .query = i})) continue;
        // A number is of rows without a sink: with one, O is 0 and LSE its logit (EMPTY-4).
        const bool of_sink = p.sink && real;
        if (o_differs && !(of_sink && o_)) empty_o[row] = any_o = true;
        if (lse_differs && !(of_sink && lse_)) empty_lse[row] = any_lse = true;
      }
    }
  }
  if (any_padding) padding_ = std::move(padding);
  if (any_o) empty_o_ = std::move(empty_o);
  if (any_lse) empty_lse_ = std::move(empty_lse);
}

}  // namespace attest
