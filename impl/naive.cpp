// Attention as textbooks write it: S = scale Q K', P = softmax(S), O = P V, each matrix in full,
// and the chain rule backwards through the same three steps. Between them stand, where a problem
// asks for them, softcap, bias and mask, on S, and dropout, on P.
//
// Two kernels that differ in who computes the steps only (naive_steps.h): `naive` has the products
// and the softmax of the tile engine, and so is a fair baseline for kernels that use it too;
// `naive/textbook` has plain loops. Memory grows with Sq x Sk; all of it is workspace. P is
// normalised before it meets V, and neither P nor dS is ever rounded to a 16-bit format.
#include <cmath>
#include <limits>
#include <vector>

#include "impl/bias_gradient.h"
#include "impl/dropout.h"
#include "impl/elements.h"
#include "impl/mask.h"
#include "impl/naive_steps.h"
#include "impl/parallel.h"
#include "impl/plugin.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"
#include "impl/tile.h"

namespace attest::impl {
namespace {

ArithmeticDeclaration arithmetic(const std::string& dtype) {
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p_normalised"] = "first";
  declared["thread_invariant"] = declared["batch_invariant"] = true;
  declared["form_invariant"] = true;
  return declared;
}

// Reported are whole heads.
ScheduleDeclaration schedule() { return {.masks_partial_only = true}; }

// The workspace, as Matrices below lay it out for each worker, for the widest computing type (f64)
// and panels (four vectors of 64 bytes, of which a row of a result may have two to fill up).
MemoryDeclaration memory() {
  constexpr int kWide = 8, kPanel = 256, kLine = 64;
  return {.growth = "quadratic",
          .workspace = {
              {"per_thread", 21 * kLine},
              {"per_thread_channel", 2 * kPanel},
              {"per_thread_query", 2 * kWide + 5 * 2 * kPanel + 2 * kPanel},
              {"per_thread_query_channel", 6 * kWide},
              {"per_thread_key", kWide + 2 * kPanel + 2 * 2 * kPanel},
              {"per_thread_key_channel", 8 * kWide},
              {"per_thread_pair", 4 * kWide + 1}}};  // S, dS, the slope of a cap, dBias; visible
}

// ---- Matrices ----------------------------------------------------------------------------------

// The matrices of one head; those of the second row exist in the backward pass only, and there
// those of the third only with a softcap and with a bias.
template <class R, class Steps>
struct Matrices {
  Matrices(const attest_problem& problem, bool backward, Arena arena) {
    const Steps steps;
    const std::int64_t queries = problem.query_len, keys = problem.key_len;
    const std::int64_t channels = problem.head_dim, values = problem.value_dim;
    const auto right = [&](std::int64_t rows, std::int64_t columns) {
      return arena.take<R>(rows, steps.width(columns));
    };
    const auto result = [&](std::int64_t rows, std::int64_t columns) {
      return arena.take<R>(rows, steps.stride(columns));
    };
    q = arena.take<R>(queries, channels);
    k = arena.take<R>(keys, channels);
    v = arena.take<R>(keys, values);
    k_transposed = right(channels, keys);
    v_packed = right(keys, values);
    s = result(queries, keys);
    max = arena.take<R>(queries);
    sum = arena.take<R>(queries);
    o = result(queries, values);
    visible = arena.take<std::uint8_t>(queries, keys);
    if (backward) {
      d_o = arena.take<R>(queries, values);
      q_packed = right(queries, channels);
      k_packed = right(keys, channels);
      v_transposed = right(values, keys);
      d_o_packed = right(queries, values);
      ds = result(queries, keys);
      dq = result(queries, channels);
      dk = result(keys, channels);
      dv = result(keys, values);
      if (problem.softcap != 0) cap_slope = result(queries, keys);
      if (problem.has_bias) {  // at least one, for a bias may have axes of size 1 where we have 0
        dbias =
            arena.take<double>(std::max<std::int64_t>(queries, 1), std::max<std::int64_t>(keys, 1));
      }
    }
    bytes = arena.used();
  }

  R *q, *k, *v, *k_transposed, *v_packed, *s, *max, *sum, *o;  // P takes the place of S
  std::uint8_t* visible;
  R *d_o = nullptr, *q_packed = nullptr, *k_packed = nullptr, *v_transposed = nullptr,
    *d_o_packed = nullptr, *ds = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  R* cap_slope = nullptr;
  double* dbias = nullptr;
  std::uint64_t bytes;
};

template <template <class> class Steps>
std::uint64_t workspace(const Call& call, bool backward) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    return Matrices<R, Steps<R>>(call.problem, backward, Arena()).bytes;
  });
}

// What one worker has: the call, its own memory, and of a head the right-hand sides.
template <class T, template <class> class S>
struct Worker {
  using R = Real<T>;
  using Steps = S<R>;

  Worker(const Call& the_call, bool backward, int the_number)
      : call(the_call),
        number(the_number),
        m(call.problem, backward, Arena(workspace_of(call, number, workspace<S>(call, backward)))),
        mask(call),
        dropout(call) {}

  // Matrices as they are in memory, and results.
  static Tile<R> dense(R* data, std::int64_t rows, std::int64_t columns) {
    return {data, rows, columns, columns};
  }
  Tile<R> result(R* data, std::int64_t rows, std::int64_t columns) const {
    return {data, rows, columns, steps.stride(columns)};
  }
  Tile<R> cleared(R* data, std::int64_t rows, std::int64_t columns) const {
    std::fill_n(data, rows * steps.stride(columns), R(0));
    return result(data, rows, columns);
  }

  const Call& call;
  int number;
  Steps steps;
  Matrices<R, Steps> m;
  BlockMask mask;
  Dropout dropout;
  Right<R> k_transposed = {}, k = {}, v_transposed = {};
};

// The plane = factor * tile, and 0 in the rows beyond it.
template <class T, class R = Real<T>>
void store(const Tile<R>& tile, double factor, std::int64_t stored_rows, const Plane<T>& plane) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    store(tile.row(i), factor, i, 1, tile.columns, plane);
  }
  fill(plane, tile.rows, stored_rows, tile.columns, R(0));
}

// ---- Forward -----------------------------------------------------------------------------------

// P = softmax of the visible scores of each row and its sink, 0 elsewhere; max becomes their LSE.
// With neither a visible key nor a sink P = 0 and LSE = -inf (EMPTY-1, EMPTY-2).
template <class R, class Steps>
void softmax(const Steps& steps, const Tile<R>& s, R sink, R* max, R* sum) {
  steps.exponentiate(s, sink, max, sum);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    R* p = s.row(i);
    const R divisor = sum[i];
    for (std::int64_t j = 0; j < s.columns; ++j) {
      // What is hidden stays 0, even where the sum is 0 or NaN (FINITE-3).
      p[j] = p[j] == 0 ? R(0) : p[j] / divisor;
    }
    max[i] += std::log(divisor);
  }
}

// Into P and LSE of one query head, in s and max. K is there already. Answers how much of S is
// visible.
template <class T, template <class> class S>
Coverage form_probabilities(Worker<T, S>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const auto [queries, keys] = call.lengths_of(b);
  load_queries<T>(call, b, h, 0, queries, w.m.q);
  const Tile<R> s = w.result(w.m.s, queries, keys);
  const Block all = {0, queries, 0, keys};
  const Coverage coverage =
      queries * keys == 0 ? Coverage::empty : w.mask.cover(b, h, all, w.m.visible);
  if (coverage == Coverage::empty) {
    std::fill_n(s.data, queries * s.stride, -std::numeric_limits<R>::infinity());
  } else {
    w.steps.multiply_scores(p.scale, w.dense(w.m.q, queries, p.head_dim),
                            w.dense(w.m.k, keys, p.head_dim), w.k_transposed, s);
    HeadScores<T>(call, b, h).finish(all, s.stride, s.data, w.m.cap_slope);
  }
  if (coverage == Coverage::partial) hide(all, w.m.visible, keys, s.stride, s.data);
  softmax(w.steps, s, sink_of<R>(call, h), w.m.max, w.m.sum);
  return coverage;
}

template <class T, template <class> class S>
void report(const Worker<T, S>& w, std::int64_t b, std::int64_t h, Coverage coverage, int pass) {
  if (coverage == Coverage::empty) return;
  const Lengths& lengths = w.call.lengths_of(b);
  w.call.report(w.number, b, h, {0, lengths.query, 0, lengths.key}, coverage == Coverage::partial,
                pass);
}

template <class T, template <class> class S>
void forward_head(Worker<T, S>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const auto [queries, keys] = call.lengths_of(b);
  const std::int64_t key_head = h / call.group_size();
  load_keys<T>(call, call.inputs.k, b, key_head, 0, keys, w.m.k);
  load_keys<T>(call, call.inputs.v, b, key_head, 0, keys, w.m.v);
  w.k_transposed = w.steps.pack_transposed(w.dense(w.m.k, keys, p.head_dim), w.m.k_transposed);
  const Right<R> v = w.steps.pack(w.dense(w.m.v, keys, p.value_dim), w.m.v_packed);
  report(w, b, h, form_probabilities(w, b, h), kForwardPass);
  const Tile<R> weights = w.result(w.m.s, queries, keys);
  w.dropout.apply(b, h, {0, queries, 0, keys}, static_cast<R>(w.dropout.rescale()), weights.stride,
                  weights.data);
  w.dropout.publish(b, h, 0, p.query_len);
  const Tile<R> o = w.cleared(w.m.o, queries, p.value_dim);
  w.steps.add_product(weights, v, o);
  store(o, 1, call.stored_queries(b), query_plane<T>(call, call.outputs.o, b, h));
  const auto lse = query_plane<R>(call, call.outputs.lse, b, h);
  for (std::int64_t i = 0; i < queries; ++i) lse.at(i, 0) = w.m.max[i];
  fill(lse, queries, call.stored_queries(b), 1, -std::numeric_limits<R>::infinity());
}

// ---- Backward ----------------------------------------------------------------------------------

// The derivative of softmax and LSE: dS = P o (dP - D + dLSE), with D the sum of P o dP over the
// row. Enters with dP in ds. A weight of 0 has no gradient, whatever dP is: a hidden V may hold
// NaN.
template <class R>
void differentiate_softmax_row(std::int64_t keys, const R* p, R d_lse, R* ds) {
  constexpr std::int64_t kSums = 16;  // independent of each other, so that they vectorise
  R sums[kSums] = {};
  for (std::int64_t begin = 0; begin < keys; begin += kSums) {
    const std::int64_t count = std::min(kSums, keys - begin);
    for (std::int64_t j = 0; j < count; ++j) {
      sums[j] += p[begin + j] == 0 ? R(0) : p[begin + j] * ds[begin + j];
    }
  }
  R sum = 0;
  for (const R part : sums) sum += part;
  for (std::int64_t j = 0; j < keys; ++j) ds[j] = p[j] == 0 ? R(0) : p[j] * (ds[j] - sum + d_lse);
}

// K and V of a batch element, for its backward pass.
template <class T, template <class> class S>
void load_key_head(Worker<T, S>& w, std::int64_t b, std::int64_t key_head) {
  const attest_problem& p = w.call.problem;
  const std::int64_t keys = w.call.lengths_of(b).key;
  load_keys<T>(w.call, w.call.inputs.k, b, key_head, 0, keys, w.m.k);
  load_keys<T>(w.call, w.call.inputs.v, b, key_head, 0, keys, w.m.v);
  const auto k = w.dense(w.m.k, keys, p.head_dim), v = w.dense(w.m.v, keys, p.value_dim);
  w.k = w.steps.pack(k, w.m.k_packed);
  w.k_transposed = w.steps.pack_transposed(k, w.m.k_transposed);
  w.v_transposed = w.steps.pack_transposed(v, w.m.v_transposed);
}

// P and dS of one query head, dS with respect to the final score; answers as form_probabilities.
template <class T, template <class> class S>
Coverage form_gradient(Worker<T, S>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const auto [queries, keys] = call.lengths_of(b);
  const Coverage coverage = form_probabilities(w, b, h);
  load(query_plane<const T>(call, call.inputs.d_o, b, h), 0, queries, p.value_dim, w.m.d_o);
  const Tile<R> weights = w.result(w.m.s, queries, keys), ds = w.result(w.m.ds, queries, keys);
  w.steps.multiply(w.dense(w.m.d_o, queries, p.value_dim), w.v_transposed, ds);
  w.dropout.apply(b, h, {0, queries, 0, keys}, static_cast<R>(w.dropout.rescale()), ds.stride,
                  ds.data);
  const auto d_lse = query_plane<const R>(call, call.inputs.d_lse, b, h);
  for (std::int64_t i = 0; i < queries; ++i) {
    differentiate_softmax_row(keys, weights.row(i), p.has_dlse ? d_lse.at(i, 0) : R(0), ds.row(i));
  }
  return coverage;
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2).
template <class T, template <class> class S>
void backward_head(Worker<T, S>& w, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const auto [queries, keys] = call.lengths_of(b);
  const Block all = {0, queries, 0, keys};
  load_key_head(w, b, key_head);
  const Tile<R> weights = w.result(w.m.s, queries, keys), ds = w.result(w.m.ds, queries, keys);
  const Tile<R> dk = w.cleared(w.m.dk, keys, p.head_dim), dv = w.cleared(w.m.dv, keys, p.value_dim);
  for (std::int64_t g = 0; g < call.group_size(); ++g) {
    const std::int64_t h = key_head * call.group_size() + g;
    report(w, b, h, form_gradient(w, b, h), kGradientPass);
    const Right<R> q = w.steps.pack(w.dense(w.m.q, queries, p.head_dim), w.m.q_packed);
    const Right<R> d_o = w.steps.pack(w.dense(w.m.d_o, queries, p.value_dim), w.m.d_o_packed);
    w.dropout.apply(b, h, all, static_cast<R>(w.dropout.rescale()), weights.stride, weights.data);
    w.steps.add_transposed_product(weights, d_o, dv);
    if (w.m.cap_slope) through_cap(all, ds.stride, w.m.cap_slope, ds.data);
    w.steps.add_transposed_product(ds, q, dk);
    const auto plane = query_plane<T>(call, call.outputs.dq, b, h);
    if (!plane.data) continue;
    const Tile<R> dq = w.cleared(w.m.dq, queries, p.head_dim);
    w.steps.add_product(ds, w.k, dq);
    store(dq, p.scale, call.stored_queries(b), plane);
  }
  const auto dk_plane = key_plane<T>(call, call.outputs.dk, b, key_head);
  const auto dv_plane = key_plane<T>(call, call.outputs.dv, b, key_head);
  if (dk_plane.data) store(dk, p.scale, call.stored_keys(b), dk_plane);
  if (dv_plane.data) store(dv, 1, call.stored_keys(b), dv_plane);
}

// dBias of one plane of it.
template <class T, template <class> class S>
void bias_gradient(Worker<T, S>& w, const BiasPart& part) {
  const Call& call = w.call;
  std::fill_n(w.m.dbias, part.rows() * part.columns(), 0.0);
  for (std::int64_t b = part.batch; b < part.batch_end; ++b) {
    for (std::int64_t h = part.head; h < part.head_end; ++h) {
      load_key_head(w, b, h / call.group_size());
      report(w, b, h, form_gradient(w, b, h), kBiasPass);
      const auto [queries, keys] = call.lengths_of(b);
      add_to_bias(part, {0, queries, 0, keys}, w.steps.stride(keys), w.m.ds, w.m.dbias);
    }
  }
  store_bias<T>(part, w.m.dbias, call.outputs.dbias);
}

// Calls work(worker, unit) for all units.
template <class T, template <class> class S, class Work>
void for_each_unit(const Call& call, bool backward, std::int64_t units, const Work& work) {
  share_out(units, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
    Worker<T, S> worker(call, backward, number);
    for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
  });
}

template <class T, template <class> class S>
void forward_as(const Call& call) {
  const std::int64_t heads = call.problem.query_heads;
  for_each_unit<T, S>(call, false, call.problem.batch * heads, [&](auto& w, std::int64_t unit) {
    forward_head(w, unit / heads, unit % heads);
  });
}

template <class T, template <class> class S>
void backward_as(const Call& call) {
  const attest_problem& p = call.problem;
  for_each_unit<T, S>(call, true, p.batch * p.key_heads, [&](auto& w, std::int64_t unit) {
    backward_head(w, unit / p.key_heads, unit % p.key_heads);
  });
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, p.query_len, p.key_len);
    for_each_unit<T, S>(call, true, parts.count(),
                        [&](auto& w, std::int64_t unit) { bias_gradient(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

template <template <class> class S>
KernelCode kernel(const char* name) {
  return {
      .name = name,
      .arithmetic = &arithmetic,
      .workspace = &workspace<S>,
      .forward =
          [](const Call& call) {
            with_element_type(call.problem.dtype,
                              [&](auto e) { forward_as<decltype(e), S>(call); });
          },
      .backward =
          [](const Call& call) {
            with_element_type(call.problem.dtype,
                              [&](auto e) { backward_as<decltype(e), S>(call); });
          },
      .schedule = &schedule,
      .memory = &memory,
      .longest = 16384,
      .takes_stored = true,
  };
}

}  // namespace
}  // namespace attest::impl

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const std::vector<KernelCode> kernels = {kernel<EngineSteps>("naive"),
                                                  kernel<TextbookSteps>("naive/textbook")};
  static const Plugin plugin(kernels);
  return plugin.table();
}
