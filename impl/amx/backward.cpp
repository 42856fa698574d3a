#include "impl/amx/backward.h"

#include <algorithm>

#include "impl/schedule.h"
#include "impl/score.h"
#include "impl/sequence.h"

namespace attest::impl::amx {
namespace {

// Q and dO of one query head, its LSE, and delta = rowsum(dO o O) less dLSE.
struct QueryHead {
  std::int64_t b, h;
  bool d_o_finite = true;
};

void form_delta(const BackwardWorker& w, const QueryHead& head, std::int64_t begin,
                std::int64_t rows, float* lse, float* delta) {
  const attest_inputs& in = w.call.inputs;
  const auto d_o = query_plane<const T>(w.call, in.d_o, head.b, head.h);
  const auto o = query_plane<const T>(w.call, in.o, head.b, head.h);
  const auto given_lse = query_plane<const float>(w.call, in.lse, head.b, head.h);
  const auto d_lse = query_plane<const float>(w.call, in.d_lse, head.b, head.h);
  for (std::int64_t i = 0; i < rows; ++i) {
    lse[i] = given_lse.at(begin + i, 0);
    float sums[4] = {};  // of every fourth channel, lest each addition wait for the last
    for (std::int64_t c = 0; c < w.problem.value_dim; ++c) {
      sums[c % 4] += widen(d_o.at(begin + i, c)) * widen(o.at(begin + i, c));
    }
    delta[i] = sums[0] + sums[1] + (sums[2] + sums[3]);
    if (w.problem.has_dlse) delta[i] -= d_lse.at(begin + i, 0);
  }
}

// What a block of scores needs of its queries, as left-hand sides.
struct Queries {
  const Bits *q, *d_o;
  const float *lse, *delta;
};

QueryHead load_query_head(const BackwardWorker& w, std::int64_t b, std::int64_t h) {
  const BackwardTiles& tile = w.tile;
  const std::int64_t queries = w.call.lengths_of(b).query;
  const auto q = query_plane<const T>(w.call, w.call.inputs.q, b, h);
  const auto d_o = query_plane<const T>(w.call, w.call.inputs.d_o, b, h);
  QueryHead head = {b, h};
  const auto load = [&](const View& block, std::int64_t begin, std::int64_t channels, Bits* rows,
                        Bits* transposed) {
    pack_left(block, kGradientBlock, channels, rows + begin * channels);
    pack_left(block.transposed(), channels, kGradientBlock, transposed + begin * channels);
    return clean(transposed + begin * channels, channels * kGradientBlock);
  };
  for (std::int64_t begin = 0; begin < queries; begin += kGradientBlock) {
    const std::int64_t rows = std::min(kGradientBlock, queries - begin);
    load(view(q, begin, rows, w.problem.head_dim), begin, tile.head_dim, tile.q, tile.q_transposed);
    head.d_o_finite &= load(view(d_o, begin, rows, w.problem.value_dim), begin, tile.value_dim,
                            tile.d_o, tile.d_o_transposed);
    form_delta(w, head, begin, rows, tile.lse + begin, tile.delta + begin);
  }
  std::fill_n(tile.dq, tile.queries * tile.head_dim, 0.0f);
  return head;
}

View keys_of(const BackwardWorker& w, const attest_tensor& tensor, std::int64_t b,
             std::int64_t key_head, std::int64_t begin, std::int64_t end) {
  return view(key_plane<const T>(w.call, tensor, b, key_head), begin, end - begin, tensor.shape[3]);
}

// K and V of some keys, as right-hand sides.
void load_key_block(const BackwardWorker& w, std::int64_t b, std::int64_t key_head,
                    std::int64_t begin, std::int64_t end) {
  const BackwardTiles& tile = w.tile;
  const View k = keys_of(w, w.call.inputs.k, b, key_head, begin, end);
  const View v = keys_of(w, w.call.inputs.v, b, key_head, begin, end);
  pack_right(k.transposed(), 0, tile.head_dim, tile.k_transposed);
  pack_right(v.transposed(), 0, tile.value_dim, tile.v_transposed);
  pack_right(k, 0, kGradientBlock, tile.k);
  for (std::int64_t panel = 0; panel < tile.head_dim; panel += kPanel) {
    clean(tile.k + Right::index(kGradientBlock, 0, panel), padded(k.rows) * kPanel);
  }
}

Product square(const GradientSlot& slot, const Bits* a, const Bits* b, std::int64_t channels,
               float* c) {
  return {.a = {a, channels},
          .b = {b, channels},
          .c = c,
          .c_stride = kGradientStride,
          .rows = padded(slot.block.queries()),
          .columns = padded(slot.block.keys()),
          .inner = channels,
          .adds = false};
}

// S = Q K' and dP = dO V' of a block, whose keys are in the tiles.
Product score_product(const BackwardWorker& w, const GradientSlot& slot, const Queries& queries) {
  return square(slot, queries.q, w.tile.k_transposed, w.tile.head_dim, slot.s);
}
Product dp_product(const BackwardWorker& w, const GradientSlot& slot, const Queries& queries) {
  return square(slot, queries.d_o, w.tile.v_transposed, w.tile.value_dim, slot.dp);
}

// From S and dP to P and dS with respect to the final score, while `beside` is computed. LSE is
// -inf in a row that saw nothing; all its elements are hidden, and their P is 0 (EMPTY-3).
GradientUnit form_gradient(const BackwardWorker& w, std::int64_t b, std::int64_t h,
                           const GradientSlot& slot, const Queries& queries, bool narrows,
                           const Beside& beside) {
  const Block& block = slot.block;
  const auto scale = static_cast<float>(w.problem.scale);
  GradientUnit unit = {
      .s = {score_product(w, slot, queries), block.queries(), block.keys()},
      .dp = {dp_product(w, slot, queries), block.queries(), block.keys()},
      .factor = scale,
      .lse = queries.lse,
      .delta = queries.delta,
      .narrow = slot.narrow,
      .narrows = narrows,
  };
  if (!w.scores_are_plain() || slot.masked || w.drops() || scale == 0) {
    w.steps.scale(unit.s, scale);
    w.steps.scale(unit.dp, 1);
    unit.factor = 0;
    HeadScores<T>(w.call, b, h).finish(block, kGradientStride, slot.s, w.tile.cap_slope);
    if (slot.masked) hide(block, slot.visible, block.keys(), kGradientStride, slot.s);
    w.dropout.apply(b, h, block, static_cast<float>(w.dropout.rescale()), kGradientStride, slot.dp);
  }
  w.steps.differentiate(unit, beside);
  return unit;
}

// dV' += dO' P, dK' += Q' dS and dQ += dS K of a block.
struct Gradients {
  Product products[3];
};

Gradients gradient_products(const BackwardWorker& w, const GradientSlot& slot) {
  const BackwardTiles& tile = w.tile;
  const std::int64_t query = slot.block.query_begin, key = slot.block.key_begin;
  const std::int64_t rows = padded(slot.block.queries()), keys = padded(slot.block.keys());
  const auto transposed = [&](const Bits* a, const Bits* b, std::int64_t channels, float* c) {
    return Product{.a = {a + query * channels, kGradientBlock},
                   .b = {b, kGradientBlock},
                   .c = c + key % tile.summed_keys * channels,
                   .c_stride = kGradientBlock,
                   .rows = channels,
                   .columns = keys,
                   .inner = rows,
                   .adds = true};
  };
  return {{transposed(tile.d_o_transposed, slot.narrow.p, tile.value_dim, tile.dv_transposed),
           transposed(tile.q_transposed, slot.narrow.ds, tile.head_dim, tile.dk_transposed),
           {.a = {slot.narrow.ds_rows, slot.narrow.ds_stride},
            .b = {tile.k, kGradientBlock},
            .c = tile.dq + query * tile.head_dim,
            .c_stride = tile.head_dim,
            .rows = rows,
            .columns = tile.head_dim,
            .inner = keys,
            .adds = true}}};
}

// Adds what of dO is not finite to dV, where a weight is not 0. Q and K need nothing of the kind:
// where they are not finite, no gradient that is not 0 is.
void add_special_values(const BackwardWorker& w, const QueryHead& head, const GradientSlot& slot) {
  if (head.d_o_finite) return;
  const Block& block = slot.block;
  const auto plane = query_plane<const T>(w.call, w.call.inputs.d_o, head.b, head.h);
  for_each_special(view(plane, block.query_begin, block.queries(), w.problem.value_dim),
                   [&](std::int64_t i, std::int64_t c, float value) {
                     float* const sums = w.tile.dv_transposed +
                                         block.key_begin % w.tile.summed_keys * w.tile.value_dim +
                                         c * kGradientBlock;
                     for (std::int64_t j = 0; j < block.keys(); ++j) {
                       const float weight = slot.s[i * kGradientStride + j];
                       if (weight != 0) sums[j] += weight * value;
                     }
                   });
}

Queries queries_of(const BackwardWorker& w, const GradientSlot& slot) {
  const BackwardTiles& tile = w.tile;
  const std::int64_t begin = slot.block.query_begin;
  return {tile.q + begin * tile.head_dim, tile.d_o + begin * tile.value_dim, tile.lse + begin,
          tile.delta + begin};
}

// All that one query head gives of one key block. While P and dS of a block are formed, the tiles
// use those of the block before and make S and dP of the next.
void add_key_block(BackwardWorker& w, const QueryHead& head, std::int64_t key,
                   std::int64_t key_end) {
  const BackwardTiles& tile = w.tile;
  const std::int64_t queries = w.call.lengths_of(head.b).query;
  std::int64_t query = 0;
  const auto next = [&](GradientSlot& slot) {
    while (query < queries) {
      slot.block = {query, std::min(query + kGradientBlock, queries), key, key_end};
      query += kGradientBlock;
      const Coverage coverage = w.mask.cover(head.b, head.h, slot.block, slot.visible);
      if (coverage == Coverage::empty) continue;
      slot.masked = coverage == Coverage::partial;
      w.call.report(w.number, head.b, head.h, slot.block, slot.masked, kGradientPass);
      return true;
    }
    return false;
  };
  const bool rounds_at_once = !w.drops() && !tile.cap_slope;
  int current = 0;
  if (!next(w.tile.slots[current])) return;
  load_key_block(w, head.b, head.h / w.call.group_size(), key, key_end);
  Product products[5];
  int count = 0;
  const auto make_scores = [&](const GradientSlot& slot) {
    products[count++] = score_product(w, slot, queries_of(w, slot));
    products[count++] = dp_product(w, slot, queries_of(w, slot));
  };
  make_scores(w.tile.slots[current]);
  w.steps.multiply({products, count});
  count = 0;
  for (bool more = true; more; current = 1 - current) {
    GradientSlot& slot = w.tile.slots[current];
    GradientSlot& other = w.tile.slots[1 - current];
    more = next(other);
    if (more) make_scores(other);
    const GradientUnit unit = form_gradient(w, head.b, head.h, slot, queries_of(w, slot),
                                            rounds_at_once, {products, count});
    if (!rounds_at_once) {
      w.dropout.apply(head.b, head.h, slot.block, 1.0f, kGradientStride, slot.s);
      if (tile.cap_slope) through_cap(slot.block, kGradientStride, tile.cap_slope, slot.dp);
      w.steps.narrow_gradient(unit);
    }
    add_special_values(w, head, slot);
    const Gradients gradients = gradient_products(w, slot);
    std::copy_n(gradients.products, 3, products);
    count = 3;
  }
  w.steps.multiply({products, count});
}

// A gradient of one key block, from its sums.
void store_keys(const BackwardWorker& w, std::int64_t b, std::int64_t key_head, const Range& keys,
                const attest_tensor& tensor, double factor, const float* sums) {
  const auto plane = key_plane<T>(w.call, tensor, b, key_head);
  if (!plane.data) return;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    for (std::int64_t c = 0; c < tensor.shape[3]; ++c) {
      const float sum = sums[c * kGradientBlock + j - keys.begin];
      plane.at(j, c) = narrow<T>(static_cast<float>(factor) * sum);
    }
  }
}

void store_queries(const BackwardWorker& w, const QueryHead& head) {
  const attest_problem& p = w.problem;
  const auto dq = query_plane<T>(w.call, w.call.outputs.dq, head.b, head.h);
  if (!dq.data) return;
  const std::int64_t queries = w.call.lengths_of(head.b).query;
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t c = 0; c < p.head_dim; ++c) {
      dq.at(i, c) = narrow<T>(static_cast<float>(p.scale) * w.tile.dq[i * w.tile.head_dim + c]);
    }
  }
  fill(dq, queries, w.call.stored_queries(head.b), p.head_dim, 0.0f);
}

}  // namespace

// One worker computes a whole key head: dK and dV sum over all its query heads (HEAD-2), and every
// sum has a fixed order.
void backward_head(BackwardWorker& w, std::int64_t b, std::int64_t key_head) {
  const BackwardTiles& tile = w.tile;
  const attest_outputs& out = w.call.outputs;
  const std::int64_t keys = w.call.lengths_of(b).key, group = w.call.group_size();
  for (std::int64_t g = 0; g < group; ++g) {
    const QueryHead head = load_query_head(w, b, key_head * group + g);
    for (std::int64_t key = 0; key < keys; key += kGradientBlock) {
      const Range block = {key, std::min(key + kGradientBlock, keys)};
      const std::int64_t kept = key % tile.summed_keys;
      float* const dk = tile.dk_transposed + kept * tile.head_dim;
      float* const dv = tile.dv_transposed + kept * tile.value_dim;
      if (g == 0) {
        std::fill_n(dk, kGradientBlock * tile.head_dim, 0.0f);
        std::fill_n(dv, kGradientBlock * tile.value_dim, 0.0f);
      }
      add_key_block(w, head, block.begin, block.end);
      if (g == group - 1) {
        store_keys(w, b, key_head, block, out.dk, w.problem.scale, dk);
        store_keys(w, b, key_head, block, out.dv, w.dropout.rescale(), dv);
      }
    }
    store_queries(w, head);
  }
  clear_unread_keys<T>(w.call, b, key_head);
}

// One part of dBias: over all blocks of scores that read it, block by block as above.
void bias_gradient(BackwardWorker& w, const BiasPart& part) {
  const Call& call = w.call;
  const BackwardTiles& tile = w.tile;
  GradientSlot& slot = w.tile.slots[0];
  std::fill_n(tile.dbias, part.rows() * part.columns(), 0.0);
  for (std::int64_t b = part.batch; b < part.batch_end; ++b) {
    const Lengths& lengths = call.lengths_of(b);
    const std::int64_t query_end = std::min(part.scores.query_end, lengths.query);
    const std::int64_t key_end = std::min(part.scores.key_end, lengths.key);
    for (std::int64_t h = part.head; h < part.head_end; ++h) {
      const auto q = query_plane<const T>(call, call.inputs.q, b, h);
      const auto d_o = query_plane<const T>(call, call.inputs.d_o, b, h);
      for (std::int64_t key = part.scores.key_begin; key < key_end; key += kGradientBlock) {
        const std::int64_t block_end = std::min(key + kGradientBlock, key_end);
        load_key_block(w, b, h / call.group_size(), key, block_end);
        for (std::int64_t query = part.scores.query_begin; query < query_end;
             query += kGradientBlock) {
          slot.block = {query, std::min(query + kGradientBlock, query_end), key, block_end};
          const std::int64_t rows = slot.block.queries();
          const Coverage coverage = w.mask.cover(b, h, slot.block, slot.visible);
          if (coverage == Coverage::empty) continue;
          slot.masked = coverage == Coverage::partial;
          call.report(w.number, b, h, slot.block, slot.masked, kBiasPass);
          pack_left(view(q, query, rows, w.problem.head_dim), kGradientBlock, tile.head_dim,
                    tile.q);
          pack_left(view(d_o, query, rows, w.problem.value_dim), kGradientBlock, tile.value_dim,
                    tile.d_o);
          form_delta(w, {b, h}, query, rows, tile.lse, tile.delta);
          const Queries queries = {tile.q, tile.d_o, tile.lse, tile.delta};
          const Product products[] = {score_product(w, slot, queries),
                                      dp_product(w, slot, queries)};
          w.steps.multiply({products, 2});
          form_gradient(w, b, h, slot, queries, false, {nullptr, 0});
          add_to_bias(part, slot.block, kGradientStride, slot.dp, tile.dbias);
        }
      }
    }
  }
  store_bias<T>(part, tile.dbias, call.outputs.dbias);
}

}  // namespace attest::impl::amx
