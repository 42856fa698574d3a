// One attention problem: everything a kernel is told, except the numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spec/dtype.h"
#include "spec/mask.h"
#include "spec/tensor.h"

namespace attest {

// How each tensor lies in memory (LAYOUT-1). LSE is always dense.
struct Layouts {
  Layout q = {}, k = {}, v = {}, o = {}, d_o = {}, dq = {}, dk = {}, dv = {};
};

struct Problem {
  DType dtype = DType::f32;  // of all tensors but LSE (FORMAT-1 to FORMAT-4)
  Index batch = 1;
  Index query_heads = 1;
  Index key_heads = 1;  // divides query_heads (HEAD-1)
  Index query_len = 1;
  Index key_len = 1;
  Index head_dim = 1;        // of Q and K
  Index value_dim = 1;       // of V and O
  double scale = 1.0;        // multiplies q.k; never inferred from head_dim (SCORE-1)
  Mask mask = Mask::full();  // MASK-1 to MASK-8
  // For each batch element, how many keys and queries are real; empty: all of them (MASK-5,
  // MASK-6).
  std::vector<Index> key_lens = {};
  std::vector<Index> query_lens = {};
  bool backward = false;  // whether dQ, dK and dV are wanted too
  Layouts layouts = {};

  Shape q_shape() const { return {batch, query_heads, query_len, head_dim}; }
  Shape k_shape() const { return {batch, key_heads, key_len, head_dim}; }
  Shape v_shape() const { return {batch, key_heads, key_len, value_dim}; }
  Shape o_shape() const { return {batch, query_heads, query_len, value_dim}; }
  Shape lse_shape() const { return {batch, query_heads, query_len, 1}; }

  // LSE is kept wider than 16-bit tensors: f64 for f64, f32 for all others (LSE-2).
  DType lse_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  // How many query heads read one key head (HEAD-1). Undefined without key heads.
  Index group_size() const { return query_heads / key_heads; }

  Lengths lengths(Index b) const {
    const auto at = [b](const std::vector<Index>& lens, Index whole) {
      return lens.empty() ? whole : lens[static_cast<std::size_t>(b)];
    };
    return {.query = at(query_lens, query_len), .key = at(key_lens, key_len)};
  }
};

// Whether `position` takes part: within the lengths and allowed by the mask. The one definition of
// a visible key.
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
