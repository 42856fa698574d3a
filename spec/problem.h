// One attention problem: everything a kernel is told, except the numbers.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "spec/dtype.h"
#include "spec/mask.h"
#include "spec/sequence_lengths.h"
#include "spec/tensor.h"
#include "spec/tensor_name.h"

namespace attest {

// How each tensor lies in memory (LAYOUT-1). LSE is dense; all others lie as the harness likes.
struct Layouts {
  Layout q = {}, k = {}, v = {}, o = {}, d_o = {}, dq = {}, dk = {}, dv = {};
  Layout bias = {};  // its axes are batch, head, query, key
  friend bool operator==(const Layouts&, const Layouts&) = default;

  // Of a tensor of kLaidOut.
  Layout& operator[](TensorName tensor);
  const Layout& operator[](TensorName tensor) const;
};
inline constexpr std::array kLaidOut = {TensorName::q,  TensorName::k,   TensorName::v,
                                        TensorName::o,  TensorName::d_o, TensorName::dq,
                                        TensorName::dk, TensorName::dv,  TensorName::bias};

// Dropout of P (DROP-1 to DROP-3).
struct Dropout {
  enum class Mode {
    none,
    given,      // the keep-mask is an input
    generated,  // the testee draws it from seed and offset, and returns the one it used
  };
  Mode mode = Mode::none;
  double probability = 0;  // of dropping an element; 0 <= p < 1
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

// K and V behind a page table (PAGE-1): key j of batch element b is slot j % page_size of page
// table[b][j / page_size].
struct Paging {
  Index page_size = 0;                         // 0: not paged
  Index pages = 0;                             // how many there are, used or not
  std::vector<std::vector<Index>> table = {};  // of each batch element, as far as its keys reach

  // The table as a kernel gets it, [B, entries]: what lies beyond a row's end is -1.
  Index entries() const;
  friend bool operator==(const Paging&, const Paging&) = default;
};

// In formats of blocks, so many channels of a row share a scale: in bfp8, in mxfp8.
inline constexpr Index kBfp8Block = 16, kMxfp8Block = 32;
// How many blocks that is, the last one perhaps in part; a row without channels has one.
constexpr Index blocks_of(Index channels, Index block) {
  return channels <= block ? 1 : (channels + block - 1) / block;
}
// How many channels share a scale, of which a row has so many.
constexpr Index channels_of_scale(Index channels, Index scales) {
  if (scales == 1) return channels > 1 ? channels : 1;
  return scales == blocks_of(channels, kBfp8Block) ? kBfp8Block : kMxfp8Block;
}

// How Q, K or V is stored where that is not in the problem's format (FORMAT-5 to FORMAT-8): each in
// fewer bits, meant times a scale.
struct Stored {
  DType dtype = DType::e4m3;  // of kStoredDTypes
  // Whether each batch element, head and position of the tensor, as it is stored, has a scale of
  // its own.
  bool by_batch = false, by_head = false, by_position = false;
  // Whether each block of channels of a row has one, a power of two: bfp8 (FORMAT-6), mxfp8
  // (FORMAT-8). Then so have batch elements, heads and positions.
  bool by_channels = false;
  friend bool operator==(const Stored&, const Stored&) = default;

  static Stored in_blocks(DType dtype) { return {dtype, true, true, true, true}; }
  // How many channels share a scale where not all do.
  Index block() const { return dtype == DType::int8 ? kBfp8Block : kMxfp8Block; }

  // Of the scales of a tensor of that shape.
  Shape scale_shape(const Shape& of) const {
    return {by_batch ? of[kBatch] : 1, by_head ? of[kHead] : 1, by_position ? of[kPosition] : 1,
            by_channels ? blocks_of(of[kChannel], block()) : 1};
  }
};
struct StoredInputs {
  std::optional<Stored> q = {}, k = {}, v = {};  // none: as the problem has it
  friend bool operator==(const StoredInputs&, const StoredInputs&) = default;

  bool any() const { return q || k || v; }
};
// Scales are within these, so that no product of two with a scale of scores leaves the range of f32
// that would not anyway, nor that of a weight that of f16.
inline constexpr double kLeastScale = 0x1p-20, kMostScale = 0x1p15;

// The batch and position coordinates of a row of a tensor.
struct Place {
  Index batch;
  Index position;
};

struct Problem {
  DType dtype = DType::f32;  // of all tensors but LSE, and of what is stored (FORMAT-1 to FORMAT-4)
  Index batch = 1;
  Index query_heads = 1;
  Index key_heads = 1;  // divides query_heads (HEAD-1)
  Index query_len = 1;
  Index key_len = 1;
  Index head_dim = 1;        // of Q and K
  Index value_dim = 1;       // of V and O
  double scale = 1.0;        // multiplies q.k; never inferred from head_dim (SCORE-1)
  double softcap = 0;        // c of cap(x) = c tanh(x / c); 0: none (SCORE-2)
  Mask mask = Mask::full();  // MASK-1 to MASK-13
  // For each batch element, how many keys and queries are real; empty: all of them (MASK-5,
  // MASK-6).
  SequenceLengths key_lens = {};
  SequenceLengths query_lens = {};
  std::optional<Shape> bias_shape = {};    // [B or 1, Hq or 1, Sq or 1, Sk or 1] (SCORE-3)
  std::optional<Shape> slopes_shape = {};  // of ALiBi: [B or 1, Hq, 1, 1] (SCORE-4)
  bool sink = false;                       // a logit for each query head (SINK-1)
  Dropout dropout = {};
  // Packed THD: batch elements follow each other along the position axis, without padding; both
  // lengths are given, and query_len and key_len are the longest (LAYOUT-5).
  bool packed = false;
  Paging paging = {};  // of K and V, instead of padding or packing
  StoredInputs stored = {};
  bool backward = false;  // whether the gradients are wanted too: dQ, dK, dV, and those of bias and
                          // sink where there are any
  bool d_lse = false;     // whether the loss depends on LSE too (GRAD-5); backward only
  Layouts layouts = {};

  friend bool operator==(const Problem&, const Problem&) = default;

  // Of the tensors as they are stored.
  Shape q_shape() const { return query_shape(head_dim); }
  Shape k_shape() const { return key_shape(head_dim); }
  Shape v_shape() const { return key_shape(value_dim); }
  Shape o_shape() const { return query_shape(value_dim); }
  Shape lse_shape() const { return query_shape(1); }
  Shape sink_shape() const { return {1, query_heads, 1, 1}; }
  Shape keep_shape() const { return {batch, query_heads, query_len, key_len}; }

  // Where query i of batch element b lies in Q, O, LSE and their gradients, and where key j lies in
  // K, V and theirs: the one definition of packing and paging. Only for what exists: of a packed
  // problem and of paged keys, within the lengths.
  Place query_place(Index b, Index i) const {
    return packed ? Place{0, query_lens.start(b) + i} : Place{b, i};
  }
  Place key_place(Index b, Index j) const {
    if (paging.page_size > 0) {
      const auto& pages = paging.table[static_cast<std::size_t>(b)];
      return {pages[static_cast<std::size_t>(j / paging.page_size)], j % paging.page_size};
    }
    return packed ? Place{0, key_lens.start(b) + j} : Place{b, j};
  }
  // Which queries and keys of batch element b have a place: all, padding included, unless packed or
  // paged.
  Index stored_queries(Index b) const { return packed ? lengths(b).query : query_len; }
  Index stored_keys(Index b) const {
    return packed || paging.page_size > 0 ? lengths(b).key : key_len;
  }

  // LSE is kept wider than 16-bit tensors: f64 for f64, f32 for all others (LSE-2).
  DType lse_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  // How many query heads read one key head (HEAD-1). Undefined without key heads.
  Index group_size() const { return query_heads / key_heads; }

  Lengths lengths(Index b) const {
    const auto at = [b](const SequenceLengths& lens, Index whole) {
      return lens.empty() ? whole : lens[static_cast<std::size_t>(b)];
    };
    return {.query = at(query_lens, query_len), .key = at(key_lens, key_len)};
  }

 private:
  Shape query_shape(Index channels) const {
    if (packed) return {1, query_heads, query_lens.sum(), channels};
    return {batch, query_heads, query_len, channels};
  }
  Shape key_shape(Index channels) const {
    if (paging.page_size > 0) return {paging.pages, key_heads, paging.page_size, channels};
    if (packed) return {1, key_heads, key_lens.sum(), channels};
    return {batch, key_heads, key_len, channels};
  }
};

// Those of kLaidOut that it has.
std::vector<TensorName> laid_out(const Problem& problem);

inline bool has_bias(const Problem& problem) { return problem.bias_shape.has_value(); }
inline bool has_alibi(const Problem& problem) { return problem.slopes_shape.has_value(); }

// Whether `position` takes part: within the lengths and allowed by the mask. The one definition of
// a visible key, but for a bias of -inf, which hides its key too (MASK-14).
inline bool visible(const Problem& problem, const Position& position) {
  const Lengths lengths = problem.lengths(position.batch);
  return position.query < lengths.query && position.key < lengths.key &&
         problem.mask.allows(position, lengths);
}

// What is wrong with a problem: the clause that it breaks and how. Empty if it is well formed.
struct Defect {
  std::string clause;
  std::string what;
};
std::optional<Defect> defect_of(const Problem& problem);

// One line that names the problem: "bf16 b1 h4/2 q8 k5 d64 causal bottom_right".
std::string to_string(const Problem& problem);

}  // namespace attest
