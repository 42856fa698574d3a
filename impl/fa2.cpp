// FlashAttention-2 on tiles (T. Dao, arXiv 2307.08691, Algorithms 1 and 2; "line n" below counts
// theirs), forward and backward.
//
// Reads top down: the declaration, the tiles, the online softmax of a row with its invariant, the
// forward pass of a query block, the backward pass of a key head. Memory grows with the query
// length only: nothing of size Sq x Sk exists.
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

constexpr std::int64_t kQueryBlock = 64;  // B_r
constexpr std::int64_t kKeyBlock = 64;    // B_c

nlohmann::json arithmetic(const std::string& dtype) {
  const std::string wide = dtype == "f64" ? "f64" : "f32";
  return {
      {"products", {{"default", {{"accumulator", wide}, {"truncates", false}}}}},
      {"softmax", wide},
      {"exp_ulp", 1},
      {"p", dtype},  // as it would enter a matrix unit
      {"p_normalised", "last"},
      {"ds", dtype == "f16" ? wide : dtype},
      {"ds_scaled", "after_rounding"},
      {"ds_from", "p"},
      {"kv_splits", 1},
      {"rescales_output", false},
      {"key_block", kKeyBlock},
      {"subnormal_inputs", "kept"},
      {"subnormal_outputs", "kept"},
      {"output_rounding", "nearest"},
      {"deterministic", true},
  };
}

// dS is rounded as P is, but not to f16: it may exceed 65504 while dQ and dK do not.
template <class T>
Real<T> rounded_ds(Real<T> ds) {
  return std::is_same_v<T, Half> ? ds : rounded_to<T>(ds);
}

// ---- Tiles -------------------------------------------------------------------------------------

template <class R>
struct ForwardTiles {
  ForwardTiles(const attest_problem& p, Arena arena)
      : ForwardTiles(p, arena, std::min(p.query_len, kQueryBlock), std::min(p.key_len, kKeyBlock)) {
  }

  R *q, *k_transposed, *v, *s, *o;
  R *max, *sum;  // m and l
  std::uint8_t* visible;
  std::uint64_t bytes;

 private:
  ForwardTiles(const attest_problem& p, Arena arena, std::int64_t queries, std::int64_t keys)
      : q(arena.take<R>(queries, p.head_dim)),
        k_transposed(arena.take<R>(p.head_dim, keys)),
        v(arena.take<R>(keys, p.value_dim)),
        s(arena.take<R>(queries, keys)),
        o(arena.take<R>(queries, p.value_dim)),
        max(arena.take<R>(queries)),
        sum(arena.take<R>(queries)),
        visible(arena.take<std::uint8_t>(queries, keys)),
        bytes(arena.used()) {}
};

template <class R>
struct BackwardTiles {
  BackwardTiles(const attest_problem& problem, std::int64_t group, Arena arena)
      : BackwardTiles(problem, group, arena, std::min(problem.query_len, kQueryBlock),
                      std::min(problem.key_len, kKeyBlock)) {}

  // Of all query heads that read the key head: what lives across key blocks.
  R *dq, *delta;
  // Of one block.
  R *q, *d_o, *o, *k, *k_transposed, *v_transposed, *p, *ds, *dk, *dv;
  std::uint8_t* visible;
  std::uint64_t bytes;

 private:
  BackwardTiles(const attest_problem& problem, std::int64_t group, Arena arena,
                std::int64_t queries, std::int64_t keys)
      : dq(arena.take<R>(group * problem.query_len, problem.head_dim)),
        delta(arena.take<R>(group, problem.query_len)),
        q(arena.take<R>(queries, problem.head_dim)),
        d_o(arena.take<R>(queries, problem.value_dim)),
        o(arena.take<R>(queries, problem.value_dim)),
        k(arena.take<R>(keys, problem.head_dim)),
        k_transposed(arena.take<R>(problem.head_dim, keys)),
        v_transposed(arena.take<R>(problem.value_dim, keys)),
        p(arena.take<R>(queries, keys)),
        ds(arena.take<R>(queries, keys)),
        dk(arena.take<R>(keys, problem.head_dim)),
        dv(arena.take<R>(keys, problem.value_dim)),
        visible(arena.take<std::uint8_t>(queries, keys)),
        bytes(arena.used()) {}
};

std::int64_t group_of(const attest_problem& p) {
  return p.key_heads == 0 ? 0 : p.query_heads / p.key_heads;
}

std::uint64_t workspace(const Call& call, bool backward) {
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    return backward ? BackwardTiles<R>(call.problem, group_of(call.problem), Arena()).bytes
                    : ForwardTiles<R>(call.problem, Arena()).bytes;
  });
}

// A hidden element has the score -inf, and so the weight 0.
template <class R>
void hide(const Block& block, const std::uint8_t* visible, R* s) {
  for (std::int64_t n = 0; n < block.queries() * block.keys(); ++n) {
    if (!visible[n]) s[n] = -std::numeric_limits<R>::infinity();
  }
}

// ---- Forward: Algorithm 1 ----------------------------------------------------------------------

// Takes the scores of one more block into the softmax of a row, and turns them into weights of the
// block's values (lines 9 and 10).
//
// Invariant, after any number of keys, over those seen so far: max is the largest score, sum is the
// sum of exp(score - max), and o the sum of exp(score - max) v. Before the first visible key max is
// -inf while sum and o are 0; then exp is taken relative to 0, for (-inf) - (-inf) is not a number.
// So a row has seen no key as long as its sum is 0, and max never decreases.
template <class T, class R = Real<T>>
void absorb(std::int64_t keys, std::int64_t value_dim, R* s, R& max, R& sum, R* o) {
  R new_max = max;
  for (std::int64_t j = 0; j < keys; ++j) new_max = std::max(new_max, s[j]);  // passes over NaN
  const R base = new_max == -std::numeric_limits<R>::infinity() ? R(0) : new_max;
  if (new_max != max) {
    const R rescale = std::exp(max - base);
    sum *= rescale;
    for (std::int64_t c = 0; c < value_dim; ++c) o[c] *= rescale;
    max = new_max;
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    const R p = std::exp(s[j] - base);
    sum += p;                 // the denominator takes P as it is,
    s[j] = rounded_to<T>(p);  // the matrix product takes it in the format of V
  }
}

template <class T>
void forward_block(const Call& call, const ForwardTiles<Real<T>>& tile, BlockMask& mask, int worker,
                   std::int64_t b, std::int64_t h, std::int64_t begin) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths[static_cast<std::size_t>(b)];
  const std::int64_t key_head = h / call.group_size();
  const std::int64_t end = std::min(begin + kQueryBlock, p.query_len);
  const std::int64_t real_end = std::clamp(lengths.query, begin, end);
  const std::int64_t rows = real_end - begin;
  const Plane<T> out(call.outputs.o, b, h);
  const Plane<R> lse(call.outputs.lse, b, h);

  load(Plane<const T>(call.inputs.q, b, h), begin, rows, p.head_dim, tile.q);  // line 4
  std::fill_n(tile.o, rows * p.value_dim, R(0));                               // line 5
  std::fill_n(tile.sum, rows, R(0));
  std::fill_n(tile.max, rows, -std::numeric_limits<R>::infinity());

  for (std::int64_t key = 0; rows > 0 && key < lengths.key; key += kKeyBlock) {  // line 6
    const Block block = {begin, real_end, key, std::min(key + kKeyBlock, lengths.key)};
    const Coverage coverage = mask.cover(b, h, block, tile.visible);
    if (coverage == Coverage::empty) continue;
    call.report(worker, b, h, block, coverage == Coverage::partial, false);
    const std::int64_t keys = block.keys();
    load_transposed(Plane<const T>(call.inputs.k, b, key_head), key, keys, p.head_dim,  // line 7
                    tile.k_transposed);
    load(Plane<const T>(call.inputs.v, b, key_head), key, keys, p.value_dim, tile.v);
    multiply_scores({rows, keys, p.head_dim}, p.scale, tile.q, tile.k_transposed,  // line 8
                    tile.s);
    if (coverage == Coverage::partial) hide(block, tile.visible, tile.s);
    for (std::int64_t i = 0; i < rows; ++i) {  // lines 9 and 10
      absorb<T>(keys, p.value_dim, tile.s + i * keys, tile.max[i], tile.sum[i],
                tile.o + i * p.value_dim);
    }
    add_weighted({rows, p.value_dim, keys}, tile.s, tile.v, tile.o);
  }

  for (std::int64_t i = 0; i < rows; ++i) {  // lines 12 and 13
    // A row that saw no key keeps O = 0, and its LSE is -inf + log 0 = -inf (EMPTY-1, EMPTY-2).
    const R divisor = tile.sum[i] == 0 ? R(1) : tile.sum[i];
    for (std::int64_t c = 0; c < p.value_dim; ++c) tile.o[i * p.value_dim + c] /= divisor;
    lse.at(begin + i, 0) = tile.max[i] + std::log(tile.sum[i]);
  }
  store(tile.o, 1, begin, rows, p.value_dim, out);  // lines 14 and 15
  fill(out, real_end, end, p.value_dim, R(0));
  fill(lse, real_end, end, 1, -std::numeric_limits<R>::infinity());
}

template <class T>
void forward_as(const Call& call) {
  const attest_problem& p = call.problem;
  const std::int64_t blocks = (p.query_len + kQueryBlock - 1) / kQueryBlock;
  const std::uint64_t bytes = workspace(call, false);
  share_out(p.batch * p.query_heads * blocks, call.workers,
            [&](int worker, std::int64_t begin, std::int64_t end) {
              const ForwardTiles<Real<T>> tiles(p, Arena(workspace_of(call, worker, bytes)));
              BlockMask mask(call);
              for (std::int64_t unit = begin; unit < end; ++unit) {
                const std::int64_t head = unit / blocks;  // over the whole batch
                forward_block<T>(call, tiles, mask, worker, head / p.query_heads,
                                 head % p.query_heads, unit % blocks * kQueryBlock);
              }
            });
}

// ---- Backward: Algorithm 2 ---------------------------------------------------------------------

// Lines 10 to 14 for one block: P and dS from the scores in tile.p and the products dO.V in
// tile.ds. LSE is -inf in a row that saw no key; all its elements are hidden, and their P is 0
// (EMPTY-3).
template <class T, class R = Real<T>>
void form_gradient(const Block& block, const Plane<const R>& lse, const R* delta, R* p, R* ds) {
  for (std::int64_t i = 0; i < block.queries(); ++i) {
    const R row_lse = lse.at(block.query_begin + i, 0);
    for (std::int64_t n = i * block.keys(); n < (i + 1) * block.keys(); ++n) {
      const bool hidden = p[n] == -std::numeric_limits<R>::infinity();
      const R weight = hidden ? R(0) : std::exp(p[n] - row_lse);
      ds[n] = hidden ? R(0) : rounded_ds<T>(weight * (ds[n] - delta[block.query_begin + i]));
      p[n] = rounded_to<T>(weight);
    }
  }
}

// Line 4: delta = rowsum(dO o O), for one query head; and line 2: its dQ = 0.
template <class T, class R = Real<T>>
void prepare_head(const Call& call, const BackwardTiles<R>& tile, std::int64_t b, std::int64_t h,
                  std::int64_t query_len, R* dq, R* delta) {
  const attest_problem& p = call.problem;
  std::fill_n(dq, query_len * p.head_dim, R(0));
  std::fill_n(delta, query_len, R(0));
  for (std::int64_t begin = 0; begin < query_len; begin += kQueryBlock) {
    const std::int64_t rows = std::min(kQueryBlock, query_len - begin);
    load(Plane<const T>(call.inputs.d_o, b, h), begin, rows, p.value_dim, tile.d_o);
    load(Plane<const T>(call.inputs.o, b, h), begin, rows, p.value_dim, tile.o);
    for (std::int64_t n = 0; n < rows * p.value_dim; ++n) {
      delta[begin + n / p.value_dim] += tile.d_o[n] * tile.o[n];
    }
  }
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2), and every
// sum has a fixed order.
template <class T>
void backward_head(const Call& call, const BackwardTiles<Real<T>>& tile, BlockMask& mask,
                   int worker, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths[static_cast<std::size_t>(b)];
  const std::int64_t group = call.group_size();
  const Plane<const T> k(call.inputs.k, b, key_head), v(call.inputs.v, b, key_head);
  const Plane<T> dk(call.outputs.dk, b, key_head), dv(call.outputs.dv, b, key_head);

  for (std::int64_t g = 0; g < group; ++g) {
    prepare_head<T>(call, tile, b, key_head * group + g, lengths.query,
                    tile.dq + g * lengths.query * p.head_dim, tile.delta + g * lengths.query);
  }
  for (std::int64_t key = 0; key < lengths.key; key += kKeyBlock) {  // line 5
    const std::int64_t key_end = std::min(key + kKeyBlock, lengths.key), keys = key_end - key;
    load(k, key, keys, p.head_dim, tile.k);  // line 6
    load_transposed(k, key, keys, p.head_dim, tile.k_transposed);
    load_transposed(v, key, keys, p.value_dim, tile.v_transposed);
    std::fill_n(tile.dk, keys * p.head_dim, R(0));  // line 7
    std::fill_n(tile.dv, keys * p.value_dim, R(0));
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t h = key_head * group + g;
      for (std::int64_t begin = 0; begin < lengths.query; begin += kQueryBlock) {  // line 8
        const Block block = {begin, std::min(begin + kQueryBlock, lengths.query), key, key_end};
        const Coverage coverage = mask.cover(b, h, block, tile.visible);
        if (coverage == Coverage::empty) continue;
        call.report(worker, b, h, block, coverage == Coverage::partial, true);
        const std::int64_t rows = block.queries();
        load(Plane<const T>(call.inputs.q, b, h), begin, rows, p.head_dim, tile.q);  // line 9
        load(Plane<const T>(call.inputs.d_o, b, h), begin, rows, p.value_dim, tile.d_o);
        multiply_scores({rows, keys, p.head_dim}, p.scale, tile.q, tile.k_transposed, tile.p);
        if (coverage == Coverage::partial) hide(block, tile.visible, tile.p);
        multiply({rows, keys, p.value_dim}, tile.d_o, tile.v_transposed, tile.ds);
        form_gradient<T>(block, Plane<const R>(call.inputs.lse, b, h),
                         tile.delta + g * lengths.query, tile.p, tile.ds);
        add_weighted_transposed({keys, p.value_dim, rows}, tile.p, tile.d_o, tile.dv);  // line 12
        add_weighted({rows, p.head_dim, keys}, tile.ds, tile.k,                         // line 15
                     tile.dq + (g * lengths.query + begin) * p.head_dim);
        add_weighted_transposed({keys, p.head_dim, rows}, tile.ds, tile.q, tile.dk);  // line 16
      }
    }
    if (dk.data) store(tile.dk, p.scale, key, keys, p.head_dim, dk);  // line 18
    if (dv.data) store(tile.dv, 1, key, keys, p.value_dim, dv);
  }
  if (dk.data) fill(dk, lengths.key, p.key_len, p.head_dim, R(0));
  if (dv.data) fill(dv, lengths.key, p.key_len, p.value_dim, R(0));
  for (std::int64_t g = 0; g < group; ++g) {
    const Plane<T> dq(call.outputs.dq, b, key_head * group + g);
    if (!dq.data) continue;
    store(tile.dq + g * lengths.query * p.head_dim, p.scale, 0, lengths.query, p.head_dim, dq);
    fill(dq, lengths.query, p.query_len, p.head_dim, R(0));
  }
}

template <class T>
void backward_as(const Call& call) {
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = workspace(call, true);
  share_out(p.batch * p.key_heads, call.workers,
            [&](int worker, std::int64_t begin, std::int64_t end) {
              const BackwardTiles<Real<T>> tiles(p, group_of(p),
                                                 Arena(workspace_of(call, worker, bytes)));
              BlockMask mask(call);
              for (std::int64_t unit = begin; unit < end; ++unit) {
                backward_head<T>(call, tiles, mask, worker, unit / p.key_heads, unit % p.key_heads);
              }
            });
}

constexpr KernelCode kFa2 = {
    .name = "fa2",
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
  static const attest::impl::Plugin plugin(attest::impl::kFa2);
  return plugin.table();
}
