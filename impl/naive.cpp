// Attention as textbooks write it: S = scale Q K', P = softmax(S), O = P V, each matrix in full,
// and the chain rule backwards through the same three steps.
//
// Memory grows with Sq x Sk; all of it is workspace. P is normalised before it meets V, and neither
// P nor dS is ever rounded to a 16-bit format.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "impl/elements.h"
#include "impl/mask.h"
#include "impl/parallel.h"
#include "impl/plugin.h"
#include "impl/product.h"
#include "impl/tile.h"

namespace attest::impl {
namespace {

nlohmann::json arithmetic(const std::string& dtype) {
  const std::string wide = dtype == "f64" ? "f64" : "f32";
  return {
      {"products", {{"default", {{"accumulator", wide}, {"truncates", false}}}}},
      {"softmax", wide},
      {"exp_ulp", 1},
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
  };
}

// The matrices of one head; the last row exists in the backward pass only.
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
    }
    bytes = arena.used();
  }

  R *q, *k_transposed, *v, *s, *p, *o;
  std::uint8_t* visible;
  R *k = nullptr, *v_transposed = nullptr, *d_o = nullptr, *ds = nullptr, *dq = nullptr,
    *dk = nullptr, *dv = nullptr;
  std::uint64_t bytes;
};

std::uint64_t workspace(const Call& call, bool backward) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    return Matrices<Real<decltype(element)>>(call.problem, backward, Arena()).bytes;
  });
}

// p = softmax of the visible scores of a row, 0 elsewhere; returns their LSE. Without a visible key
// p = 0 and LSE = -inf (EMPTY-1, EMPTY-2).
template <class R>
R softmax_row(std::int64_t keys, const R* s, R* p) {
  R max = -std::numeric_limits<R>::infinity();
  for (std::int64_t j = 0; j < keys; ++j) max = std::max(max, s[j]);
  // Without this, a row of hidden keys would ask for (-inf) - (-inf).
  const R base = max == -std::numeric_limits<R>::infinity() ? R(0) : max;
  R sum = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    p[j] = std::exp(s[j] - base);
    sum += p[j];
  }
  if (sum != 0) {
    for (std::int64_t j = 0; j < keys; ++j) p[j] /= sum;
  }
  return max + std::log(sum);
}

// S and P of one query head; lse(row) receives the LSE of each row.
template <class T, class Receive>
void form_probabilities(const Call& call, const Matrices<Real<T>>& m, BlockMask& mask, int worker,
                        std::int64_t b, std::int64_t h, bool backward, const Receive& lse) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths[static_cast<std::size_t>(b)];
  const std::int64_t size = lengths.query * lengths.key;
  load(Plane<const T>(call.inputs.q, b, h), 0, lengths.query, p.head_dim, m.q);
  std::fill_n(m.s, size, -std::numeric_limits<R>::infinity());
  const Block all = {0, lengths.query, 0, lengths.key};
  const Coverage coverage = size == 0 ? Coverage::empty : mask.cover(b, h, all, m.visible);
  if (coverage != Coverage::empty) {
    call.report(worker, b, h, all, coverage == Coverage::partial, backward);
    multiply_scores({lengths.query, lengths.key, p.head_dim}, p.scale, m.q, m.k_transposed, m.s);
  }
  if (coverage == Coverage::partial) {
    for (std::int64_t n = 0; n < size; ++n) {
      if (!m.visible[n]) m.s[n] = -std::numeric_limits<R>::infinity();
    }
  }
  for (std::int64_t i = 0; i < lengths.query; ++i) {
    lse(i, softmax_row(lengths.key, m.s + i * lengths.key, m.p + i * lengths.key));
  }
}

template <class T>
void forward_head(const Call& call, const Matrices<Real<T>>& m, BlockMask& mask, int worker,
                  std::int64_t b, std::int64_t h) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths[static_cast<std::size_t>(b)];
  const std::int64_t key_head = h / call.group_size();
  const Plane<T> o(call.outputs.o, b, h);
  const Plane<R> lse(call.outputs.lse, b, h);
  load_transposed(Plane<const T>(call.inputs.k, b, key_head), 0, lengths.key, p.head_dim,
                  m.k_transposed);
  load(Plane<const T>(call.inputs.v, b, key_head), 0, lengths.key, p.value_dim, m.v);
  form_probabilities<T>(call, m, mask, worker, b, h, false,
                        [&](std::int64_t row, R value) { lse.at(row, 0) = value; });
  std::fill_n(m.o, lengths.query * p.value_dim, R(0));
  add_weighted({lengths.query, p.value_dim, lengths.key}, m.p, m.v, m.o);
  store(m.o, 1, 0, lengths.query, p.value_dim, o);
  fill(o, lengths.query, p.query_len, p.value_dim, R(0));
  fill(lse, lengths.query, p.query_len, 1, -std::numeric_limits<R>::infinity());
}

// The derivative of softmax: dS = P o (dP - D), with D the sum of P o dP over the row. Enters with
// dP in ds. A weight of 0 has no gradient, whatever dP is: a hidden V may hold NaN.
template <class R>
void differentiate_softmax_row(std::int64_t keys, const R* p, R* ds) {
  R sum = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    if (p[j] != 0) sum += p[j] * ds[j];
  }
  for (std::int64_t j = 0; j < keys; ++j) ds[j] = p[j] == 0 ? R(0) : p[j] * (ds[j] - sum);
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2).
template <class T>
void backward_head(const Call& call, const Matrices<Real<T>>& m, BlockMask& mask, int worker,
                   std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths[static_cast<std::size_t>(b)];
  const std::int64_t queries = lengths.query, keys = lengths.key;
  const Plane<const T> k(call.inputs.k, b, key_head), v(call.inputs.v, b, key_head);
  const Plane<T> dk(call.outputs.dk, b, key_head), dv(call.outputs.dv, b, key_head);
  load(k, 0, keys, p.head_dim, m.k);
  load_transposed(k, 0, keys, p.head_dim, m.k_transposed);
  load_transposed(v, 0, keys, p.value_dim, m.v_transposed);
  std::fill_n(m.dk, keys * p.head_dim, R(0));
  std::fill_n(m.dv, keys * p.value_dim, R(0));
  for (std::int64_t g = 0; g < call.group_size(); ++g) {
    const std::int64_t h = key_head * call.group_size() + g;
    form_probabilities<T>(call, m, mask, worker, b, h, true, [](std::int64_t, R) {});
    load(Plane<const T>(call.inputs.d_o, b, h), 0, queries, p.value_dim, m.d_o);
    add_weighted_transposed({keys, p.value_dim, queries}, m.p, m.d_o, m.dv);
    multiply({queries, keys, p.value_dim}, m.d_o, m.v_transposed, m.ds);
    for (std::int64_t i = 0; i < queries; ++i) {
      differentiate_softmax_row(keys, m.p + i * keys, m.ds + i * keys);
    }
    add_weighted_transposed({keys, p.head_dim, queries}, m.ds, m.q, m.dk);
    const Plane<T> dq(call.outputs.dq, b, h);
    if (!dq.data) continue;
    std::fill_n(m.dq, queries * p.head_dim, R(0));
    add_weighted({queries, p.head_dim, keys}, m.ds, m.k, m.dq);
    store(m.dq, p.scale, 0, queries, p.head_dim, dq);
    fill(dq, queries, p.query_len, p.head_dim, R(0));
  }
  if (dk.data) {
    store(m.dk, p.scale, 0, keys, p.head_dim, dk);
    fill(dk, keys, p.key_len, p.head_dim, R(0));
  }
  if (dv.data) {
    store(m.dv, 1, 0, keys, p.value_dim, dv);
    fill(dv, keys, p.key_len, p.value_dim, R(0));
  }
}

// The units of work: query heads in the forward pass, key heads in the backward pass.
template <class T>
void run(const Call& call, bool backward) {
  const attest_problem& p = call.problem;
  const std::int64_t heads = backward ? p.key_heads : p.query_heads;
  const std::uint64_t bytes = workspace(call, backward);
  share_out(p.batch * heads, call.workers, [&](int worker, std::int64_t begin, std::int64_t end) {
    const Matrices<Real<T>> m(p, backward, Arena(workspace_of(call, worker, bytes)));
    BlockMask mask(call);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      (backward ? backward_head<T> : forward_head<T>)(call, m, mask, worker, unit / heads,
                                                      unit % heads);
    }
  });
}

constexpr KernelCode kNaive = {
    .name = "naive",
    .arithmetic = &arithmetic,
    .workspace = &workspace,
    .forward =
        [](const Call& call) {
          with_element_type(call.problem.dtype, [&](auto e) { run<decltype(e)>(call, false); });
        },
    .backward =
        [](const Call& call) {
          with_element_type(call.problem.dtype, [&](auto e) { run<decltype(e)>(call, true); });
        },
};

}  // namespace
}  // namespace attest::impl

extern "C" const attest_plugin* attest_plugin_get(void) {
  static const attest::impl::Plugin plugin(attest::impl::kNaive);
  return plugin.table();
}
