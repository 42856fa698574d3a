// Where the elements of a tensor lie: shape, layout, strides.
//
// Every tensor of a Problem has four axes, in the order batch, head, position, channel; LSE has one
// channel. A Layout says in which order the axes follow each other in memory and what lies between
// the rows; strides are counted in elements (SPEC.md, LAYOUT-1 to LAYOUT-3).
//
//   layout "bhsd"           b0h0s0d0 b0h0s0d1 ... one head after the other
//   layout "bshd"           all heads of a position side by side (also called BSH)
//   layout "bhds"           transposed: channels lie far apart
//   layout "bhsd gap=3"     three elements of slack after each innermost run
//   layout "bhsd expand=h"  one head in memory, read by all (stride 0)
//   layout "bhsd wild"      axes of size 1 carry a senseless stride, which nothing may use
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "spec/index.h"

namespace attest {

enum Axis { kBatch, kHead, kPosition, kChannel };

using Shape = std::array<Index, 4>;
using Strides = std::array<Index, 4>;

constexpr Index element_count(const Shape& shape) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}

// The place of an element in the dense order: batch outermost, channel innermost.
constexpr Index dense_index(const Shape& shape, Index b, Index h, Index s, Index d) {
  return ((b * shape[kHead] + h) * shape[kPosition] + s) * shape[kChannel] + d;
}

// A tensor broadcasts along an axis of size 1: its only element there holds for all positions.
constexpr Index broadcast(Index size, Index position) { return size == 1 ? 0 : position; }

// The place, in the dense order, of the element that holds at a position.
constexpr Index broadcast_index(const Shape& shape, Index b, Index h, Index s, Index d) {
  return dense_index(shape, broadcast(shape[kBatch], b), broadcast(shape[kHead], h),
                     broadcast(shape[kPosition], s), broadcast(shape[kChannel], d));
}

// A part of a tensor.
struct Box {
  Shape begin, size;
};

// Its elements, of those of the whole in dense order.
template <class T>
std::vector<T> cut(const std::vector<T>& whole, const Shape& shape, const Box& box) {
  std::vector<T> part;
  part.reserve(static_cast<std::size_t>(element_count(box.size)));
  for (Index b = 0; b < box.size[0]; ++b) {
    for (Index h = 0; h < box.size[1]; ++h) {
      for (Index s = 0; s < box.size[2]; ++s) {
        if (box.size[3] == 0) continue;
        const auto row = whole.begin() + dense_index(shape, box.begin[0] + b, box.begin[1] + h,
                                                     box.begin[2] + s, box.begin[3]);
        part.insert(part.end(), row, row + box.size[3]);
      }
    }
  }
  return part;
}

// The four coordinates of a dense index: its inverse.
constexpr std::array<Index, 4> coordinates(const Shape& shape, Index dense) {
  const Index d = dense % shape[kChannel], row = dense / shape[kChannel];
  const Index s = row % shape[kPosition], plane = row / shape[kPosition];
  return {plane / shape[kHead], plane % shape[kHead], s, d};
}

class Layout {
 public:
  Layout() = default;

  // Parses the notation above; throws InputError for anything else.
  static Layout parse(std::string_view text);

  Strides strides(const Shape& shape) const;

  // How many elements the tensor spans in memory, gaps included; 0 if it has no element.
  Index span(const Shape& shape) const;

  // Whether the channels of a row lie apart, with another axis between them.
  bool transposes() const { return order_.back() != kChannel; }

  // Whether the elements along `axis` are one and the same (stride 0).
  bool expands(Axis axis) const { return expanded_[axis]; }
  bool expands() const { return expanded_ != std::array<bool, 4>{}; }  // along any

  // Elements of slack after each innermost run.
  Index gap() const { return gap_; }
  // Whether axes of size 1 have a stride that nothing may use.
  bool is_wild() const { return wild_; }

  std::string order() const;  // of its axes, outermost first: "bshd"
  std::string to_string() const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::array<Axis, 4> order_ = {kBatch, kHead, kPosition, kChannel};  // outermost first
  Index gap_ = 0;
  std::array<bool, 4> expanded_ = {};
  bool wild_ = false;
};

// The numbers of a tensor in dense order, each one exactly representable in the problem's dtype.
struct Values {
  Shape shape = {};
  std::vector<double> data = {};
  friend bool operator==(const Values&, const Values&) = default;

  double at(Index b, Index h, Index s, Index d) const {
    return data[static_cast<std::size_t>(dense_index(shape, b, h, s, d))];
  }
  double& at(Index b, Index h, Index s, Index d) {
    return data[static_cast<std::size_t>(dense_index(shape, b, h, s, d))];
  }
};

inline Values zeros(const Shape& shape) {
  return {shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
}

}  // namespace attest
