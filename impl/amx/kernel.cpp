// Reads top down: the declaration, the tiles, the forward pass of a query block, the backward pass
// of a key head, and dBias in a pass of its own.
#include "impl/amx/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "impl/amx/pack.h"
#include "impl/bias_gradient.h"
#include "impl/parallel.h"
#include "impl/schedule.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"
#include "impl/worker.h"

namespace attest::impl::amx {
namespace {

using T = BFloat16;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Forward, a worker has some query blocks of O in the second-level cache, and takes strips of them
// through one key block after the other: small enough that a strip's scores stay in the first-level
// cache while a row is worked on, and large enough that sums are long. Backward, sums run over
// queries as well as over keys.
constexpr std::int64_t kQueryBlock = 128, kStrip = kEdge, kKeyBlock = 256;
constexpr std::int64_t kGradientBlock = 128;  // of queries, and of keys
// Between rows: whatever is not a power of two, lest all rows share a few lines of the cache.
constexpr std::int64_t kScoreStride = kKeyBlock + 16, kWeightStride = kKeyBlock + 32;
constexpr std::int64_t kGradientStride = kGradientBlock + 16;
constexpr std::int64_t kNarrowStride = kGradientBlock + 32;

std::int64_t whole_blocks(std::int64_t queries) {
  return blocks_of(queries, kGradientBlock) * kGradientBlock;
}

// ---- Tiles -------------------------------------------------------------------------------------

// What belongs to a block of scores while it is worked on. There are two: the tiles fill one while
// the other is being used up.
struct ForwardSlot {
  ForwardSlot(Arena& arena)
      : s(arena.take<float>(kStrip, kScoreStride)),
        p(arena.take<Bits>(kStrip, kWeightStride)),
        visible(arena.take<std::uint8_t>(kStrip, kKeyBlock)) {}

  float* s;
  Bits* p;
  std::uint8_t* visible;
  Block block = {};
  bool masked = false;
};

struct ForwardTiles {
  ForwardTiles(const attest_problem& p, Arena arena)
      : keys(padded(p.key_len)),
        head_dim(padded(p.head_dim)),
        value_dim(padded(p.value_dim)),
        o_stride(value_dim + 16),
        k(arena.take<Bits>(keys, head_dim)),
        v(arena.take<Bits>(keys, value_dim)),
        page(p.page_size == 0 ? nullptr
                              : arena.take<BFloat16>(kKeyBlock, std::max(p.head_dim, p.value_dim))),
        q(arena.take<Bits>(kQueryBlock, head_dim)),
        o(arena.take<float>(kQueryBlock, o_stride)),
        max(arena.take<float>(kQueryBlock)),
        sum(arena.take<float>(kQueryBlock)),
        slots{arena, arena},
        bytes(arena.used()) {}

  std::int64_t keys, head_dim, value_dim, o_stride;  // padded
  Bits *k, *v;     // of one key head, as right-hand sides: K transposed, V
  BFloat16* page;  // a block of K or V from its pages; null unless keys are paged
  Bits* q;         // of one query block, as a left-hand side
  float *o, *max, *sum;
  ForwardSlot slots[2];
  std::uint64_t bytes;
};

struct GradientSlot {
  GradientSlot(Arena& arena)
      : s(arena.take<float>(kGradientBlock, kGradientStride)),
        dp(arena.take<float>(kGradientBlock, kGradientStride)),
        narrow{arena.take<Bits>(kGradientBlock, kNarrowStride), kNarrowStride,
               arena.take<Bits>(kGradientBlock, kGradientBlock),
               arena.take<Bits>(kGradientBlock, kGradientBlock), kGradientBlock},
        visible(arena.take<std::uint8_t>(kGradientBlock, kGradientBlock)) {}

  float *s, *dp;  // become P and dS
  NarrowGradient narrow;
  std::uint8_t* visible;
  Block block = {};
  bool masked = false;
};

struct BackwardTiles {
  BackwardTiles(const attest_problem& p, Arena arena)
      : queries(whole_blocks(p.query_len)),
        summed_keys(group_of(p) > 1 ? whole_blocks(p.key_len) : kGradientBlock),
        head_dim(padded(p.head_dim)),
        value_dim(padded(p.value_dim)),
        q(arena.take<Bits>(queries, head_dim)),
        q_transposed(arena.take<Bits>(queries, head_dim)),
        d_o(arena.take<Bits>(queries, value_dim)),
        d_o_transposed(arena.take<Bits>(queries, value_dim)),
        lse(arena.take<float>(queries)),
        delta(arena.take<float>(queries)),
        dq(arena.take<float>(queries, head_dim)),
        dk_transposed(arena.take<float>(summed_keys, head_dim)),
        dv_transposed(arena.take<float>(summed_keys, value_dim)),
        k(arena.take<Bits>(kGradientBlock, head_dim)),
        k_transposed(arena.take<Bits>(kGradientBlock, head_dim)),
        v_transposed(arena.take<Bits>(kGradientBlock, value_dim)),
        cap_slope(p.softcap == 0 ? nullptr : arena.take<float>(kGradientBlock, kGradientStride)),
        dbias(p.has_bias ? arena.take<double>(kGradientBlock, kGradientBlock) : nullptr),
        slots{arena, arena},
        bytes(arena.used()) {}

  std::int64_t queries;              // of whole blocks
  std::int64_t summed_keys;          // as many keys of dK and dV are kept at a time
  std::int64_t head_dim, value_dim;  // padded
  // Of one query head. Transposed means block by block: all channels of a block's queries.
  Bits *q, *q_transposed, *d_o, *d_o_transposed;  // left-hand sides
  float *lse, *delta, *dq;
  // Of a key head, or a block of it where it has one query head; block by block transposed.
  float *dk_transposed, *dv_transposed;
  // Of one key block, as right-hand sides.
  Bits *k, *k_transposed, *v_transposed;
  float* cap_slope;  // null without a softcap
  double* dbias;     // null without a bias
  GradientSlot slots[2];
  std::uint64_t bytes;
};

// The thread may use the machine's tiles as long as this lives.
class TileUse {
 public:
  explicit TileUse(const Steps& steps) : steps_(steps) { steps.enter(); }
  ~TileUse() { steps_.leave(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

 private:
  const Steps& steps_;
};

template <class Tiles>
struct Worker : WorkerState {
  Worker(const Call& the_call, const Steps& the_steps, int the_number, std::uint64_t bytes)
      : WorkerState(the_call, the_number),
        problem(call.problem),
        steps(the_steps),
        tile(problem, Arena(workspace_of(call, number, bytes))) {}

  // Whether scores are final as soon as they are scaled.
  bool scores_are_plain() const {
    return problem.softcap == 0 && !problem.has_bias && !problem.has_alibi;
  }
  bool drops() const { return problem.dropout != ATTEST_DROPOUT_NONE; }

  const attest_problem& problem;
  const Steps& steps;
  Tiles tile;
};

using ForwardWorker = Worker<ForwardTiles>;
using BackwardWorker = Worker<BackwardTiles>;

// ---- Forward -----------------------------------------------------------------------------------

// Calls visit(matrix, begin) for the keys of a head, a block at a time; those on pages are
// gathered.
template <class Visit>
void for_each_key_block(const ForwardWorker& w, const attest_tensor& tensor, std::int64_t b,
                        std::int64_t key_head, const Visit& visit) {
  const std::int64_t length = w.call.lengths_of(b).key, channels = tensor.shape[3];
  if (w.problem.page_size == 0) {
    return visit(view(key_plane<const T>(w.call, tensor, b, key_head), 0, length, channels),
                 std::int64_t{0});
  }
  for (std::int64_t begin = 0; begin < length; begin += kKeyBlock) {
    const std::int64_t keys = std::min(kKeyBlock, length - begin);
    for_each_run<T>(w.call, tensor, b, key_head, begin, keys,
                    [&](const Plane<const T>& plane, std::int64_t position, std::int64_t count,
                        std::int64_t done) {
                      for (std::int64_t n = 0; n < count; ++n) {
                        T* const to = w.tile.page + (done + n) * channels;
                        for (std::int64_t c = 0; c < channels; ++c) {
                          to[c] = plane.at(position + n, c);
                        }
                      }
                    });
    visit(View{w.tile.page, keys, channels, channels, 1}, begin);
  }
}

// K and V of one key head, unless the worker has them already.
void pack_keys(ForwardWorker& w, std::int64_t b, std::int64_t key_head) {
  const ForwardTiles& tile = w.tile;
  if (!w.has_to_pack(b, key_head)) return;
  for_each_key_block(w, w.call.inputs.k, b, key_head, [&](const View& k, std::int64_t begin) {
    pack_right(k.transposed(), 0, tile.head_dim, tile.k + begin * tile.head_dim);
  });
  for_each_key_block(w, w.call.inputs.v, b, key_head, [&](const View& v, std::int64_t begin) {
    pack_right(v, begin, tile.keys, tile.v);
  });
  // What lies beyond the length is not set, and not read.
  w.values_finite = true;
  const std::int64_t length = padded(w.call.lengths_of(b).key);
  for (std::int64_t panel = 0; panel < tile.value_dim; panel += kPanel) {
    w.values_finite &= clean(tile.v + Right::index(tile.keys, 0, panel), length * kPanel);
  }
}

// Where the blocks of scores of a query block are, one after the other: strips of queries, and
// outside of them blocks of keys.
class ForwardBlocks {
 public:
  ForwardBlocks(ForwardWorker& w, std::int64_t b, std::int64_t h, std::int64_t begin,
                std::int64_t end)
      : w_(w), b_(b), h_(h), begin_(begin), end_(end), query_(begin) {}

  // Fills in the next block that is not empty; false if there is none.
  bool next(ForwardSlot& slot) {
    const std::int64_t length = w_.call.lengths_of(b_).key;
    while (key_ < length && begin_ < end_) {
      slot.block = {query_, std::min(query_ + kStrip, end_), key_,
                    std::min(key_ + kKeyBlock, length)};
      query_ += kStrip;
      if (query_ >= end_) query_ = begin_, key_ += kKeyBlock;
      const Coverage coverage = w_.mask.cover(b_, h_, slot.block, slot.visible);
      if (coverage == Coverage::empty) continue;
      slot.masked = coverage == Coverage::partial;
      if (slot.masked) trim(slot);
      w_.call.report(w_.number, b_, h_, slot.block, slot.masked, kForwardPass);
      return true;
    }
    return false;
  }

 private:
  // Leaves out keys that no query sees, before the first (in whole squares) and behind the last.
  static void trim(ForwardSlot& slot) {
    const std::int64_t keys = slot.block.keys(), rows = slot.block.queries();
    std::int64_t first = keys, last = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        if (!slot.visible[i * keys + j]) continue;
        first = std::min(first, j);
        last = std::max(last, j + 1);
      }
    }
    first = first / kEdge * kEdge;
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = first; j < last; ++j) {  // in place: what is read lies behind
        const std::uint8_t visible = slot.visible[i * keys + j];
        slot.visible[i * (last - first) + j - first] = visible;
        seen += visible;
      }
    }
    slot.block.key_end = slot.block.key_begin + last;
    slot.block.key_begin += first;
    slot.masked = seen < rows * (last - first);
  }

  ForwardWorker& w_;
  std::int64_t b_, h_, begin_, end_;
  std::int64_t query_, key_ = 0;
};

// S = Q K' of a block, not yet scaled.
Product score_product(const ForwardWorker& w, const ForwardSlot& slot, std::int64_t begin) {
  const ForwardTiles& tile = w.tile;
  return {.a = {tile.q + (slot.block.query_begin - begin) * tile.head_dim, tile.head_dim},
          .b = Right{tile.k, tile.head_dim}.from(0, slot.block.key_begin),
          .c = slot.s,
          .c_stride = kScoreStride,
          .rows = kStrip,
          .columns = padded(slot.block.keys()),
          .inner = tile.head_dim,
          .adds = false};
}

// O += P V of a block.
Product value_product(const ForwardWorker& w, const ForwardSlot& slot, std::int64_t begin) {
  const ForwardTiles& tile = w.tile;
  return {.a = {slot.p, kWeightStride},
          .b = Right{tile.v, tile.keys}.from(slot.block.key_begin, 0),
          .c = tile.o + (slot.block.query_begin - begin) * tile.o_stride,
          .c_stride = tile.o_stride,
          .rows = kStrip,
          .columns = tile.value_dim,
          .inner = padded(slot.block.keys()),
          .adds = true};
}

// Adds to O what of V is not finite, where a weight is not 0.
void add_special_values(const ForwardWorker& w, std::int64_t b, std::int64_t h,
                        const ForwardSlot& slot, std::int64_t begin) {
  if (w.values_finite) return;
  const ForwardTiles& tile = w.tile;
  const Block& block = slot.block;
  for_each_run<T>(
      w.call, w.call.inputs.v, b, h / w.call.group_size(), block.key_begin, block.keys(),
      [&](const Plane<const T>& plane, std::int64_t position, std::int64_t count,
          std::int64_t done) {
        for_each_special(view(plane, position, count, w.problem.value_dim),
                         [&](std::int64_t key, std::int64_t c, float value) {
                           for (std::int64_t i = 0; i < block.queries(); ++i) {
                             const float weight = slot.s[i * kScoreStride + done + key];
                             if (weight == 0) continue;
                             tile.o[(block.query_begin - begin + i) * tile.o_stride + c] +=
                                 weight * value;
                           }
                         });
      });
}

// Takes the scores of a block into the softmax of their rows, while `beside` is computed. A row
// with a sink has seen it from the start, as a key with the value 0.
void absorb_block(const ForwardWorker& w, std::int64_t b, std::int64_t h, const ForwardSlot& slot,
                  std::int64_t begin, const Beside& beside) {
  const ForwardTiles& tile = w.tile;
  const Block& block = slot.block;
  const std::int64_t row = block.query_begin - begin;
  const auto scale = static_cast<float>(w.problem.scale);
  SoftmaxUnit unit = {
      .scores = {score_product(w, slot, begin), block.queries(), block.keys()},
      .factor = scale,
      .max = tile.max + row,
      .sum = tile.sum + row,
      .o = tile.o + row * tile.o_stride,
      .o_stride = tile.o_stride,
      .o_columns = tile.value_dim,
      .p = w.drops() ? nullptr : slot.p,
      .p_stride = kWeightStride,
  };
  if (!w.scores_are_plain() || slot.masked || scale == 0) {
    w.steps.scale(unit.scores, scale);
    unit.factor = 0;
    HeadScores<T>(w.call, b, h).finish(block, kScoreStride, slot.s);
    if (slot.masked) hide(block, slot.visible, block.keys(), kScoreStride, slot.s);
  }
  w.steps.absorb(unit, beside);
  if (w.drops()) {
    w.dropout.apply(b, h, block, 1.0f, kScoreStride, slot.s);
    unit.p = slot.p;
    w.steps.narrow(unit);
  }
  add_special_values(w, b, h, slot, begin);
}

// All blocks of a query block. While the rows of one are worked on, the tiles use the weights of
// the one before and make the scores of the next.
void attend(ForwardWorker& w, std::int64_t b, std::int64_t h, std::int64_t begin,
            std::int64_t end) {
  ForwardBlocks blocks(w, b, h, begin, end);
  int current = 0;
  if (!blocks.next(w.tile.slots[current])) return;
  Product products[2] = {score_product(w, w.tile.slots[current], begin)};
  w.steps.multiply({products, 1});
  int count = 0;
  for (bool more = true; more; current = 1 - current) {
    // The slot of the block before, of which only the weights are still needed.
    ForwardSlot& next = w.tile.slots[1 - current];
    more = blocks.next(next);
    if (more) products[count++] = score_product(w, next, begin);
    absorb_block(w, b, h, w.tile.slots[current], begin, {products, count});
    products[0] = value_product(w, w.tile.slots[current], begin);
    count = 1;
  }
  w.steps.multiply({products, count});
}

void forward_block(ForwardWorker& w, std::int64_t b, std::int64_t h, std::int64_t begin) {
  const Call& call = w.call;
  const attest_problem& p = w.problem;
  const ForwardTiles& tile = w.tile;
  const std::int64_t end = std::min(begin + kQueryBlock, p.query_len);
  const std::int64_t real_end = std::clamp(call.lengths_of(b).query, begin, end);
  const std::int64_t rows = real_end - begin;
  const auto q = query_plane<const T>(call, call.inputs.q, b, h);
  const auto out = query_plane<T>(call, call.outputs.o, b, h);
  const auto lse = query_plane<float>(call, call.outputs.lse, b, h);

  pack_keys(w, b, h / call.group_size());
  pack_left(view(q, begin, rows, p.head_dim), kQueryBlock, tile.head_dim, tile.q);
  std::fill_n(tile.o, kQueryBlock * tile.o_stride, 0.0f);
  std::fill_n(tile.sum, rows, p.has_sink ? 1.0f : 0.0f);
  std::fill_n(tile.max, rows, sink_of<float>(call, h));
  attend(w, b, h, begin, real_end);

  const auto rescale = static_cast<float>(w.dropout.rescale());
  for (std::int64_t i = 0; i < rows; ++i) {
    // A row that saw nothing keeps O = 0, and its LSE is -inf + log 0 = -inf (EMPTY-1, EMPTY-2).
    lse.at(begin + i, 0) = tile.max[i] + std::log(tile.sum[i]);
    const float divisor = tile.sum[i] == 0 ? 1 : tile.sum[i];
    for (std::int64_t c = 0; c < p.value_dim; ++c) {
      out.at(begin + i, c) = narrow<T>(rescale * tile.o[i * tile.o_stride + c] / divisor);
    }
  }
  const std::int64_t stored_end = std::min(end, call.stored_queries(b));
  fill(out, real_end, stored_end, p.value_dim, 0.0f);
  fill(lse, real_end, stored_end, 1, kHidden);
  w.dropout.publish(b, h, begin, end);
}

// ---- Backward ----------------------------------------------------------------------------------

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

}  // namespace

// ---- The declaration ---------------------------------------------------------------------------

// Tiles take subnormal numbers as 0, and so they do with the sums that they keep.
ArithmeticDeclaration tile_arithmetic(const std::string& dtype) {
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p"] = declared["ds"] = dtype;
  declared["p_normalised"] = "last";
  declared["key_block"] = kKeyBlock;
  declared["subnormal_inputs"] = declared["subnormal_outputs"] = "flushed";
  declared["thread_invariant"] = declared["batch_invariant"] = true;
  return declared;
}

ScheduleDeclaration tile_schedule() { return {.masks_partial_only = true}; }

// The workspace, as ForwardTiles and BackwardTiles lay it out for each worker: of both, for each
// kind of memory, the larger. A padded size is at most kEdge larger, whole blocks at most one
// block.
MemoryDeclaration tile_memory() {
  constexpr std::int64_t kBits = sizeof(Bits), kFloat = sizeof(float), kLine = 64;
  // Bytes for `rows` rows of padded channels.
  struct Rows {
    std::int64_t bytes;
    std::int64_t fixed() const { return bytes * kEdge; }
    std::int64_t per_channel() const { return bytes; }
  };
  const Rows forward = {2 * kEdge * kBits + kKeyBlock * kBits + kQueryBlock * (kBits + kFloat)};
  const Rows backward = {kGradientBlock * (4 * kBits + 3 * kFloat + 3 * kBits)};
  const std::int64_t forward_fixed =
      forward.fixed() + kQueryBlock * (16 + 2) * kFloat +
      2 * kStrip * (kScoreStride * kFloat + kWeightStride * kBits + kKeyBlock) + 16 * kLine;
  const std::int64_t backward_fixed =
      backward.fixed() +
      kGradientBlock * (2 * kFloat + kGradientStride * kFloat + kGradientBlock * 8) +
      2 * kGradientBlock *
          (2 * kGradientStride * kFloat + kNarrowStride * kBits +
           kGradientBlock * (2 * kBits + 1)) +
      32 * kLine;
  const std::int64_t query_bytes = 4 * kBits + kFloat, key_bytes = 2 * kFloat;
  return {
      .growth = "linear",
      .workspace = {{"per_thread", std::max(forward_fixed, backward_fixed)},
                    {"per_thread_channel", std::max(forward.per_channel(), backward.per_channel())},
                    {"per_thread_query", query_bytes * kEdge + 2 * kFloat},
                    {"per_thread_query_channel", query_bytes},
                    {"per_thread_key", key_bytes * kEdge},
                    {"per_thread_key_channel", key_bytes}}};
}

std::uint64_t tile_workspace(const Call& call, bool backward) {
  return backward ? BackwardTiles(call.problem, Arena()).bytes
                  : ForwardTiles(call.problem, Arena()).bytes;
}

// ---- Both passes -------------------------------------------------------------------------------

// Neighbouring query blocks forward, whole key heads backward: no bit depends on how many workers
// there are.
void tile_forward(const Call& call, const Steps& steps) {
  const attest_problem& p = call.problem;
  const std::int64_t blocks = blocks_of(p.query_len, kQueryBlock);
  const std::uint64_t bytes = tile_workspace(call, false);
  share_out(p.batch * p.query_heads * blocks, call.workers,
            [&](int number, std::int64_t begin, std::int64_t end) {
              ForwardWorker worker(call, steps, number, bytes);
              const TileUse use(steps);
              for (std::int64_t n = begin; n < end; ++n) {
                const std::int64_t head = n / blocks;
                forward_block(worker, head / p.query_heads, head % p.query_heads,
                              n % blocks * kQueryBlock);
              }
            });
}

void tile_backward(const Call& call, const Steps& steps) {
  const attest_problem& p = call.problem;
  const std::uint64_t bytes = tile_workspace(call, true);
  const auto for_each_unit = [&](std::int64_t units, const auto& work) {
    share_out(units, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
      BackwardWorker worker(call, steps, number, bytes);
      const TileUse use(steps);
      for (std::int64_t unit = begin; unit < end; ++unit) work(worker, unit);
    });
  };
  for_each_unit(p.batch * p.key_heads, [&](BackwardWorker& w, std::int64_t unit) {
    backward_head(w, unit / p.key_heads, unit % p.key_heads);
  });
  if (call.outputs.dbias.data) {
    const BiasParts parts(call, kGradientBlock, kGradientBlock);
    for_each_unit(parts.count(),
                  [&](BackwardWorker& w, std::int64_t unit) { bias_gradient(w, parts[unit]); });
  }
  if (call.outputs.dsink.data) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) sink_gradient<T>(call, h);
  }
}

}  // namespace attest::impl::amx
