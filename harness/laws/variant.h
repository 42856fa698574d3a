// How laws make one problem of another: the same queries and keys in another order or number, and
// numbers of which a few can be added without rounding.
#pragma once

#include <functional>

#include "harness/laws/experiment.h"

namespace attest::laws {

// A tensor of which element (b, h, s, c) is at(b, h, s, c).
template <class Element>
Values tabulated(const Shape& shape, const Element& at) {
  Values values = zeros(shape);
  for (Index n = 0; n < element_count(shape); ++n) {
    const auto [b, h, s, c] = coordinates(shape, n);
    values.data[static_cast<std::size_t>(n)] = at(b, h, s, c);
  }
  return values;
}

// Calls visit(row, its place in Q, O and LSE) for each query within its length, of each query head.
template <class Visit>
void for_each_query(const Problem& p, const Visit& visit) {
  for (Position row = {}; row.batch < p.batch; ++row.batch) {
    for (row.head = 0; row.head < p.query_heads; ++row.head) {
      for (row.query = 0; row.query < p.lengths(row.batch).query; ++row.query) {
        visit(row, p.query_place(row.batch, row.query));
      }
    }
  }
}

// The nearest multiple of 1/8 within +-8: sums of a few such numbers below 32 are exact in every
// format, 8 digits being enough.
double coarse(double x);
Values coarse(Values values);

// A whole number within +-16, of which kernels add up many exactly.
double whole(double x);

// The largest size of an element; 0 if there is none.
double largest_of(const Values& values);

// x - 2 y, element by element; exact for coarse numbers.
Values less_twice(const Values& x, const Values& y);

// The coarse numbers of a tensor in other places: other heads, positions and channels.
Values shuffled(const Values& values);

// Which queries and keys of a problem another one has. Its keys and queries lie one after the other
// in each batch element, neither packed nor paged, in the usual layout.
struct Selection {
  Index query_len, key_len;
  std::function<Index(Index b, Index i)> query = [](Index, Index i) { return i; };
  std::function<Index(Index b, Index j)> key = [](Index, Index j) { return j; };
};

// The problem of these queries and keys, under `mask`, which counts them anew; what has no
// counterpart within the lengths is 0. The lengths are left as they are.
Variant selected(const Problem& problem, const Inputs& inputs, const Selection& selection,
                 const Mask& mask);

// The mask of the problem on these queries and keys, as a table; full stays full.
Mask mask_of(const Problem& problem, const Selection& selection);

}  // namespace attest::laws
