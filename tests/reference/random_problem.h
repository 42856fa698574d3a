// Small random problems of every feature and every mask, alone and together, for properties
// (RapidCheck shrinks them, towards the features switched off): sizes from 0 up, lengths, packed
// sequences of length zero at any place, pages shuffled and shared, biases and tables that
// broadcast, biases of -inf, groups of heads, Dv unlike D.
//
//   RC_GTEST_PROP(SomeTest, SomeClaim, (const RandomProblem<4>& random)) { ... random.problem ... }
//   RC_GTEST_PROP(SomeTest, OtherClaim, (const RandomProblem<4, kTraining>& random)) { ... }
//
// `backward` is set for all but paged problems, which have none: kTraining leaves these out.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include "spec/inputs.h"
#include "spec/mask_kind.h"
#include "spec/problem.h"
#include "tests/any.h"

namespace attest {

// What a random problem may have; the spine's features are always there.
struct Possible {
  bool softcap = true;
  bool bias = true;
  bool alibi = true;
  bool sink = true;
  bool dropout = true;  // the keep-mask given
  bool d_lse = true;
  bool packed = true;
  bool paged = true;
  bool late_masks = true;  // whatever is not full, a band or dense, nor combines others
};
inline constexpr Possible kEverything = {};
inline constexpr Possible kTraining = {.paged = false};
inline constexpr Possible kSpine = {false, false, false, false, false, false, false, false, false};

// A problem whose sizes are at most `most`, and its inputs.
template <Index most, Possible possible = kEverything>
struct RandomProblem {
  Problem problem;
  Inputs inputs;
};

inline Index any_index(Index least, Index most) { return within<Index>(least, most + 1); }

template <typename T>
T any_of(std::vector<T> choices) {
  return *rc::gen::elementOf(std::move(choices));
}

inline Shape any_broadcast(const Shape& whole) {
  return {one_or(whole[0]), one_or(whole[1]), one_or(whole[2]), one_or(whole[3])};
}

inline std::vector<std::uint8_t> any_bits(const Shape& shape) {
  return *rc::gen::container<std::vector<std::uint8_t>>(
      static_cast<std::size_t>(element_count(shape)), range<std::uint8_t>(0, 2));
}

inline SegmentNumbers any_segments(Index batch, Index length) {
  SegmentNumbers numbers = {.batches = one_or(batch), .length = length};
  numbers.number = *rc::gen::container<std::vector<std::int32_t>>(
      static_cast<std::size_t>(numbers.batches * length), range<std::int32_t>(-1, 3));
  return numbers;
}

// A mask that is none of other masks.
inline Mask any_single_mask(Mask::Kind kind, const Problem& problem) {
  switch (kind) {
    case Mask::Kind::band: {
      const auto width = [] { return any_of<Index>({0, 1, 2, 3, kUnbounded}); };
      const Index left = any_index(0, 1) == 0 ? kUnbounded : width();
      return Mask::window(left, left == kUnbounded ? 0 : width(), any_anchor(), any_index(-3, 3));
    }
    case Mask::Kind::dense: {
      const Shape shape = any_broadcast(problem.keep_shape());
      return Mask::dense({shape, any_bits(shape)});
    }
    case Mask::Kind::prefix: {
      std::vector<Index> lens(static_cast<std::size_t>(one_or(problem.batch)));
      for (Index& len : lens) len = any_index(0, problem.key_len);
      return Mask::prefix(std::move(lens));
    }
    case Mask::Kind::segments: {
      SegmentNumbers queries = any_segments(problem.batch, problem.query_len);
      return Mask::documents({std::move(queries), any_segments(problem.batch, problem.key_len)});
    }
    case Mask::Kind::block_sparse: {
      const Index block_query = any_index(1, 3), block_key = any_index(1, 3);
      const Shape shape = {one_or(problem.batch), one_or(problem.query_heads),
                           (problem.query_len + block_query - 1) / block_query,
                           (problem.key_len + block_key - 1) / block_key};
      return Mask::block_sparse(block_query, block_key, {shape, any_bits(shape)});
    }
    case Mask::Kind::dilated:
      return Mask::dilated(any_index(1, 4), any_anchor(), any_index(-3, 3));
    case Mask::Kind::full:
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      break;
  }
  return Mask::full();
}

inline Mask any_mask(const Problem& problem, int depth = 0, bool late_masks = true) {
  using Kind = Mask::Kind;
  std::vector<Kind> kinds;
  for (const MaskKind& each : mask_kinds()) {
    const bool is_late =
        each.kind != Kind::full && each.kind != Kind::band && each.kind != Kind::dense;
    if (each.combines ? depth < 2 : late_masks || !is_late) kinds.push_back(each.kind);
  }
  const Kind kind = any_of(kinds);
  if (kind != Kind::all_of && kind != Kind::any_of) return any_single_mask(kind, problem);
  std::vector<Mask> parts;
  for (Index n = any_of<Index>({2, 2, 2, 1, 3, 0}); n > 0; --n) {
    parts.push_back(any_mask(problem, depth + 1, late_masks));
  }
  return kind == Kind::all_of ? Mask::all_of(std::move(parts)) : Mask::any_of(std::move(parts));
}

inline std::vector<Index> any_lens(Index batch, Index whole) {
  std::vector<Index> lens(static_cast<std::size_t>(batch));
  for (Index& len : lens) len = any_of<Index>({any_index(0, whole), whole, whole});
  return lens;
}

// Pages in any order, some shared, some unused; a table whose rows may go on with -1.
inline Paging any_paging(const std::vector<Index>& key_lens) {
  Paging paging = {.page_size = any_index(1, 3), .pages = any_index(1, 6)};
  for (const Index len : key_lens) {
    auto& row = paging.table.emplace_back();
    for (Index n = 0; n * paging.page_size < len; ++n) {
      row.push_back(any_index(0, paging.pages - 1));
    }
    if (once_in(3)) row.push_back(-1);
  }
  return paging;
}

// All sizes are at most `most`, and rarely 0.
inline Problem any_problem(Index most, const Possible& possible = kEverything) {
  const auto size = [](Index largest) { return once_in(32) ? 0 : any_index(1, largest); };
  const auto longest = [](const std::vector<Index>& lens) {
    return lens.empty() ? 0 : *std::max_element(lens.begin(), lens.end());
  };
  Problem problem;
  problem.packed = possible.packed && once_in(4);
  const bool paged = possible.paged && once_in(6);
  problem.batch = size(problem.packed ? 4 : 2);
  problem.key_heads = any_index(1, 2);
  problem.query_heads = problem.key_heads * size(2);
  problem.query_len = size(most);
  problem.key_len = size(most);
  problem.head_dim = size(most);
  problem.value_dim = size(most);
  problem.scale = any_of<double>({0.125, 0.7071, 1, -0.5, 3});
  if (problem.packed || once_in(3)) {
    problem.query_lens = any_lens(problem.batch, problem.query_len);
  }
  if (problem.packed || paged || once_in(3)) {
    problem.key_lens = any_lens(problem.batch, problem.key_len);
  }
  if (problem.packed) {
    // The first sequence or the last is often empty.
    for (SequenceLengths* lengths : {&problem.query_lens, &problem.key_lens}) {
      std::vector<Index> all = *lengths;
      if (all.size() > 1 && once_in(4)) all.front() = 0;
      if (all.size() > 1 && once_in(4)) all.back() = 0;
      *lengths = std::move(all);
    }
    problem.query_len = longest(problem.query_lens);
    if (!paged) problem.key_len = longest(problem.key_lens);
  }
  if (paged) problem.paging = any_paging(problem.key_lens);
  problem.mask = any_mask(problem, 0, possible.late_masks);

  if (possible.softcap && once_in(3)) problem.softcap = any_of<double>({30, 2, 0.5});
  if (possible.bias && once_in(3)) problem.bias_shape = any_broadcast(problem.keep_shape());
  if (possible.alibi && once_in(4)) {
    problem.slopes_shape = {one_or(problem.batch), problem.query_heads, 1, 1};
  }
  problem.sink = possible.sink && once_in(3);
  if (possible.dropout && once_in(3)) {
    problem.dropout = {.mode = Dropout::Mode::given,
                       .probability = any_of<double>({0, 0.25, 0.1, 0.9})};
  }
  problem.backward = !paged;
  problem.d_lse = possible.d_lse && problem.backward && once_in(3);
  return problem;
}

// Eighths within -4 ... 4.
inline Values any_values(const Shape& shape) {
  Values values = zeros(shape);
  for (double& value : values.data) value = 0.125 * static_cast<double>(any_index(-32, 32));
  return values;
}

inline Inputs any_inputs(const Problem& problem) {
  Inputs inputs = {.q = any_values(problem.q_shape()),
                   .k = any_values(problem.k_shape()),
                   .v = any_values(problem.v_shape())};
  if (problem.bias_shape) {
    inputs.bias = any_values(*problem.bias_shape);
    if (once_in(3)) {
      for (double& value : inputs.bias.data) {
        if (once_in(4)) value = -std::numeric_limits<double>::infinity();
      }
    }
  }
  if (problem.slopes_shape) {
    inputs.slopes = any_values(*problem.slopes_shape);
    for (double& value : inputs.slopes.data) value /= 4;
  }
  if (problem.sink) inputs.sink = any_values(problem.sink_shape());
  if (problem.dropout.mode != Dropout::Mode::none) {
    inputs.keep = {problem.keep_shape(), any_bits(problem.keep_shape())};
  }
  if (problem.backward) inputs.d_o = any_values(problem.o_shape());
  if (problem.d_lse) inputs.d_lse = any_values(problem.lse_shape());
  return inputs;
}

template <Index most, Possible possible>
void showValue(const RandomProblem<most, possible>& random, std::ostream& out) {
  out << to_string(random.problem);
  if (!random.problem.paging.table.empty()) {
    out << "\n  pages = ";
    rc::show(random.problem.paging.table, out);
  }
  const auto show = [&](const char* name, const auto& values) {
    if (values.empty()) return;
    out << "\n  " << name << " = ";
    rc::show(values, out);
  };
  const Inputs& inputs = random.inputs;
  show("q", inputs.q.data);
  show("k", inputs.k.data);
  show("v", inputs.v.data);
  show("bias", inputs.bias.data);
  show("slopes", inputs.slopes.data);
  show("sink", inputs.sink.data);
  show("keep", std::vector<int>(inputs.keep.kept.begin(), inputs.keep.kept.end()));
  show("d_o", inputs.d_o.data);
  show("d_lse", inputs.d_lse.data);
}

// Channel c of the query or key at a position, in a tensor that lies like Q or like K; the element
// of a bias or of slopes that a position reads. Of Values, or of tensors of the exact reference.
template <typename AnyTensor>
decltype(auto) query_element(const Problem& problem, AnyTensor& tensor, const Position& at,
                             Index c) {
  const Place place = problem.query_place(at.batch, at.query);
  return tensor.at(place.batch, at.head, place.position, c);
}

template <typename AnyTensor>
decltype(auto) key_element(const Problem& problem, AnyTensor& tensor, const Position& at, Index c) {
  const Place place = problem.key_place(at.batch, at.key);
  return tensor.at(place.batch, at.head / problem.group_size(), place.position, c);
}

template <typename AnyTensor>
decltype(auto) broadcast_element(AnyTensor& tensor, const Position& at) {
  const auto pick = [&](std::size_t axis, Index n) { return tensor.shape[axis] == 1 ? 0 : n; };
  return tensor.at(pick(0, at.batch), pick(1, at.head), pick(2, at.query), pick(3, at.key));
}

// Calls visit(position) for every element of the score matrix.
template <typename Visit>
void for_each_position(const Problem& problem, const Visit& visit) {
  const Shape shape = problem.keep_shape();
  for (Index n = 0; n < element_count(shape); ++n) {
    const auto [b, h, i, j] = coordinates(shape, n);
    visit(Position{.batch = b, .head = h, .query = i, .key = j});
  }
}

// Whether the key has a part in the query's softmax: visible, and no bias of -inf (MASK-14).
inline bool takes_part(const Problem& problem, const Inputs& inputs, const Position& at) {
  return visible(problem, at) &&
         !(problem.bias_shape &&
           broadcast_element(inputs.bias, at) == -std::numeric_limits<double>::infinity());
}

// Whether the query sees any key, and whether any query sees the key of that key head; but for
// biases of -inf.
inline bool sees_a_key(const Problem& problem, Index b, Index h, Index i) {
  for (Index j = 0; j < problem.key_len; ++j) {
    if (visible(problem, {.batch = b, .head = h, .query = i, .key = j})) return true;
  }
  return false;
}

inline bool is_seen(const Problem& problem, Index b, Index key_head, Index j) {
  for (Index h = 0; h < problem.query_heads; ++h) {
    if (h / problem.group_size() != key_head) continue;
    for (Index i = 0; i < problem.query_len; ++i) {
      if (visible(problem, {.batch = b, .head = h, .query = i, .key = j})) return true;
    }
  }
  return false;
}

// By row of Q (and of O and LSE), whether it sees a key; by row of K (and of V), whether any query
// sees it. Element n of a tensor with `channels` channels is in row n / channels.
inline std::vector<bool> rows_that_see(const Problem& problem, const Inputs& inputs) {
  const Shape shape = problem.lse_shape();
  std::vector<bool> rows(static_cast<std::size_t>(element_count(shape)));
  for_each_position(problem, [&](const Position& at) {
    if (!takes_part(problem, inputs, at)) return;
    const Place place = problem.query_place(at.batch, at.query);
    rows[static_cast<std::size_t>(dense_index(shape, place.batch, at.head, place.position, 0))] =
        true;
  });
  return rows;
}

inline std::vector<bool> keys_that_are_seen(const Problem& problem, const Inputs& inputs) {
  Shape shape = problem.k_shape();
  shape[kChannel] = 1;
  std::vector<bool> keys(static_cast<std::size_t>(element_count(shape)));
  for_each_position(problem, [&](const Position& at) {
    if (!takes_part(problem, inputs, at)) return;
    const Place place = problem.key_place(at.batch, at.key);
    keys[static_cast<std::size_t>(
        dense_index(shape, place.batch, at.head / problem.group_size(), place.position, 0))] = true;
  });
  return keys;
}

}  // namespace attest

template <attest::Index most, attest::Possible possible>
struct rc::Arbitrary<attest::RandomProblem<most, possible>> {
  static Gen<attest::RandomProblem<most, possible>> arbitrary() {
    return gen::exec([] {
      const attest::Problem problem = attest::any_problem(most, possible);
      return attest::RandomProblem<most, possible>{problem, attest::any_inputs(problem)};
    });
  }
};
