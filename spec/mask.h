// Which keys each query may attend to (SPEC.md, MASK-1 to MASK-8).
//
// A mask is a value: full, a band of the score matrix (causal, window), a dense table of booleans,
// or the intersection or union of masks. A band is placed by its anchor: top_left counts from the
// first query and the first key, bottom_right puts the last query onto the last key.
//
//   causal, top_left                 causal, bottom_right
//   3 queries, 5 keys                3 queries, 5 keys     5 queries, 3 keys
//     x . . . .                        x x x . .             . . .   <- a row without
//     x x . . .                        x x x x .             . . .      keys is legal
//     x x x . .                        x x x x x             x . .      (EMPTY-1)
//                                                            x x .
//                                                            x x x
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "spec/index.h"
#include "spec/tensor.h"

namespace attest {

// The lengths of one batch element: how many of its queries and keys are real.
struct Lengths {
  Index query;
  Index key;
};

// One element of the score matrix.
struct Position {
  Index batch = 0;
  Index head = 0;  // of the query
  Index query = 0;
  Index key = 0;
};

enum class Anchor { top_left, bottom_right };

inline constexpr Index kUnbounded = std::numeric_limits<Index>::max();

// A table of booleans over [batch, head, query, key]; an axis of size 1 holds for all of its
// positions. True means: may attend (as in ONNX and PyTorch; Ascend means the opposite).
struct DenseMask {
  Shape shape;
  std::vector<std::uint8_t> allowed;  // 0 or 1, dense order

  bool at(const Position& p) const {
    const auto pick = [](Index size, Index position) { return size == 1 ? 0 : position; };
    return allowed[static_cast<std::size_t>(
               dense_index(shape, pick(shape[0], p.batch), pick(shape[1], p.head),
                           pick(shape[2], p.query), pick(shape[3], p.key)))] != 0;
  }
};

struct Mask {
  enum class Kind { full, band, dense, all_of, any_of };

  Kind kind = Kind::full;
  // band: query i sees key j iff  -left <= j - (i + shift) <= right, where the shift is `offset`,
  // plus (key length - query length) if the band is anchored at the bottom right.
  Anchor anchor = Anchor::top_left;
  Index offset = 0;
  Index left = kUnbounded;
  Index right = kUnbounded;
  std::shared_ptr<const DenseMask> table = nullptr;  // dense
  std::vector<Mask> parts = {};                      // all_of, any_of

  static Mask full() { return {}; }
  static Mask causal(Anchor anchor, Index offset = 0) {
    return {.kind = Kind::band, .anchor = anchor, .offset = offset, .right = 0};
  }
  static Mask window(Index left, Index right, Anchor anchor, Index offset = 0) {
    return {.kind = Kind::band, .anchor = anchor, .offset = offset, .left = left, .right = right};
  }
  static Mask dense(DenseMask table) {
    return {.kind = Kind::dense, .table = std::make_shared<const DenseMask>(std::move(table))};
  }
  static Mask all_of(std::vector<Mask> parts) {
    return {.kind = Kind::all_of, .parts = std::move(parts)};
  }
  static Mask any_of(std::vector<Mask> parts) {
    return {.kind = Kind::any_of, .parts = std::move(parts)};
  }

  // Whether the query may see the key. This is the definition, in the words of SPEC.md; whatever is
  // faster is derived from it elsewhere and tested against it.
  bool allows(const Position& position, const Lengths& lengths) const {
    switch (kind) {
      case Kind::full:
        return true;
      case Kind::band: {
        const Index shift =
            offset + (anchor == Anchor::bottom_right ? lengths.key - lengths.query : 0);
        const Index ahead = position.key - (position.query + shift);
        return (left == kUnbounded || ahead >= -left) && (right == kUnbounded || ahead <= right);
      }
      case Kind::dense:
        return table->at(position);
      case Kind::all_of:
        for (const Mask& part : parts) {
          if (!part.allows(position, lengths)) return false;
        }
        return true;
      case Kind::any_of:
        for (const Mask& part : parts) {
          if (part.allows(position, lengths)) return true;
        }
        return false;
    }
    return false;
  }
};

// One line: "causal bottom_right", "window -16..0 top_left offset=3", "dense [1,2,8,8]".
std::string to_string(const Mask& mask);

}  // namespace attest
