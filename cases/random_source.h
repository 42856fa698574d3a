// The random numbers that inputs are made of: every element of every tensor has its own, which
// depend on the case and the element's place in the formulas alone, however the tensor is stored.
// So equal elements of two layouts hold equal numbers, and any element can be made by itself.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "cases/case.h"
#include "cases/normal.h"
#include "cases/philox.h"
#include "spec/tensor.h"

namespace attest {

// The tensors that input classes fill; the others have the numbers of their names.
enum MainTensor { kQ, kK, kV, kDO };

using Coordinates = std::array<Index, 4>;

// The random numbers of one element: as many as it wants, each from its own counter.
class ElementRandom {
 public:
  ElementRandom(std::array<std::uint32_t, 2> key, Index element, std::uint32_t stream)
      : key_(key), element_(static_cast<std::uint64_t>(element)), stream_(stream) {}

  Philox next() {
    return philox({static_cast<std::uint32_t>(element_), static_cast<std::uint32_t>(element_ >> 32),
                   draw_++, stream_},
                  key_);
  }

  double normal() { return normal_from(next()); }

  double uniform() { return next()[0] / 4294967296.0; }  // [0, 1)

  // Student's t with two degrees of freedom, whose distribution function has a closed inverse.
  // Within +-256, so that no score is too large for a bound that says something.
  double heavy() {
    const double u = ((next()[0] >> 16) + 0.5) / 65536.0;
    return (2 * u - 1) / std::sqrt(2 * u * (1 - u));
  }

  Index integer(Index low, Index high) {  // both ends included
    const auto count = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<Index>((next()[0] * count) >> 32);
  }

  double sign() { return next()[0] >> 31 ? -1.0 : 1.0; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t element_;
  std::uint32_t stream_, draw_ = 0;
};

// Where an element lies that others share: along an expanded axis all are the first.
inline Coordinates canonical(const Layout& layout, Coordinates at) {
  for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
    if (layout.expands(axis)) at[axis] = 0;
  }
  return at;
}

// Of the random numbers of a tensor.
std::array<std::uint32_t, 2> key_of(const Case& test_case, TensorName tensor);

// Gives each element of each tensor its random numbers. Coordinates are those of the formulas, with
// b, i and j, however the tensor is stored. Those along an expanded axis count as 0, so expanded
// elements are equal.
class RandomSource {
 public:
  explicit RandomSource(const Case& test_case);

  const Shape& stored_shape(MainTensor tensor) const { return stored_[tensor]; }

  // The coordinates in the formulas of an element at its stored ones.
  Coordinates owner(MainTensor tensor, Coordinates at) const {
    at = canonical(tensor, at);
    const auto& owners = owners_[tensor == kK || tensor == kV];
    const Place place =
        owners[static_cast<std::size_t>(at[kBatch] * stored_[tensor][kPosition] + at[kPosition])];
    return {place.batch, at[kHead], place.position, at[kChannel]};
  }

  Coordinates canonical(MainTensor tensor, Coordinates at) const {
    return attest::canonical(layouts_[tensor], at);
  }

  // A stream is an independent sequence: what several elements share has a stream of its own.
  ElementRandom random(MainTensor tensor, Coordinates at, std::uint32_t stream = 0) const {
    const auto [b, h, s, d] = canonical(tensor, at);
    return ElementRandom(keys_[tensor], dense_index(shapes_[tensor], b, h, s, d), stream);
  }

  // random({b, h, s, d}).normal() of the channels of a row that are not one and the same.
  void normal_row(MainTensor tensor, Coordinates at, std::span<double> row) const {
    const auto [b, h, s, d] = canonical(tensor, at);
    const Index first = dense_index(shapes_[tensor], b, h, s, 0);
    normal_numbers(keys_[tensor], static_cast<std::uint64_t>(first), row);
  }

  const Problem& problem;

 private:
  std::array<Shape, 4> stored_, shapes_;
  std::array<Layout, 4> layouts_;
  std::array<std::array<std::uint32_t, 2>, 4> keys_;
  std::array<std::vector<Place>, 2> owners_;  // of queries, of keys
};

}  // namespace attest
