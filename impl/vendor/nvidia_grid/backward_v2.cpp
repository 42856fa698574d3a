// A block of keys outside, blocks of rows inside, the last first. Warps have rows of the scores and
// keys of the gradients, and no two have a part of one sum: no split-K. dQ is added in global
// memory, by all blocks of keys, and rounded by a kernel of its own.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "impl/vendor/nvidia_grid/dot_do_o.h"
#include "impl/vendor/nvidia_grid/kernels.h"
#include "impl/vendor/nvidia_grid/softmax.h"
#include "impl/vendor/nvidia_grid/v2_scores.h"

namespace attest::vendor::nvidia_grid::v2 {
namespace {

using Kind = ThreadBlock::Kind;

struct Column {
  std::int64_t number;
  Fragment k, k_transposed, v_transposed;
  Fragment dk, dv;
};

// The blocks of rows that see a block of keys, and whether a block of both is masked.
struct RowBlocks {
  std::int64_t begin, end;
};

RowBlocks row_blocks(const Params& p, const Sequence& s, const BackwardTile& t, std::int64_t n) {
  const std::int64_t shift = s.queries - s.keys;
  RowBlocks blocks = {0, ceil_div(s.queries, t.rows)};
  if (p.is_local()) {
    blocks.end = std::min(blocks.end, ceil_div((n + 1) * t.keys + shift + p.window_left, t.rows));
  }
  if (p.causal || p.is_local()) {
    blocks.begin = std::max<std::int64_t>(0, (n * t.keys + shift - p.window_right) / t.rows);
  }
  return blocks;
}

bool is_masked_at(const Params& p, const Sequence& s, const Area& area) {
  const std::int64_t shift = s.queries - s.keys;
  const std::int64_t key_end = area.key + area.keys, row_end = area.row + area.rows;
  const bool is_last = key_end >= s.keys;
  if (p.causal) return area.row < key_end + shift || is_last;
  if (!p.is_local()) return is_last;
  return area.row < key_end + shift - p.window_right ||
         row_end >= area.key + shift + p.window_left || is_last;
}

// P, and dS without its rounding.
struct Gradients {
  Fragment p, ds;
};

Gradients gradients_of(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
                       const Area& area, const Column& column, const Fragment& q,
                       const Fragment& dout) {
  Fragment scores(q.rows(), column.k.rows()), slopes;
  multiply(scores, Factor::rows(q), column.k_transposed, 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_scores());
  block.count_scores(t.rows * t.keys);
  if (p.softcap > 0) {
    apply_softcap(scores, p.softcap);
    slopes = slopes_of_softcap(scores, p.softcap);
  }
  if (p.alibi_slopes) apply_alibi(scores, p, at, area);
  const bool is_masked = is_masked_at(p, at.sequence, area);
  if (is_masked) mask(scores, band_of(p, at.sequence), area);
  p.tell(block, at, area, is_masked, true);
  weigh(scores, p.numbers(p.lse, at) + area.row, p.scale_softmax_log2);
  block.count_global(Kind::kInput, 2, q.rows() * 4);  // LSE and D

  const float* sums = p.numbers(p.dsoftmax_sum, at) + area.row;
  Fragment ds(q.rows(), column.k.rows());
  multiply(ds, Factor::rows(dout), column.v_transposed, 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_dp());
  for (std::int64_t r = 0; r < ds.rows(); ++r) {
    float* row = ds.row(r);
    for (std::int64_t c = 0; c < ds.columns(); ++c) {
      row[c] = scores.row(r)[c] * (row[c] - sums[r]);
      if (p.softcap > 0) row[c] *= slopes.row(r)[c];
    }
  }
  return {std::move(scores), std::move(ds)};
}

// To a part of dQ's sum; to one that is for all blocks of keys by atomic additions.
void add_query_gradients(ThreadBlock& block, const Params& p, const HeadAt& at, const Area& area,
                         const Fragment& dq, const DqSum& sum, std::int64_t part) {
  for (std::int64_t r = 0; r < dq.rows(); ++r) {
    float* place = p.partials.of(at.batch, at.sequence.first_query + area.row + r, at.head) +
                   part * sum.part_stride;
    for (std::int64_t c = 0; c < p.d; ++c) {
      if (sum.deterministic) {
        place[c] += dq.row(r)[c];  // no other thread block adds to this part
      } else {
        std::atomic_ref<float>(place[c]).fetch_add(dq.row(r)[c], std::memory_order_relaxed);
      }
    }
  }
  block.count_global(Kind::kPartialAdded, dq.rows(), p.d * 4);
}

struct Tiles {
  SharedTile q[2], dout, k;
  std::optional<SharedTile> v;  // empty once it is in registers
  std::optional<SharedTile> p, ds;
};

Tiles tiles_of(ThreadBlock& block, const BackwardTile& t) {
  return {{block.tile("Q", t.rows, t.head_dim),
           block.tile("next Q", t.buffers_of_q == 2 ? t.rows : 0, t.head_dim)},
          block.tile("dO", t.rows, t.head_dim),
          block.tile("K", t.keys, t.head_dim),
          block.tile("V", t.keys, t.head_dim),
          std::nullopt,
          std::nullopt};
}

Column load_column(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
                   std::int64_t n, Tiles& tiles) {
  const std::int64_t key_head = p.key_head(at.head);
  block.copy(*tiles.v, p.keys(p.v, at, key_head), n * t.keys, n);
  block.copy(tiles.k, p.keys(p.k, at, key_head), n * t.keys, n);
  block.commit();
  block.wait(0);
  Fragment k = block.load(tiles.k, n, p.dtype);
  Column column = {n, {}, k.transposed(), block.load(*tiles.v, n, p.dtype).transposed(), {}, {}};
  column.dk = column.dv = Fragment(k.rows(), p.d);
  column.k = std::move(k);
  if (t.v_in_registers) {
    block.count_shared_load(t.keys * t.head_dim * 2);
    tiles.v.reset();
  }
  tiles.p.emplace(block.tile("P", t.rows, t.keys));
  tiles.ds.emplace(block.tile("dS", t.rows, t.keys));
  return column;
}

// One block of rows meets the column.
void add_rows(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
              std::int64_t m, Column& column, Tiles& tiles, SharedTile& q_tile, const DqSum& sum,
              std::int64_t part) {
  const Area area = {m * t.rows, t.rows, column.number * t.keys, t.keys};
  const Fragment q = block.load(q_tile, m, p.dtype), dout = block.load(tiles.dout, m, p.dtype);
  const Gradients gradients = gradients_of(block, p, at, t, area, column, q, dout);
  block.store(*tiles.p, gradients.p, m, p.dtype);
  block.store(*tiles.ds, gradients.ds, m, p.dtype);
  block.sync();
  multiply(column.dv, Factor::columns(block.load(*tiles.p, m, p.dtype)), dout, 0, dout.rows());
  block.count_product(t.keys, t.head_dim, t.rows, t.of_dkv());
  const Fragment ds = block.load(*tiles.ds, m, p.dtype);
  Fragment dq(q.rows(), p.d);
  multiply(dq, Factor::rows(ds), column.k, 0, ds.columns());
  block.count_product(t.rows, t.head_dim, t.keys, t.of_dq());
  add_query_gradients(block, p, at, area, dq, sum, part);
  multiply(column.dk, Factor::columns(ds), q, 0, q.rows());
  block.count_product(t.keys, t.head_dim, t.rows, t.of_dkv());
  block.sync();
}

void key_block(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
               std::int64_t n, const DqSum& sum, std::int64_t part) {
  if (n * t.keys >= at.sequence.keys) return;
  Tiles tiles = tiles_of(block, t);
  Column column = load_column(block, p, at, t, n, tiles);
  const RowBlocks blocks = row_blocks(p, at.sequence, t, n);
  const Matrix queries = p.queries(p.q, at), douts = p.queries(p.dout, at);
  const auto buffer = [&](std::int64_t m) -> SharedTile& {
    return tiles.q[t.buffers_of_q == 2 ? m % 2 : 0];
  };
  std::int64_t m = blocks.end - 1;
  if (m >= blocks.begin) {
    block.copy(buffer(m), queries, m * t.rows, m);
    block.copy(tiles.dout, douts, m * t.rows, m);
    block.commit();
  }
  for (; m >= blocks.begin; --m) {
    block.wait(0);
    block.sync();
    const bool is_last = m == blocks.begin;
    if (!is_last && t.buffers_of_q == 2) {
      block.copy(buffer(m - 1), queries, (m - 1) * t.rows, m - 1);
      block.commit();
    }
    add_rows(block, p, at, t, m, column, tiles, buffer(m), sum, part);
    if (is_last) break;
    if (t.buffers_of_q == 1) block.copy(buffer(m - 1), queries, (m - 1) * t.rows, m - 1);
    block.copy(tiles.dout, douts, (m - 1) * t.rows, m - 1);
    block.commit();
  }
  scale_by(column.dk, p.scale_softmax);
  block.narrow_to(p.keys(p.dk, at, at.head), n * t.keys, column.dk, p.dtype);
  block.narrow_to(p.keys(p.dv, at, at.head), n * t.keys, column.dv, p.dtype);
}

// dQ of a block of rows: its parts are added up, scaled and rounded.
void convert_dq(ThreadBlock& block, const Params& p, const HeadAt& at, std::int64_t first,
                std::int64_t rows, const DqSum& sum) {
  const std::int64_t count = std::clamp<std::int64_t>(at.sequence.queries - first, 0, rows);
  Fragment dq(count, p.d);
  for (std::int64_t part = 0; part < sum.parts; ++part) {
    for (std::int64_t r = 0; r < count; ++r) {
      const float* place = p.partials.of(at.batch, at.sequence.first_query + first + r, at.head) +
                           part * sum.part_stride;
      for (std::int64_t c = 0; c < p.d; ++c) dq.row(r)[c] += place[c];
    }
    block.count_global(Kind::kPartialRead, count, p.d * 4);
  }
  scale_by(dq, p.scale_softmax);
  block.narrow_to(p.queries(p.dq, at), first, dq, p.dtype);
}

}  // namespace

void run_mha_bwd(const Params& params, const BackwardTile& tile, const DqSum& sum) {
  Gpu& gpu = *params.gpu;
  const auto at = [&](const Dim3& index) {
    return HeadAt{index.y, index.z, params.sequence(index.y)};
  };
  const Resources small = {.threads = tile.resources().threads, .shared_bytes = 0};
  const Dim3 of_rows = {ceil_div(params.seqlen_q, tile.rows), params.b, params.h};
  const std::int64_t key_blocks = ceil_div(params.seqlen_k, tile.keys);
  gpu.launch("flash_bwd_dot_do_o_kernel", of_rows, small,
             [&](ThreadBlock& block, const Dim3& index) {
               dot_do_o(block, params, at(index), index.x * tile.rows, tile.rows);
             });
  const Dim3 of_keys = {sum.deterministic ? sum.blocks : key_blocks, params.b, params.h};
  gpu.launch("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", of_keys, tile.resources(),
             [&](ThreadBlock& block, const Dim3& index) {
               for (std::int64_t n = index.x; n < key_blocks; n += of_keys.x) {
                 key_block(block, params, at(index), tile, n, sum, sum.deterministic ? index.x : 0);
               }
             });
  gpu.launch("flash_bwd_convert_dq_kernel", of_rows, small,
             [&](ThreadBlock& block, const Dim3& index) {
               convert_dq(block, params, at(index), index.x * tile.rows, tile.rows, sum);
             });
}

}  // namespace attest::vendor::nvidia_grid::v2
