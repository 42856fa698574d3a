#include "impl/amx/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "impl/amx/pack.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"

namespace attest::impl::amx {
namespace {

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

}  // namespace

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
  fill(lse, real_end, stored_end, 1, -std::numeric_limits<float>::infinity());
  w.dropout.publish(b, h, begin, end);
}

}  // namespace attest::impl::amx
