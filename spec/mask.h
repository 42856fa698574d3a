// Which keys each query may attend to (SPEC.md, MASK-1 to MASK-13).
//
// A mask is a value: full, a band of the score matrix (causal, window), a table of booleans for
// single elements or for blocks of them, a prefix, segments, a dilation, or the intersection or
// union of masks. A band is placed by its anchor: top_left counts from the
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
#include <string_view>
#include <variant>
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
constexpr std::string_view name(Anchor anchor) {
  return anchor == Anchor::top_left ? "top_left" : "bottom_right";
}

inline constexpr Index kUnbounded = std::numeric_limits<Index>::max();

// How many intersections and unions may lie within each other (MASK-9).
inline constexpr int kDeepestMask = 64;

// Which element of a table over [batch, head, query, key] holds for a pair.
inline std::size_t broadcast_index(const Shape& shape, const Position& p) {
  return static_cast<std::size_t>(broadcast_index(shape, p.batch, p.head, p.query, p.key));
}

// A table of booleans over [batch, head, query, key]; an axis of size 1 holds for all of its
// positions. True means: may attend (as in ONNX and PyTorch; Ascend means the opposite).
struct DenseMask {
  Shape shape;
  std::vector<std::uint8_t> allowed;  // 0 or 1, dense order

  bool at(const Position& p) const { return allowed[broadcast_index(shape, p)] != 0; }
  friend bool operator==(const DenseMask&, const DenseMask&) = default;
};

// Which segment (document) each query and each key belongs to: [batches, length], `batches` being B
// or 1. A negative number belongs to nothing.
struct SegmentNumbers {
  Index batches = 1;
  Index length = 0;
  std::vector<std::int32_t> number = {};  // batch outermost

  std::int32_t at(Index batch, Index position) const {
    return number[static_cast<std::size_t>(broadcast(batches, batch) * length + position)];
  }
  friend bool operator==(const SegmentNumbers&, const SegmentNumbers&) = default;
};
struct Segments {
  SegmentNumbers query, key;
  friend bool operator==(const Segments&, const Segments&) = default;
};

struct Mask {
  enum class Kind { full, band, dense, prefix, segments, block_sparse, dilated, all_of, any_of };

  Kind kind = Kind::full;
  // band: query i sees key j iff  -left <= j - (i + shift) <= right, where the shift is `offset`,
  // plus (key length - query length) if the band is anchored at the bottom right.
  Anchor anchor = Anchor::top_left;  // band, dilated
  Index offset = 0;                  // band, dilated
  Index left = kUnbounded;
  Index right = kUnbounded;
  // dense: a table of elements; block_sparse: of blocks, whose last two axes do not broadcast.
  std::shared_ptr<const DenseMask> table = nullptr;
  Index block_query = 1, block_key = 1;  // block_sparse: the size of a block
  std::vector<Index> prefix_lens = {};   // prefix: one a batch element, or one for all
  std::shared_ptr<const Segments> segments = nullptr;  // segments
  Index dilation = 1;                                  // dilated
  std::vector<Mask> parts = {};                        // all_of, any_of

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
  static Mask prefix(std::vector<Index> lens) {
    return {.kind = Kind::prefix, .prefix_lens = std::move(lens)};
  }
  static Mask documents(Segments numbers) {
    return {.kind = Kind::segments,
            .segments = std::make_shared<const Segments>(std::move(numbers))};
  }
  static Mask block_sparse(Index block_query, Index block_key, DenseMask table) {
    return {.kind = Kind::block_sparse,
            .table = std::make_shared<const DenseMask>(std::move(table)),
            .block_query = block_query,
            .block_key = block_key};
  }
  static Mask dilated(Index dilation, Anchor anchor, Index offset = 0) {
    return {.kind = Kind::dilated, .anchor = anchor, .offset = offset, .dilation = dilation};
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
        const Index ahead = position.key - diagonal(position, lengths);
        return (left == kUnbounded || ahead >= -left) && (right == kUnbounded || ahead <= right);
      }
      case Kind::dense:
        return table->at(position);
      case Kind::prefix:
        return position.key < prefix_of(position.batch);
      case Kind::segments: {
        const std::int32_t query = segments->query.at(position.batch, position.query);
        return query >= 0 && query == segments->key.at(position.batch, position.key);
      }
      case Kind::block_sparse:
        return table->at({.batch = position.batch,
                          .head = position.head,
                          .query = position.query / block_query,
                          .key = position.key / block_key});
      case Kind::dilated:
        return (position.key - diagonal(position, lengths)) % dilation == 0;
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

  // prefix: how many keys that batch element has of it.
  Index prefix_of(Index batch) const {
    return prefix_lens[prefix_lens.size() == 1 ? 0 : static_cast<std::size_t>(batch)];
  }

  // The same, written the same way; tables by what is in them.
  friend bool operator==(const Mask& a, const Mask& b);

 private:
  // The key on the diagonal of a band or a dilation.
  Index diagonal(const Position& position, const Lengths& lengths) const {
    const Index corner = anchor == Anchor::bottom_right ? lengths.key - lengths.query : 0;
    return position.query + offset + corner;
  }
};

// A band of all keys up to the diagonal, and one of others.
inline bool is_causal(const Mask& mask) {
  return mask.kind == Mask::Kind::band && mask.left == kUnbounded && mask.right == 0;
}
inline bool is_window(const Mask& mask) {
  return mask.kind == Mask::Kind::band && !is_causal(mask);
}

// A table of a mask or of one of its parts, which it points into.
struct MaskTable {
  Shape shape;
  std::variant<const std::vector<std::uint8_t>*, const std::vector<std::int32_t>*,
               const std::vector<Index>*>
      elements;  // in dense order
};
// All of them, in the order of the tree; of segments, those of queries first.
std::vector<MaskTable> tables_of(const Mask& mask);

// What of a mask is batch element `b`'s, with so many queries and keys.
Mask of_batch(Mask mask, Index b, const Lengths& sizes);

// One line: "causal bottom_right", "window -16..0 top_left offset=3", "dense [1,2,8,8]",
// "prefix [3,5]", "segments", "block_sparse 16x32 [1,1,4,2]", "dilated 3 top_left".
std::string to_string(const Mask& mask);

}  // namespace attest
