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

template <typename T>
T minus_infinity() {
  return -std::numeric_limits<T>::infinity();
}

// Channel c of the query, and of the key, at a position, in a tensor that lies like Q or like K:
// packed and paged tensors differ from others only here (LAYOUT-5, PAGE-1).
template <typename AnyTensor>
auto& at_query(const Problem& problem, AnyTensor& tensor, const Position& at, Index c) {
  const Place place = problem.query_place(at.batch, at.query);
  return tensor.at(place.batch, at.head, place.position, c);
}

template <typename AnyTensor>
auto& at_key(const Problem& problem, AnyTensor& tensor, const Position& at, Index c) {
  const Place place = problem.key_place(at.batch, at.key);
  const Index key_head = at.head / problem.group_size();  // HEAD-1
  return tensor.at(place.batch, key_head, place.position, c);
}

// The element of a bias, of slopes or of sinks that a position reads: an axis of size 1 holds for
// all (SCORE-3).
template <typename AnyTensor>
auto& at_broadcast(AnyTensor& tensor, const Position& at) {
  return tensor.data[broadcast_index(tensor.shape, at)];
}

// MASK-1 to MASK-13, and MASK-14: a bias of -inf hides its key.
template <typename T>
bool takes_part(const Problem& problem, const Inputs<T>& in, const Position& at) {
  if (!visible(problem, at)) return false;
  return !problem.bias_shape || at_broadcast(in.bias, at) != minus_infinity<T>();
}

// s, and its derivative with respect to scale q.k.
template <typename T>
struct Score {
  T s;
  T slope;
};

template <typename T>
Score<T> score(const Problem& problem, const Inputs<T>& in, const Position& at) {
  using std::tanh;  // for the built-in types; Boost brings its own
  T product = 0;
  for (Index c = 0; c < problem.head_dim; ++c) {
    product += at_query(problem, in.q, at, c) * at_key(problem, in.k, at, c);
  }
  T s = T(problem.scale) * product, slope = 1;  // SCORE-1
  if (problem.softcap > 0) {                    // SCORE-2, and its derivative, GRAD-6
    const T cap = problem.softcap, t = tanh(T(s / cap));
    s = cap * t;
    slope = 1 - t * t;
  }
  if (problem.bias_shape) s += at_broadcast(in.bias, at);  // SCORE-3
  if (problem.slopes_shape) {                              // SCORE-4
    const Lengths lengths = problem.lengths(at.batch);
    const Index distance = at.query + (lengths.key - lengths.query) - at.key;
    s -= at_broadcast(in.slopes, at) * T(distance < 0 ? -distance : distance);
  }
  return {s, slope};
}

// What dropout multiplies P with: keep / (1 - p) (DROP-1).
template <typename T>
T dropout_factor(const Problem& problem, const Inputs<T>& in, const Position& at) {
  if (problem.dropout.mode == Dropout::Mode::none) return 1;
  return in.keep.at(at) ? 1 / (1 - T(problem.dropout.probability)) : T(0);
}

// A key that a query sees: its score, the share of the query's attention that it gets, and what
// dropout makes of it.
template <typename T>
struct Seen {
  Position at;
  Score<T> score;
  T p;
  T z;
};

// One row of the softmax: all that a query sees. Keys that are not here contribute nothing, because
// nothing below ever looks at them (HIDE-1 to HIDE-3, PAGE-2).
template <typename T>
struct Row {
  std::vector<Seen<T>> seen = {};
  T p_sink = 0;                 // the share of the sink, which has no value
  T lse = minus_infinity<T>();  // EMPTY-2, unless it sees a key or a sink
};

// SOFTMAX-1 and SINK-1: p_j = exp(s_j) / (sum_j exp(s_j) + exp(sink))
template <typename T>
Row<T> softmax(const Problem& problem, const Inputs<T>& in, const Position& query) {
  using std::exp, std::log, std::max;
  Row<T> row;
  T top = minus_infinity<T>();
  for (Index j = 0; j < problem.stored_keys(query.batch); ++j) {
    Position at = query;
    at.key = j;
    if (!takes_part(problem, in, at)) continue;
    row.seen.push_back({at, score(problem, in, at), T(0), dropout_factor(problem, in, at)});
    top = max(top, row.seen.back().score.s);
  }
  // MASK-6: not beyond a length.
  const bool has_sink = problem.sink && query.query < problem.lengths(query.batch).query;
  const T sink = has_sink ? in.sink.at(0, query.head, 0, 0) : minus_infinity<T>();
  top = max(top, sink);
  if (row.seen.empty() && !has_sink) return row;

  // SOFTMAX-2: exp(s - top) is at most 1, and is 1 for some key or the sink, so the sum neither
  // overflows nor vanishes while the scores are finite. The factor exp(-top) cancels.
  T sum = 0;
  for (Seen<T>& key : row.seen) {
    key.p = exp(T(key.score.s - top));
    sum += key.p;
  }
  if (has_sink) {
    row.p_sink = exp(T(sink - top));
    sum += row.p_sink;
  }
  for (Seen<T>& key : row.seen) key.p /= sum;
  row.p_sink /= sum;
  row.lse = top + log(sum);  // LSE-1; of a sink alone, EMPTY-4: sink + log 1
  return row;
}

// SOFTMAX-1 and DROP-1: O_c = sum_j p_j zeta_j V_jc. A row that sees no key has O = 0 (EMPTY-1).
template <typename T>
T output(const Problem& problem, const Inputs<T>& in, const Row<T>& row, Index c) {
  T o = 0;
  for (const Seen<T>& key : row.seen) o += key.p * key.z * at_key(problem, in.v, key.at, c);
  return o;
}

template <typename T>
void check_shapes(const Problem& problem, const Inputs<T>& in) {
  ATTEST_ASSERT(!defect_of(problem));
  ATTEST_ASSERT(in.q.shape == problem.q_shape());
  ATTEST_ASSERT(in.k.shape == problem.k_shape());
  ATTEST_ASSERT(in.v.shape == problem.v_shape());
  if (problem.bias_shape) ATTEST_ASSERT(in.bias.shape == *problem.bias_shape);
  if (problem.slopes_shape) ATTEST_ASSERT(in.slopes.shape == *problem.slopes_shape);
  if (problem.sink) ATTEST_ASSERT(in.sink.shape == problem.sink_shape());
  if (problem.dropout.mode != Dropout::Mode::none) {
    ATTEST_ASSERT(in.keep.shape == problem.keep_shape());
    ATTEST_ASSERT(static_cast<Index>(in.keep.kept.size()) == element_count(in.keep.shape));
  }
}

// D = sum_c dO_c O_c.
template <typename T, typename Output>
T row_sum(const Problem& problem, const Inputs<T>& in, const Position& query, const Output& o) {
  T d = 0;
  for (Index c = 0; c < problem.value_dim; ++c) d += at_query(problem, in.d_o, query, c) * o(c);
  return d;
}

// What one row gives to the gradients. D is what all p_j of the row have in common, because with
// that of the sink they sum to 1.
template <typename T>
void add_row(const Problem& problem, const Inputs<T>& in, const Position& query, const Row<T>& row,
             const T& d, Gradients<T>& out) {
  if (row.seen.empty() && !problem.sink) return;  // EMPTY-3: not even its dLSE is read
  const T d_lse = problem.d_lse ? at_query(problem, in.d_lse, query, 0) : T(0);
  if (problem.sink) out.dsink.at(0, query.head, 0, 0) += row.p_sink * (d_lse - d);  // SINK-2

  for (const auto& [at, score, p, z] : row.seen) {
    T dp = 0;  // dP = z dO.V (DROP-2)
    for (Index c = 0; c < problem.value_dim; ++c) {
      dp += z * at_query(problem, in.d_o, query, c) * at_key(problem, in.v, at, c);
    }
    const T ds = p * (dp - d + d_lse);                        // GRAD-5
    const T d_product = T(problem.scale) * score.slope * ds;  // GRAD-6: of q.k

    // HEAD-2 and GRAD-4: adding up sums over the group and over the axes that broadcast.
    if (problem.bias_shape) at_broadcast(out.dbias, at) += ds;
    for (Index c = 0; c < problem.head_dim; ++c) {
      at_query(problem, out.dq, at, c) += d_product * at_key(problem, in.k, at, c);  // GRAD-1
      at_key(problem, out.dk, at, c) += d_product * at_query(problem, in.q, at, c);  // GRAD-2
    }
    for (Index c = 0; c < problem.value_dim; ++c) {
      at_key(problem, out.dv, at, c) += p * z * at_query(problem, in.d_o, at, c);  // GRAD-3
    }
  }
}

// The gradients, where `begin` tells the softmax of a row and its D.
template <typename T, typename Begin>
Gradients<T> sum_over_rows(const Problem& problem, const Inputs<T>& in, const Begin& begin) {
  check_shapes(problem, in);
  ATTEST_ASSERT(problem.paging.page_size == 0);
  ATTEST_ASSERT(in.d_o.shape == problem.o_shape());
  if (problem.d_lse) ATTEST_ASSERT(in.d_lse.shape == problem.lse_shape());
  Gradients<T> out = {.dq = Tensor<T>(problem.q_shape()),
                      .dk = Tensor<T>(problem.k_shape()),
                      .dv = Tensor<T>(problem.v_shape())};
  if (problem.bias_shape) out.dbias = Tensor<T>(*problem.bias_shape);
  if (problem.sink) out.dsink = Tensor<T>(problem.sink_shape());
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.lengths(b).query; ++i) {  // MASK-6
        const Position query = {.batch = b, .head = h, .query = i};
        const auto [row, d] = begin(query);
        add_row(problem, in, query, row, d, out);
      }
    }
  }
  return out;
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
          .bias = tensor_as<T>(inputs.bias),
          .slopes = tensor_as<T>(inputs.slopes),
          .sink = tensor_as<T>(inputs.sink),
          .keep = inputs.keep,
          .d_o = tensor_as<T>(inputs.d_o),
          .d_lse = tensor_as<T>(inputs.d_lse)};
}

template <typename T>
Outputs<T> forward(const Problem& problem, const Inputs<T>& in) {
  check_shapes(problem, in);
  Outputs<T> out = {.o = Tensor<T>(problem.o_shape()), .lse = Tensor<T>(problem.lse_shape())};
  for (Index b = 0; b < problem.batch; ++b) {
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < problem.stored_queries(b); ++i) {
        const Position query = {.batch = b, .head = h, .query = i};
        const Row<T> row = softmax(problem, in, query);
        at_query(problem, out.lse, query, 0) = row.lse;
        for (Index c = 0; c < problem.value_dim; ++c) {
          at_query(problem, out.o, query, c) = output(problem, in, row, c);
        }
      }
    }
  }
  return out;
}

template <typename T>
Gradients<T> backward(const Problem& problem, const Inputs<T>& in) {
  return sum_over_rows(problem, in, [&](const Position& query) {
    const Row<T> row = softmax(problem, in, query);
    // Where there is no key, O is 0 whatever its dO (EMPTY-3).
    const T d = row.seen.empty() ? T(0) : row_sum(problem, in, query, [&](Index c) {
      return output(problem, in, row, c);
    });
    return std::pair(row, d);
  });
}

template <typename T>
Gradients<T> backward(const Problem& problem, const Inputs<T>& in, const Outputs<T>& given) {
  ATTEST_ASSERT(given.o.shape == problem.o_shape());
  ATTEST_ASSERT(given.lse.shape == problem.lse_shape());
  return sum_over_rows(problem, in, [&](const Position& query) {
    using std::exp;
    Row<T> row = softmax(problem, in, query);
    row.lse = at_query(problem, given.lse, query, 0);
    for (Seen<T>& key : row.seen) key.p = exp(T(key.score.s - row.lse));
    const bool has_sink = problem.sink && row.lse != minus_infinity<T>();
    row.p_sink = has_sink ? T(exp(T(in.sink.at(0, query.head, 0, 0) - row.lse))) : T(0);
    const T d =
        row_sum(problem, in, query, [&](Index c) { return at_query(problem, given.o, query, c); });
    return std::pair(row, d);
  });
}

// The types that there are. Compiled here once, because Digits100 is slow to compile.
#define ATTEST_EXACT_FOR(T)                                         \
  template Inputs<T> inputs_as<T>(const attest::Inputs&);           \
  template Outputs<T> forward(const Problem&, const Inputs<T>&);    \
  template Gradients<T> backward(const Problem&, const Inputs<T>&); \
  template Gradients<T> backward(const Problem&, const Inputs<T>&, const Outputs<T>&);
ATTEST_EXACT_FOR(double)
ATTEST_EXACT_FOR(long double)
ATTEST_EXACT_FOR(Quad)
ATTEST_EXACT_FOR(Digits100)
#undef ATTEST_EXACT_FOR

}  // namespace attest::exact
