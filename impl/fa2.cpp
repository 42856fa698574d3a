// FlashAttention-2 on tiles (T. Dao, arXiv 2307.08691, Algorithms 1 and 2; "line n" below counts
// theirs), forward and backward.
//
// Reads top down: the declaration, the tiles, the online softmax of a row with its invariant, the
// forward pass of a query block, the backward pass of a key head, and dBias in a pass of its own.
// What the paper does not have stands between its lines: softcap, bias and mask on a tile of S,
// dropout on a tile of P; a sink is where a row's softmax begins. Memory grows with the query
// length only: nothing of size Sq x Sk exists.
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

constexpr std::int64_t kQueryBlock = 64;  // B_r
constexpr std::int64_t kKeyBlock = 64;    // B_c

nlohmann::json arithmetic(const std::string& dtype) {
  const std::string wide = dtype == "f64" ? "f64" : "f32";
  return {
      {"products", {{"default", {{"accumulator", wide}, {"truncates", false}}}}},
      {"softmax", wide},
      {"exp_ulp", 1},
      {"tanh_ulp", 2},
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
      {"thread_invariant", true},
      {"batch_invariant", true},
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
  R* cap_slope;   // null without a softcap
  double* dbias;  // null without a bias
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
        cap_slope(problem.softcap == 0 ? nullptr : arena.take<R>(queries, keys)),
        // At least one element, for a bias may have an axis of size 1 where there are no keys.
        dbias(problem.has_bias ? arena.take<double>(std::max(queries, std::int64_t{1}),
                                                    std::max(keys, std::int64_t{1}))
                               : nullptr),
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

// ---- Forward: Algorithm 1 ----------------------------------------------------------------------

// Takes the scores of one more block into the softmax of a row, and turns them into weights of the
// block's values (lines 9 and 10).
//
// Invariant, after any number of keys, over those seen so far: max is the largest score, sum is the
// sum of exp(score - max), and o the sum of exp(score - max) v. Before the first visible key max is
// -inf while sum and o are 0; then exp is taken relative to 0, for (-inf) - (-inf) is not a number.
// A row with a sink has seen it from the start, as a key with the value 0. So a row has seen
// neither key nor sink as long as its sum is 0, and max never decreases.
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

// What one worker has: the call, its tiles.
template <class Tiles>
struct Worker {
  Worker(const Call& the_call, int the_number, const Tiles& the_tiles)
      : call(the_call), number(the_number), tile(the_tiles), mask(call), dropout(call) {}

  const Call& call;
  int number;
  Tiles tile;
  BlockMask mask;
  Dropout dropout;
};

template <class T>
void forward_block(Worker<ForwardTiles<Real<T>>>& w, std::int64_t b, std::int64_t h,
                   std::int64_t begin) {
  using R = Real<T>;
  const Call& call = w.call;
  const ForwardTiles<R>& tile = w.tile;
  const attest_problem& p = call.problem;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t key_head = h / call.group_size();
  const std::int64_t end = std::min(begin + kQueryBlock, p.query_len);
  const std::int64_t real_end = std::clamp(lengths.query, begin, end);
  const std::int64_t rows = real_end - begin;
  const auto out = query_plane<T>(call, call.outputs.o, b, h);
  const auto lse = query_plane<R>(call, call.outputs.lse, b, h);
  const HeadScores<T> scores(call, b, h);

  load(query_plane<const T>(call, call.inputs.q, b, h), begin, rows, p.head_dim, tile.q);  // line 4
  std::fill_n(tile.o, rows * p.value_dim, R(0));                                           // line 5
  std::fill_n(tile.sum, rows, p.has_sink ? R(1) : R(0));
  std::fill_n(tile.max, rows, sink_of<R>(call, h));

  for (std::int64_t key = 0; rows > 0 && key < lengths.key; key += kKeyBlock) {  // line 6
    const Block block = {begin, real_end, key, std::min(key + kKeyBlock, lengths.key)};
    const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
    if (coverage == Coverage::empty) continue;
    call.report(w.number, b, h, block, coverage == Coverage::partial, false);
    const std::int64_t keys = block.keys();
    load_keys_transposed<T>(call, call.inputs.k, b, key_head, key, keys,  // line 7
                            tile.k_transposed);
    load_keys<T>(call, call.inputs.v, b, key_head, key, keys, tile.v);
    multiply_scores({rows, keys, p.head_dim}, p.scale, tile.q, tile.k_transposed,  // line 8
                    tile.s);
    scores.finish(block, keys, tile.s);
    if (coverage == Coverage::partial) hide(block, tile.visible, keys, tile.s);
    for (std::int64_t i = 0; i < rows; ++i) {  // lines 9 and 10
      absorb<T>(keys, p.value_dim, tile.s + i * keys, tile.max[i], tile.sum[i],
                tile.o + i * p.value_dim);
    }
    w.dropout.apply(b, h, block, R(1), keys, tile.s);
    add_weighted({rows, p.value_dim, keys}, tile.s, tile.v, tile.o);
  }

  for (std::int64_t i = 0; i < rows; ++i) {  // lines 12 and 13
    // A row that saw nothing keeps O = 0, and its LSE is -inf + log 0 = -inf (EMPTY-1, EMPTY-2).
    const R divisor = tile.sum[i] == 0 ? R(1) : tile.sum[i];
    for (std::int64_t c = 0; c < p.value_dim; ++c) tile.o[i * p.value_dim + c] /= divisor;
    lse.at(begin + i, 0) = tile.max[i] + std::log(tile.sum[i]);
  }
  store(tile.o, w.dropout.rescale(), begin, rows, p.value_dim, out);  // lines 14 and 15
  const std::int64_t stored_end = std::min(end, call.stored_queries(b));
  fill(out, real_end, stored_end, p.value_dim, R(0));
  fill(lse, real_end, stored_end, 1, -std::numeric_limits<R>::infinity());
  w.dropout.publish(b, h, begin, end);
}

template <class T>
void forward_as(const Call& call) {
  using Tiles = ForwardTiles<Real<T>>;
  const attest_problem& p = call.problem;
  const std::int64_t blocks = (p.query_len + kQueryBlock - 1) / kQueryBlock;
  const std::uint64_t bytes = workspace(call, false);
  share_out(p.batch * p.query_heads * blocks, call.workers,
            [&](int number, std::int64_t begin, std::int64_t end) {
              Worker<Tiles> worker(call, number,
                                   Tiles(p, Arena(workspace_of(call, number, bytes))));
              for (std::int64_t unit = begin; unit < end; ++unit) {
                const std::int64_t head = unit / blocks;  // over the whole batch
                forward_block<T>(worker, head / p.query_heads, head % p.query_heads,
                                 unit % blocks * kQueryBlock);
              }
            });
}

// ---- Backward: Algorithm 2 ---------------------------------------------------------------------

// K and V of one key block (line 6).
template <class T>
void load_key_block(const Worker<BackwardTiles<Real<T>>>& w, std::int64_t b, std::int64_t key_head,
                    std::int64_t begin, std::int64_t keys) {
  load_keys<T>(w.call, w.call.inputs.k, b, key_head, begin, keys, w.tile.k);
  load_keys_transposed<T>(w.call, w.call.inputs.k, b, key_head, begin, keys, w.tile.k_transposed);
  load_keys_transposed<T>(w.call, w.call.inputs.v, b, key_head, begin, keys, w.tile.v_transposed);
}

// Line 4: delta = rowsum(dO o O), less dLSE, for some rows of one query head.
template <class T, class R = Real<T>>
void form_delta(const Worker<BackwardTiles<R>>& w, std::int64_t b, std::int64_t h,
                std::int64_t begin, std::int64_t rows, R* delta) {
  const attest_problem& p = w.call.problem;
  const attest_inputs& in = w.call.inputs;
  load(query_plane<const T>(w.call, in.d_o, b, h), begin, rows, p.value_dim, w.tile.d_o);
  load(query_plane<const T>(w.call, in.o, b, h), begin, rows, p.value_dim, w.tile.o);
  const auto d_lse = query_plane<const R>(w.call, in.d_lse, b, h);
  for (std::int64_t i = 0; i < rows; ++i) {
    delta[i] = 0;
    for (std::int64_t n = i * p.value_dim; n < (i + 1) * p.value_dim; ++n) {
      delta[i] += w.tile.d_o[n] * w.tile.o[n];
    }
    if (p.has_dlse) delta[i] -= d_lse.at(begin + i, 0);
  }
}

// Lines 9 to 14 for one block: P in tile.p and dS, with respect to the final score, in tile.ds;
// nothing is rounded yet. LSE is -inf in a row that saw nothing; all its elements are hidden, and
// their P is 0 (EMPTY-3).
template <class T, class R = Real<T>>
void form_gradient(const Worker<BackwardTiles<R>>& w, std::int64_t b, std::int64_t h,
                   const Block& block, bool masked, const R* delta) {
  const attest_problem& p = w.call.problem;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t rows = block.queries(), keys = block.keys();
  load(query_plane<const T>(w.call, w.call.inputs.q, b, h), block.query_begin, rows, p.head_dim,
       tile.q);
  load(query_plane<const T>(w.call, w.call.inputs.d_o, b, h), block.query_begin, rows, p.value_dim,
       tile.d_o);
  multiply_scores({rows, keys, p.head_dim}, p.scale, tile.q, tile.k_transposed, tile.p);
  HeadScores<T>(w.call, b, h).finish(block, keys, tile.p, tile.cap_slope);
  if (masked) hide(block, tile.visible, keys, tile.p);
  multiply({rows, keys, p.value_dim}, tile.d_o, tile.v_transposed, tile.ds);
  w.dropout.apply(b, h, block, static_cast<R>(w.dropout.rescale()), keys, tile.ds);
  const auto lse = query_plane<const R>(w.call, w.call.inputs.lse, b, h);
  for (std::int64_t i = 0; i < rows; ++i) {
    const R row_lse = lse.at(block.query_begin + i, 0);
    for (std::int64_t n = i * keys; n < (i + 1) * keys; ++n) {
      const bool hidden = tile.p[n] == -std::numeric_limits<R>::infinity();
      tile.p[n] = hidden ? R(0) : std::exp(tile.p[n] - row_lse);
      tile.ds[n] = hidden ? R(0) : tile.p[n] * (tile.ds[n] - delta[i]);
    }
  }
}

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2), and every
// sum has a fixed order.
template <class T>
void backward_head(Worker<BackwardTiles<Real<T>>>& w, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const BackwardTiles<R>& tile = w.tile;
  const Lengths& lengths = call.lengths_of(b);
  const std::int64_t group = call.group_size();
  const auto dk = key_plane<T>(call, call.outputs.dk, b, key_head);
  const auto dv = key_plane<T>(call, call.outputs.dv, b, key_head);

  std::fill_n(tile.dq, group * lengths.query * p.head_dim, R(0));  // line 2
  for (std::int64_t g = 0; g < group; ++g) {
    for (std::int64_t begin = 0; begin < lengths.query; begin += kQueryBlock) {
      form_delta<T>(w, b, key_head * group + g, begin, std::min(kQueryBlock, lengths.query - begin),
                    tile.delta + g * lengths.query + begin);
    }
  }
  for (std::int64_t key = 0; key < lengths.key; key += kKeyBlock) {  // line 5
    const std::int64_t key_end = std::min(key + kKeyBlock, lengths.key), keys = key_end - key;
    load_key_block<T>(w, b, key_head, key, keys);   // line 6
    std::fill_n(tile.dk, keys * p.head_dim, R(0));  // line 7
    std::fill_n(tile.dv, keys * p.value_dim, R(0));
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t h = key_head * group + g;
      for (std::int64_t begin = 0; begin < lengths.query; begin += kQueryBlock) {  // line 8
        const Block block = {begin, std::min(begin + kQueryBlock, lengths.query), key, key_end};
        const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
        if (coverage == Coverage::empty) continue;
        call.report(w.number, b, h, block, coverage == Coverage::partial, true);
        const std::int64_t rows = block.queries();
        form_gradient<T>(w, b, h, block, coverage == Coverage::partial,
                         tile.delta + g * lengths.query + begin);
        w.dropout.apply(b, h, block, R(1), keys, tile.p);
        if (tile.cap_slope) through_cap(block, keys, tile.cap_slope, tile.ds);
        for (std::int64_t n = 0; n < rows * keys; ++n) {
          tile.p[n] = rounded_to<T>(tile.p[n]);
          tile.ds[n] = rounded_ds<T>(tile.ds[n]);
        }
        add_weighted_transposed({keys, p.value_dim, rows}, tile.p, tile.d_o, tile.dv);  // line 12
        add_weighted({rows, p.head_dim, keys}, tile.ds, tile.k,                         // line 15
                     tile.dq + (g * lengths.query + begin) * p.head_dim);
        add_weighted_transposed({keys, p.head_dim, rows}, tile.ds, tile.q, tile.dk);  // line 16
      }
    }
    if (dk.data) store(tile.dk, p.scale, key, keys, p.head_dim, dk);  // line 18
    if (dv.data) store(tile.dv, w.dropout.rescale(), key, keys, p.value_dim, dv);
  }
  if (dk.data) fill(dk, lengths.key, call.stored_keys(b), p.head_dim, R(0));
  if (dv.data) fill(dv, lengths.key, call.stored_keys(b), p.value_dim, R(0));
  for (std::int64_t g = 0; g < group; ++g) {
    const auto dq = query_plane<T>(call, call.outputs.dq, b, key_head * group + g);
    if (!dq.data) continue;
    store(tile.dq + g * lengths.query * p.head_dim, p.scale, 0, lengths.query, p.head_dim, dq);
    fill(dq, lengths.query, call.stored_queries(b), p.head_dim, R(0));
  }
}

// One part of dBias: over all blocks of scores that read it, tile by tile as above.
template <class T>
void bias_gradient(Worker<BackwardTiles<Real<T>>>& w, const BiasPart& part) {
  const Call& call = w.call;
  const BackwardTiles<Real<T>>& tile = w.tile;
  std::fill_n(tile.dbias, part.rows() * part.columns(), 0.0);
  for (std::int64_t b = part.batch; b < part.batch_end; ++b) {
    const Lengths& lengths = call.lengths_of(b);
    const std::int64_t query_end = std::min(part.scores.query_end, lengths.query);
    const std::int64_t key_end = std::min(part.scores.key_end, lengths.key);
    for (std::int64_t h = part.head; h < part.head_end; ++h) {
      for (std::int64_t key = part.scores.key_begin; key < key_end; key += kKeyBlock) {
        const std::int64_t block_end = std::min(key + kKeyBlock, key_end);
        load_key_block<T>(w, b, h / call.group_size(), key, block_end - key);
        for (std::int64_t begin = part.scores.query_begin; begin < query_end;
             begin += kQueryBlock) {
          const Block block = {begin, std::min(begin + kQueryBlock, query_end), key, block_end};
          const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
          if (coverage == Coverage::empty) continue;
          form_delta<T>(w, b, h, begin, block.queries(), tile.delta);
          form_gradient<T>(w, b, h, block, coverage == Coverage::partial, tile.delta);
          add_to_bias(part, block, block.keys(), tile.ds, tile.dbias);
        }
      }
    }
  }
  store_bias<T>(part, tile.dbias, call.outputs.dbias);
}

template <class T>
void backward_as(const Call& call) {
  using Tiles = BackwardTiles<Real<T>>;
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = workspace(call, true);
  const auto for_each_unit = [&](std::int64_t units, const auto& work) {
    share_out(units, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
      Worker<Tiles> worker(call, number,
                           Tiles(p, group_of(p), Arena(workspace_of(call, number, bytes))));
      for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
    });
  };
  for_each_unit(p.batch * p.key_heads, [&](Worker<Tiles>& w, std::int64_t unit) {
    backward_head<T>(w, unit / p.key_heads, unit % p.key_heads);
  });
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kQueryBlock, kKeyBlock);
    for_each_unit(parts.count(),
                  [&](Worker<Tiles>& w, std::int64_t unit) { bias_gradient<T>(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
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
