// Reads top down: a score, a row of the softmax, the two passes. b, h, i, j are the batch element,
// the query head, the query and the key; c is a channel. For speed go to `working`: here a loop is
// a sum of the formula, and nothing is ever blocked, reordered or vectorised.
#include "reference/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "spec/assert.h"

namespace attest::exact {
namespace {

// SCORE-1: s = scale q.k
template <typename T>
T score(const Problem& problem, const Inputs<T>& in, const Position& at) {
  const Index key_head = at.head / problem.group_size();  // HEAD-1
  T product = 0;
  for (Index c = 0; c < problem.head_dim; ++c) {
    product += in.q.at(at.batch, at.head, at.query, c) * in.k.at(at.batch, key_head, at.key, c);
  }
  return T(problem.scale) * product;
}

// A key that a query sees, its score, and the share of the query's attention that it gets.
template <typename T>
struct Seen {
  Index key;
  T s;
  T p;
};

// One row of the softmax: all that a query sees. Keys that are not here contribute nothing, because
// nothing below ever looks at them (HIDE-1, HIDE-2).
template <typename T>
struct Row {
  std::vector<Seen<T>> seen = {};
  T lse = -std::numeric_limits<T>::infinity();  // EMPTY-2, unless it sees a key
};

// SOFTMAX-1: p_j = exp(s_j) / sum_j exp(s_j)
template <typename T>
Row<T> softmax(const Problem& problem, const Inputs<T>& in, Index b, Index h, Index i) {
  using std::exp, std::log, std::max;  // for the built-in types; Boost brings its own
  Row<T> row;
  T top = -std::numeric_limits<T>::infinity();
  for (Index j = 0; j < problem.key_len; ++j) {
    const Position at = {.batch = b, .head = h, .query = i, .key = j};
    if (!visible(problem, at)) continue;  // MASK-1 to MASK-8
    row.seen.push_back({.key = j, .s = score(problem, in, at), .p = T(0)});
    top = max(top, row.seen.back().s);
  }
  if (row.seen.empty()) return row;

  // SOFTMAX-2: exp(s - top) is at most 1, and is 1 for some key, so the sum neither overflows nor
  // vanishes while the scores are finite. The factor exp(-top) cancels.
  T sum = 0;
  for (Seen<T>& key : row.seen) {
    key.p = exp(T(key.s - top));
    sum += key.p;
  }
  for (Seen<T>& key : row.seen) key.p /= sum;
  row.lse = top + log(sum);  // LSE-1
  return row;
}

// SOFTMAX-1: O_c = sum_j p_j V_jc. A row that sees no key has O = 0 (EMPTY-1).
template <typename T>
T output(const Problem& problem, const Inputs<T>& in, const Row<T>& row, Index b, Index h,
         Index c) {
  T o = 0;
  for (const Seen<T>& key : row.seen) o += key.p * in.v.at(b, h / problem.group_size(), key.key, c);
  return o;
}

template <typename T>
void check_shapes(const Problem& problem, const Inputs<T>& in) {
  ATTEST_ASSERT(!defect_of(problem));
  ATTEST_ASSERT(in.q.shape == problem.q_shape());
  ATTEST_ASSERT(in.k.shape == problem.k_shape());
  ATTEST_ASSERT(in.v.shape == problem.v_shape());
}

template <typename T>
Tensor<T> tensor_as(const Values& values) {
  Tensor<T> tensor(values.shape);
  std::copy(values.data.begin(), values.data.end(), tensor.data.begin());
  return tensor;
}

}  // namespace

template <typename T>
Inputs<T> inputs_as(const attest::Inputs& inputs) {
  return {.q = tensor_as<T>(inputs.q),
          .k = tensor_as<T>(inputs.k),
          .v = tensor_as<T>(inputs.v),
          .d_o = tensor_as<T>(inputs.d_o)};
}

template <typename T>
Outputs<T> forward(const Problem& problem, const Inputs<T>& in) {
  check_shapes(problem, in);
  Outputs<T> out = {.o = Tensor<T>(problem.o_shape()), .lse = Tensor<T>(problem.lse_shape())};
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.query_len; ++i) {
        const Row<T> row = softmax(problem, in, b, h, i);
        out.lse.at(b, h, i, 0) = row.lse;
        for (Index c = 0; c < problem.value_dim; ++c) {
          out.o.at(b, h, i, c) = output(problem, in, row, b, h, c);
        }
      }
    }
  }
  return out;
}

template <typename T>
Gradients<T> backward(const Problem& problem, const Inputs<T>& in) {
  check_shapes(problem, in);
  ATTEST_ASSERT(in.d_o.shape == problem.o_shape());
  Gradients<T> out = {.dq = Tensor<T>(problem.q_shape()),
                      .dk = Tensor<T>(problem.k_shape()),
                      .dv = Tensor<T>(problem.v_shape())};
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      const Index g = h / problem.group_size();  // HEAD-1, and by adding up below, HEAD-2
      for (Index i = 0; i < problem.query_len; ++i) {
        const Row<T> row = softmax(problem, in, b, h, i);
        if (row.seen.empty()) continue;  // EMPTY-3: not even its dO is read

        // D = sum_c dO_c O_c: what all p_j of the row have in common, because they sum to 1.
        T common = 0;
        for (Index c = 0; c < problem.value_dim; ++c) {
          common += in.d_o.at(b, h, i, c) * output(problem, in, row, b, h, c);
        }

        for (const auto& [j, s, p] : row.seen) {
          T dp = 0;  // dP = dO.V
          for (Index c = 0; c < problem.value_dim; ++c) {
            dp += in.d_o.at(b, h, i, c) * in.v.at(b, g, j, c);
          }
          const T ds = T(problem.scale) * p * (dp - common);  // with respect to q.k: dS times scale

          for (Index c = 0; c < problem.head_dim; ++c) {
            out.dq.at(b, h, i, c) += ds * in.k.at(b, g, j, c);  // GRAD-1
            out.dk.at(b, g, j, c) += ds * in.q.at(b, h, i, c);  // GRAD-2
          }
          for (Index c = 0; c < problem.value_dim; ++c) {
            out.dv.at(b, g, j, c) += p * in.d_o.at(b, h, i, c);  // GRAD-3
          }
        }
      }
    }
  }
  return out;
}

// The types that there are. Compiled here once, because Digits100 is slow to compile.
#define ATTEST_EXACT_FOR(T)                                      \
  template Inputs<T> inputs_as<T>(const attest::Inputs&);        \
  template Outputs<T> forward(const Problem&, const Inputs<T>&); \
  template Gradients<T> backward(const Problem&, const Inputs<T>&);
ATTEST_EXACT_FOR(double)
ATTEST_EXACT_FOR(long double)
ATTEST_EXACT_FOR(Quad)
ATTEST_EXACT_FOR(Digits100)
#undef ATTEST_EXACT_FOR

}  // namespace attest::exact
