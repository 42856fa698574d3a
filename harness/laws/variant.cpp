#include "harness/laws/variant.h"

#include <algorithm>
#include <cmath>

namespace attest::laws {

double coarse(double x) {
  return std::isfinite(x) ? std::clamp(std::nearbyint(8 * x) / 8, -8.0, 8.0) : x;
}

Values coarse(Values values) {
  for (double& x : values.data) x = coarse(x);
  return values;
}

double whole(double x) { return std::nearbyint(2 * coarse(x)); }

double largest_of(const Values& values) {
  double most = 0;
  for (const double x : values.data) most = std::max(most, std::abs(x));
  return most;
}

Values less_twice(const Values& x, const Values& y) {
  Values sum = x;
  for (std::size_t n = 0; n < sum.data.size(); ++n) sum.data[n] -= 2 * y.data[n];
  return sum;
}

Values shuffled(const Values& values) {
  const Shape& shape = values.shape;
  return coarse(tabulated(shape, [&](Index b, Index h, Index s, Index c) {
    return values.at(b, (h + 1) % shape[1], shape[2] - 1 - s, (c + 1) % shape[3]);
  }));
}

Variant selected(const Problem& whole, const Inputs& in, const Selection& selection,
                 const Mask& mask) {
  Variant variant = {whole, in};
  Problem& p = variant.problem;
  p.packed = false;
  p.paging = {};
  p.layouts = {};
  p.query_len = selection.query_len;
  p.key_len = selection.key_len;
  p.mask = mask;

  const auto of_query = [&](const Values& values, const Shape& shape) {
    return tabulated(shape, [&](Index b, Index h, Index s, Index c) {
      const Index i = selection.query(b, s);
      if (i >= whole.stored_queries(b)) return 0.0;
      const Place place = whole.query_place(b, i);
      return values.at(place.batch, h, place.position, c);
    });
  };
  const auto of_key = [&](const Values& values, const Shape& shape) {
    return tabulated(shape, [&](Index b, Index h, Index s, Index c) {
      const Index j = selection.key(b, s);
      if (j >= whole.stored_keys(b)) return 0.0;
      const Place place = whole.key_place(b, j);
      return values.at(place.batch, h, place.position, c);
    });
  };
  // An axis of size 1 holds for all positions, and does so still.
  const auto query_at = [&](Index size, Index b, Index i) {
    return broadcast(size, selection.query(b, i));
  };
  const auto key_at = [&](Index size, Index b, Index j) {
    return broadcast(size, selection.key(b, j));
  };
  Inputs& own = variant.inputs;
  own.q = of_query(in.q, p.q_shape());
  own.k = of_key(in.k, p.k_shape());
  own.v = of_key(in.v, p.v_shape());
  if (p.backward) own.d_o = of_query(in.d_o, p.o_shape());
  if (p.d_lse) own.d_lse = of_query(in.d_lse, p.lse_shape());
  if (whole.bias_shape) {
    const Shape old = *whole.bias_shape;
    p.bias_shape =
        Shape{old[0], old[1], old[2] == 1 ? 1 : p.query_len, old[3] == 1 ? 1 : p.key_len};
    own.bias = tabulated(*p.bias_shape, [&](Index b, Index h, Index i, Index j) {
      const Index query = query_at(old[2], b, i), key = key_at(old[3], b, j);
      return query < old[2] && key < old[3] ? in.bias.at(b, h, query, key) : 0.0;
    });
  }
  if (whole.dropout.mode == Dropout::Mode::given) {
    const Keep& keep = in.keep;
    own.keep = {p.keep_shape(), {}};
    for (Index n = 0; n < element_count(own.keep.shape); ++n) {
      const auto [b, h, i, j] = coordinates(own.keep.shape, n);
      const Position at = {
          .batch = b, .head = h, .query = selection.query(b, i), .key = selection.key(b, j)};
      own.keep.kept.push_back(at.query < keep.shape[2] && at.key < keep.shape[3] && keep.at(at));
    }
  }
  return variant;
}

Mask mask_of(const Problem& problem, const Selection& selection) {
  if (problem.mask.kind == Mask::Kind::full) return Mask::full();
  DenseMask table = {
      .shape = {problem.batch, problem.query_heads, selection.query_len, selection.key_len},
      .allowed = {}};
  for (Index n = 0; n < element_count(table.shape); ++n) {
    const auto [b, h, i, j] = coordinates(table.shape, n);
    table.allowed.push_back(visible(
        problem,
        {.batch = b, .head = h, .query = selection.query(b, i), .key = selection.key(b, j)}));
  }
  return Mask::dense(std::move(table));
}

}  // namespace attest::laws
