// The numbers of one row, q.k and all that joins them, wherever the problem's tensors hold them.
#pragma once

#include <cmath>

#include "reference/exact_bound.h"

namespace attest::exact_bound {

struct View {
  const Problem& p;
  const Inputs& in;
  Index b, h, i;  // batch element, query head, query
  Index key_head = h / p.group_size();
  Place row = p.query_place(b, i);

  Position position(Index j) const { return {.batch = b, .head = h, .query = i, .key = j}; }
  Real q(Index c) const { return in.q.at(row.batch, h, row.position, c); }
  Real d_o(Index c) const { return in.d_o.at(row.batch, h, row.position, c); }
  Real lambda() const { return p.d_lse ? in.d_lse.at(row.batch, h, row.position, 0) : 0; }
  Real k(Index j, Index c) const { return at_key(in.k, j, c); }
  Real v(Index j, Index c) const { return at_key(in.v, j, c); }
  Real s_z() const { return p.sink ? in.sink.at(0, h, 0, 0) : 0; }

  // The element of the bias that key j reads.
  std::size_t bias_element(Index j) const { return broadcast_index(*p.bias_shape, position(j)); }
  Real bias(Index j) const { return p.bias_shape ? Real(in.bias.data[bias_element(j)]) : 0; }
  Real slope() const {
    if (!p.slopes_shape) return 0;
    return in.slopes.data[broadcast_index(*p.slopes_shape, {.batch = b, .head = h})];
  }
  Real alpha(Index j) const {
    const Lengths lengths = p.lengths(b);
    return slope() * Real(std::abs(i + lengths.key - lengths.query - j));
  }
  bool sees(Index j) const { return visible(p, position(j)) && !std::isinf(bias(j)); }
  bool keeps(Index j) const {
    return p.dropout.mode == Dropout::Mode::none || in.keep.at(position(j));
  }

 private:
  Real at_key(const Values& values, Index j, Index c) const {
    const Place place = p.key_place(b, j);
    return values.at(place.batch, key_head, place.position, c);
  }
};

}  // namespace attest::exact_bound
