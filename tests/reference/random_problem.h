// Small random problems of every mask, for properties (RapidCheck shrinks them): sizes from 0 up,
// both anchors, offsets, windows, tables that broadcast, lengths, intersections and unions, groups
// of heads, Dv unlike D.
//
//   RC_GTEST_PROP(SomeTest, SomeClaim, (const RandomProblem<4>& random)) { ... random.problem ... }
#pragma once

#include <rapidcheck.h>

#include <ostream>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// A problem whose sizes are at most `most`, and its inputs.
template <Index most>
struct RandomProblem {
  Problem problem;
  Inputs inputs;
};

// RapidCheck begins with small ranges; here the whole range is small, so it gets all of it at once.
template <typename T>
rc::Gen<T> within(T least, T most) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, static_cast<T>(most + 1)));
}

inline Index any_index(Index least, Index most) { return *within(least, most); }

template <typename T>
T any_of(std::vector<T> choices) {
  return *rc::gen::elementOf(std::move(choices));
}

inline Mask any_mask(const Problem& problem, int depth = 0) {
  using Kind = Mask::Kind;
  const auto anchor = [] { return any_of<Anchor>({Anchor::top_left, Anchor::bottom_right}); };
  const auto width = [] { return any_of<Index>({0, 1, 2, 3, kUnbounded}); };
  const auto some = [&](Index size) { return any_of<Index>({1, size}); };
  const auto parts = [&] {
    return std::vector{any_mask(problem, depth + 1), any_mask(problem, depth + 1)};
  };
  std::vector<Kind> kinds = {Kind::full, Kind::band, Kind::dense};
  if (depth < 2) kinds.insert(kinds.end(), {Kind::all_of, Kind::any_of});
  switch (any_of(kinds)) {
    case Kind::full:
      return Mask::full();
    case Kind::band: {
      if (any_index(0, 1) == 0) return Mask::causal(anchor(), any_index(-3, 3));
      const Index left = width();
      return Mask::window(left, width(), anchor(), any_index(-3, 3));
    }
    case Kind::dense: {
      DenseMask table = {{some(problem.batch), some(problem.query_heads), some(problem.query_len),
                          some(problem.key_len)},
                         {}};
      table.allowed = *rc::gen::container<std::vector<std::uint8_t>>(
          static_cast<std::size_t>(element_count(table.shape)), within<std::uint8_t>(0, 1));
      return Mask::dense(std::move(table));
    }
    case Kind::all_of:
      return Mask::all_of(parts());
    case Kind::any_of:
      return Mask::any_of(parts());
  }
  return Mask::full();
}

// All sizes are at most `most`, and rarely 0.
inline Problem any_problem(Index most) {
  const auto size = [](Index largest) { return any_index(0, 31) == 0 ? 0 : any_index(1, largest); };
  const auto any_lens = [](Index batch, Index whole) {
    std::vector<Index> lens;
    if (any_index(0, 2) <= 1) return lens;
    for (Index b = 0; b < batch; ++b)
      lens.push_back(any_of<Index>({any_index(0, whole), whole, whole}));
    return lens;
  };
  Problem problem;
  problem.batch = size(2);
  problem.key_heads = any_index(1, 2);
  problem.query_heads = problem.key_heads * size(2);
  problem.query_len = size(most);
  problem.key_len = size(most);
  problem.head_dim = size(most);
  problem.value_dim = size(most);
  problem.scale = any_of<double>({0.125, 0.7071, 1, -0.5, 3});
  problem.key_lens = any_lens(problem.batch, problem.key_len);
  problem.query_lens = any_lens(problem.batch, problem.query_len);
  problem.mask = any_mask(problem);
  problem.backward = true;
  return problem;
}

// Eighths within -4 ... 4.
inline Values any_values(const Shape& shape) {
  Values values = zeros(shape);
  for (double& value : values.data) value = 0.125 * static_cast<double>(any_index(-32, 32));
  return values;
}

inline Inputs any_inputs(const Problem& problem) {
  return {.q = any_values(problem.q_shape()),
          .k = any_values(problem.k_shape()),
          .v = any_values(problem.v_shape()),
          .d_o = any_values(problem.o_shape())};
}

template <Index most>
void showValue(const RandomProblem<most>& random, std::ostream& out) {
  out << to_string(random.problem);
  const auto show = [&](const char* name, const Values& values) {
    out << "\n  " << name << " = ";
    rc::show(values.data, out);
  };
  show("q", random.inputs.q);
  show("k", random.inputs.k);
  show("v", random.inputs.v);
  show("d_o", random.inputs.d_o);
}

// Whether the query sees any key, and whether any query sees the key of that key head.
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

}  // namespace attest

template <attest::Index most>
struct rc::Arbitrary<attest::RandomProblem<most>> {
  static Gen<attest::RandomProblem<most>> arbitrary() {
    return gen::exec([] {
      const attest::Problem problem = attest::any_problem(most);
      return attest::RandomProblem<most>{problem, attest::any_inputs(problem)};
    });
  }
};
