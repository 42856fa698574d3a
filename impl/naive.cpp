// Attention as textbooks write it: S = scale Q K', P = softmax(S), O = P V, each matrix in full,
// and the chain rule backwards through the same three steps. Between them stand, where a problem
// asks for them, softcap, bias and mask, on S, and dropout, on P.
//
// Memory grows with Sq x Sk; all of it is workspace. P is normalised before it meets V, and neither
// P nor dS is ever rounded to a 16-bit format.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "impl/bias_gradient.h"
#include "impl/dropout.h"
#include "impl/elements.h"
#include "impl/mask.h"
#include "impl/parallel.h"
#include "impl/plugin.h"
#include "impl/product.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"
#include "impl/tile.h"

namespace attest::impl {
namespace {

nlohmann::json arithmetic(const std::string& dtype) {
  const std::string wide = dtype == "f64" ? "f64" : "f32";
  return {
      {"products", {{"default", {{"accumulator", wide}, {"truncates", false}}}}},
      {"softmax", wide},
      {"exp_ulp", 1},
      {"tanh_ulp", 2},
      {"p", wide},
      {"p_normalised", "first"},
      {"ds", wide},
      {"ds_scaled", "after_rounding"},
      {"ds_from", "p"},
      {"kv_splits", 1},
      {"rescales_output", false},
      {"subnormal_inputs", "kept"},
      {"subnormal_outputs", "kept"},
      {"output_rounding", "nearest"},
      {"deterministic", true},
      {"thread_invariant", true},
      {"batch_invariant", true},
  };
}

// The matrices of one head; those of the second row exist in the backward pass only, and there
// those of the third only with a softcap and with a bias.
template <class R>
struct Matrices {
  Matrices(const attest_problem& problem, bool backward, Arena arena)
      : q(arena.take<R>(problem.query_len, problem.head_dim)),
        k_transposed(arena.take<R>(problem.head_dim, problem.key_len)),
        v(arena.take<R>(problem.key_len, problem.value_dim)),
        s(arena.take<R>(problem.query_len, problem.key_len)),
        p(arena.take<R>(problem.query_len, problem.key_len)),
        o(arena.take<R>(problem.query_len, problem.value_dim)),
        visible(arena.take<std::uint8_t>(problem.query_len, problem.key_len)) {
    if (backward) {
      k = arena.take<R>(problem.key_len, problem.head_dim);
      v_transposed = arena.take<R>(problem.value_dim, problem.key_len);
      d_o = arena.take<R>(problem.query_len, problem.value_dim);
      ds = arena.take<R>(problem.query_len, problem.key_len);
      dq = arena.take<R>(problem.query_len, problem.head_dim);
      dk = arena.take<R>(problem.key_len, problem.head_dim);
      dv = arena.take<R>(problem.key_len, problem.value_dim);
      if (problem.softcap != 0) cap_slope = arena.take<R>(problem.query_len, problem.key_len);
      if (problem.has_bias) {  // at least one, for a bias may have axes of size 1 where we have 0
        dbias = arena.take<double>(std::max<std::int64_t>(problem.query_len, 1),
                                   std::max<std::int64_t>(problem.key_len, 1));
      }
    }
    bytes = arena.used();
  }

  R *q, *k_transposed, *v, *s, *p, *o;
  std::uint8_t* visible;
  R *k = nullptr, *v_transposed = nullptr, *d_o = nullptr, *ds = nullptr, *dq = nullptr,
    *dk = nullptr, *dv = nullptr;
  R* cap_slope = nullptr;
  double* dbias = nullptr;
  std::uint64_t bytes;
};

std::uint64_t workspace(const Call& call, bool backward) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    return Matrices<Real<decltype(element)>>(call.problem, backward, Arena()).bytes;
  });
}

// What one worker has: the call, its own memory.
template <class T>
struct Worker {
  using R = Real<T>;

  Worker(const Call& the_call, bool backward, int the_number)
      : call(the_call),
        number(the_number),
        m(call.problem, backward, Arena(workspace_of(call, number, workspace(call, backward)))),
        mask(call),
        dropout(call) {}

  const Call& call;
  int number;
  Matrices<R> m;
  BlockMask mask;
  Dropout dropout;
};

// p = softmax of the visible scores of a row and its sink, 0 elsewhere; returns their LSE. With
// neither a visible key nor a sink p = 0 and LSE = -inf (EMPTY-1, EMPTY-2).
template <class R>
R softmax_row(std::int64_t keys, R sink, const R* s, R* p) {
  R max = sink;
  for (std::int64_t j = 0; j < keys; ++j) max = std::max(max, s[j]);
  // Without this, a row of hidden keys would ask for (-inf) - (-inf).
  const R base = max == -std::numeric_limits<R>::infinity() ? R(0) : max;
  R sum = std::exp(sink - base);
  for (std::int64_t j = 0; j < keys; ++j) {
    p[j] = std::exp(s[j] - base);
    sum += p[j];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    if (p[j] != 0) p[j] /= sum;  // what is hidden stays 0, even where the sum is NaN (FINITE-1)
  }
  return max + std::log(sum);
}

// S and P of one query head; lse(row) receives the LSE of each row. K is there already. Answers how
// much of S is visible.
template <class T, class Receive>
Coverage form_probabilities(Worker<T>& w, std::int64_t b, std::int64_t h, const Receive& lse) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t size = lengths.query * lengths.key;
  load(query_plane<const T>(call, call.inputs.q, b, h), 0, lengths.query, p.head_dim, w.m.q);
  std::fill_n(w.m.s, size, -std::numeric_limits<R>::infinity());
  const Block all = {0, lengths.query, 0, lengths.key};
  const Coverage coverage = size == 0 ? Coverage::empty : w.mask.cover(b, h, all, w.m.visible);
  if (coverage != Coverage::empty) {
    multiply_scores({lengths.query, lengths.key, p.head_dim}, p.scale, w.m.q, w.m.k_transposed,
                    w.m.s);
    HeadScores<T>(call, b, h).finish(all, lengths.key, w.m.s, w.m.cap_slope);
  }
  if (coverage == Coverage::partial) hide(all, w.m.visible, lengths.key, w.m.s);
  const R sink = sink_of<R>(call, h);
  for (std::int64_t i = 0; i < lengths.query; ++i) {
    lse(i, softmax_row(lengths.key, sink, w.m.s + i * lengths.key, w.m.p + i * lengths.key));
  }
  return coverage;
}

template <class T>
void report(const Worker<T>& w, std::int64_t b, std::int64_t h, Coverage coverage, bool backward) {
  if (coverage == Coverage::empty) return;
  const Lengths& lengths = w.call.lengths_of(b);
  w.call.report(w.number, b, h, {0, lengths.query, 0, lengths.key}, coverage == Coverage::partial,
                backward);
}

template <class T>
void forward_head(Worker<T>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const Matrices<R>& m = w.m;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t key_head = h / call.group_size();
  const auto o = query_plane<T>(call, call.outputs.o, b, h);
  const auto lse = query_plane<R>(call, call.outputs.lse, b, h);
  load_keys_transposed<T>(call, call.inputs.k, b, key_head, 0, lengths.key, m.k_transposed);
  load_keys<T>(call, call.inputs.v, b, key_head, 0, lengths.key, m.v);
  const Coverage coverage =
      form_probabilities(w, b, h, [&](std::int64_t row, R value) { lse.at(row, 0) = value; });
  report(w, b, h, coverage, false);
  w.dropout.apply(b, h, {0, lengths.query, 0, lengths.key}, static_cast<R>(w.dropout.rescale()),
                  lengths.key, m.p);
  w.dropout.publish(b, h, 0, p.query_len);
  std::fill_n(m.o, lengths.query * p.value_dim, R(0));
  add_weighted({lengths.query, p.value_dim, lengths.key}, m.p, m.v, m.o);
  store(m.o, 1, 0, lengths.query, p.value_dim, o);
  fill(o, lengths.query, call.stored_queries(b), p.value_dim, R(0));
  fill(lse, lengths.query, call.stored_queries(b), 1, -std::numeric_limits<R>::infinity());
}

// The derivative of softmax and LSE: dS = P o (dP - D + dLSE), with D the sum of P o dP over the
// row. Enters with dP in ds. A weight of 0 has no gradient, whatever dP is: a hidden V may hold
// NaN.
template <class R>
void differentiate_softmax_row(std::int64_t keys, const R* p, R d_lse, R* ds) {
  R sum = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    if (p[j] != 0) sum += p[j] * ds[j];
  }
  for (std::int64_t j = 0; j < keys; ++j) ds[j] = p[j] == 0 ? R(0) : p[j] * (ds[j] - sum + d_lse);
}

// K and V of a batch element, for its backward pass.
template <class T>
void load_key_head(Worker<T>& w, std::int64_t b, std::int64_t key_head) {
  const std::int64_t keys = w.call.lengths_of(b).key;
  load_keys<T>(w.call, w.call.inputs.k, b, key_head, 0, keys, w.m.k);
  load_keys_transposed<T>(w.call, w.call.inputs.k, b, key_head, 0, keys, w.m.k_transposed);
  load_keys_transposed<T>(w.call, w.call.inputs.v, b, key_head, 0, keys, w.m.v_transposed);
}

// P and dS of one query head, dS with respect to the final score; answers as form_probabilities.
template <class T>
Coverage form_gradient(Worker<T>& w, std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const Call& call = w.call;
  const Matrices<R>& m = w.m;
  const auto [queries, keys] = call.lengths_of(b);
  const Coverage coverage = form_probabilities(w, b, h, [](std::int64_t, R) {});
  load(query_plane<const T>(call, call.inputs.d_o, b, h), 0, queries, call.problem.value_dim,
       m.d_o);
  multiply({queries, keys, call.problem.value_dim}, m.d_o, m.v_transposed, m.ds);
  w.dropout.apply(b, h, {0, queries, 0, keys}, static_cast<R>(w.dropout.rescale()), keys, m.ds);
  const auto d_lse = query_plane<const R>(call, call.inputs.d_lse, b, h);
  for (std::int64_t i = 0; i < queries; ++i) {
    differentiate_softmax_row(keys, m.p + i * keys, call.problem.has_dlse ? d_lse.at(i, 0) : R(0),
                              m.ds + i * keys);
  }
  return coverage;
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2).
template <class T>
void backward_head(Worker<T>& w, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const Matrices<R>& m = w.m;
  const auto [queries, keys] = call.lengths_of(b);
  load_key_head(w, b, key_head);
  std::fill_n(m.dk, keys * p.head_dim, R(0));
  std::fill_n(m.dv, keys * p.value_dim, R(0));
  for (std::int64_t g = 0; g < call.group_size(); ++g) {
    const std::int64_t h = key_head * call.group_size() + g;
    report(w, b, h, form_gradient(w, b, h), true);
    w.dropout.apply(b, h, {0, queries, 0, keys}, static_cast<R>(w.dropout.rescale()), keys, m.p);
    add_weighted_transposed({keys, p.value_dim, queries}, m.p, m.d_o, m.dv);
    if (m.cap_slope) through_cap({0, queries, 0, keys}, keys, m.cap_slope, m.ds);
    add_weighted_transposed({keys, p.head_dim, queries}, m.ds, m.q, m.dk);
    const auto dq = query_plane<T>(call, call.outputs.dq, b, h);
    if (!dq.data) continue;
    std::fill_n(m.dq, queries * p.head_dim, R(0));
    add_weighted({queries, p.head_dim, keys}, m.ds, m.k, m.dq);
    store(m.dq, p.scale, 0, queries, p.head_dim, dq);
    fill(dq, queries, call.stored_queries(b), p.head_dim, R(0));
  }
  const auto dk = key_plane<T>(call, call.outputs.dk, b, key_head);
  const auto dv = key_plane<T>(call, call.outputs.dv, b, key_head);
  if (dk.data) {
    store(m.dk, p.scale, 0, keys, p.head_dim, dk);
    fill(dk, keys, call.stored_keys(b), p.head_dim, R(0));
  }
  if (dv.data) {
    store(m.dv, 1, 0, keys, p.value_dim, dv);
    fill(dv, keys, call.stored_keys(b), p.value_dim, R(0));
  }
}

// dBias of one plane of it.
template <class T>
void bias_gradient(Worker<T>& w, const BiasPart& part) {
  const Call& call = w.call;
  std::fill_n(w.m.dbias, part.rows() * part.columns(), 0.0);
  for (std::int64_t b = part.batch; b < part.batch_end; ++b) {
    for (std::int64_t h = part.head; h < part.head_end; ++h) {
      load_key_head(w, b, h / call.group_size());
      form_gradient(w, b, h);
      const auto [queries, keys] = call.lengths_of(b);
      add_to_bias(part, {0, queries, 0, keys}, keys, w.m.ds, w.m.dbias);
    }
  }
  store_bias<T>(part, w.m.dbias, call.outputs.dbias);
}

// Calls work(worker, unit) for all units.
template <class T, class Work>
void for_each_unit(const Call& call, bool backward, std::int64_t units, const Work& work) {
  share_out(units, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
    Worker<T> worker(call, backward, number);
    for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
  });
}

template <class T>
void forward_as(const Call& call) {
  const std::int64_t heads = call.problem.query_heads;
  for_each_unit<T>(call, false, call.problem.batch * heads, [&](Worker<T>& w, std::int64_t unit) {
    forward_head(w, unit / heads, unit % heads);
  });
}

template <class T>
void backward_as(const Call& call) {
  const attest_problem& p = call.problem;
  for_each_unit<T>(call, true, p.batch * p.key_heads, [&](Worker<T>& w, std::int64_t unit) {
    backward_head(w, unit / p.key_heads, unit % p.key_heads);
  });
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, p.query_len, p.key_len);
    for_each_unit<T>(call, true, parts.count(),
                     [&](Worker<T>& w, std::int64_t unit) { bias_gradient(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

constexpr KernelCode kNaive = {
    .name = "naive",
    .arithmetic = &arithmetic,
    .workspace = &workspace,
    .forward =
        [](const Call& call) {
          with_element_type(call.problem.dtype, [&](auto e) { forward_as<decltype(e)>(call); });
        },
    .backward =
        [](const Call& call) {
          with_element_type(call.problem.dtype, [&](auto e) { backward_as<decltype(e)>(call); });
        },
};

}  // namespace
}  // namespace attest::impl

extern "C" const attest_plugin* attest_plugin_get(void) {
  static const attest::impl::Plugin plugin(attest::impl::kNaive);
  return plugin.table();
}
