// A block of keys outside, strips of 16 rows inside. dK and dV of the block stay in registers; of
// dQ each warp has what its own keys come to, and the parts are added up through shared memory
// (split-K), then in global memory over the blocks of keys.
#include <algorithm>
#include <atomic>

#include "impl/vendor/nvidia_grid/dot_do_o.h"
#include "impl/vendor/nvidia_grid/kernels.h"
#include "impl/vendor/nvidia_grid/softmax.h"

namespace attest::vendor::nvidia_grid::v1 {
namespace {

using Kind = ThreadBlock::Kind;

// How dQ is added up over blocks of keys.
enum class Sum {
  kInTurn,     // one thread block does them all, one after the other
  kAtomically  // each has a thread block
};

struct Column {
  std::int64_t number;
  Fragment k, k_transposed, v_transposed;
  Fragment dk, dv;
};

struct Tiles {
  SharedTile q[2], dout[2], p, ds;
};

Tiles tiles_of(ThreadBlock& block, const BackwardTile& t) {
  const auto strip = [&](const char* what) { return block.tile(what, t.rows, t.head_dim); };
  return {{strip("Q"), strip("next Q")},
          {strip("dO"), strip("next dO")},
          block.tile("P", t.rows, t.keys),
          block.tile("dS", t.rows, t.keys)};
}

Fragment load_whole(ThreadBlock& block, const Params& p, const HeadAt& at, SharedTile& tile,
                    const Heads& of, std::int64_t j) {
  block.sync();
  block.copy(tile, p.keys(of, at, at.head), j * tile.rows, j);
  block.commit();
  block.wait(0);
  return block.load(tile, j, p.dtype);
}

// dS of a strip and the column, rounded; P and dS are in shared memory then, for dV and dK.
Fragment score_gradients(ThreadBlock& block, const Params& p, const HeadAt& at,
                         const BackwardTile& t, const Area& area, const Column& column,
                         Tiles& tiles, const Fragment& q, const Fragment& dout) {
  Fragment weights(q.rows(), column.k.rows());
  multiply(weights, Factor::rows(q), column.k_transposed, 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_scores());
  block.count_scores(t.rows * t.keys);
  mask(weights, {.keys = at.sequence.keys, .has_right = p.causal}, area);
  p.tell(block, at, area, true, true);
  weigh(weights, p.numbers(p.lse, at) + area.row, p.scale_softmax_log2);
  block.count_global(Kind::kInput, 2, q.rows() * 4);  // LSE and D
  block.store(tiles.p, weights, area.row, p.dtype);

  const float* sums = p.numbers(p.dsoftmax_sum, at) + area.row;
  Fragment ds(q.rows(), column.k.rows());
  for (std::int64_t r = 0; r < ds.rows(); ++r) {
    std::fill_n(ds.row(r), ds.columns(), -sums[r]);  // dP is added to what it loses
  }
  multiply(ds, Factor::rows(dout), column.v_transposed, 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_dp());
  for (std::int64_t r = 0; r < ds.rows(); ++r) {
    for (std::int64_t c = 0; c < ds.columns(); ++c) ds.row(r)[c] *= weights.row(r)[c];
  }
  block.store(tiles.ds, ds, area.row, p.dtype);
  for (std::int64_t r = 0; r < ds.rows(); ++r) round_to(p.dtype, ds.row(r), ds.columns());
  return ds;
}

// dQ of a strip and the column, from the warps' parts.
Fragment query_gradients(ThreadBlock& block, const BackwardTile& t, const Fragment& ds,
                         const Fragment& k) {
  auto parts = block.shared().take<float>("parts of dQ",
                                          static_cast<std::size_t>(t.warps * t.rows * t.head_dim));
  Fragment dq(ds.rows(), k.columns());
  const std::int64_t own = t.keys / t.warps;
  for (std::int64_t warp = 0; warp < t.warps; ++warp) {
    Fragment part(ds.rows(), k.columns());
    multiply(part, Factor::rows(ds), k, std::min(warp * own, k.rows()),
             std::min((warp + 1) * own, k.rows()));
    for (std::int64_t r = 0; r < part.rows(); ++r) {
      float* place = parts.data() + (warp * t.rows + r) * t.head_dim;
      std::copy_n(part.row(r), part.columns(), place);
      for (std::int64_t c = 0; c < part.columns(); ++c) dq.row(r)[c] += place[c];
    }
  }
  block.count_product(t.rows, t.head_dim, t.keys, t.of_dq());
  return dq;
}

// In turn: what there is of the strip is read, and what is whole is written.
void add_in_turn(ThreadBlock& block, const Params& p, const HeadAt& at, const Area& area,
                 Fragment& dq) {
  const bool is_final =
      area.key + area.keys >= at.sequence.keys || (p.causal && area.row < area.key + area.keys);
  for (std::int64_t r = 0; r < dq.rows(); ++r) {
    float* sum = p.partials.of(0, at.sequence.first_query + area.row + r, at.head);
    for (std::int64_t c = 0; c < p.d; ++c) {
      if (area.key > 0) dq.row(r)[c] += sum[c];
      if (!is_final) sum[c] = dq.row(r)[c];
    }
  }
  if (area.key > 0) block.count_global(Kind::kPartialRead, dq.rows(), p.d * 4);
  if (is_final) {
    scale_by(dq, p.scale_softmax);
    block.narrow_to(p.queries(p.dq, at), area.row, dq, p.dtype);
  } else {
    block.count_global(Kind::kPartialWritten, dq.rows(), p.d * 4);
  }
}

void add_atomically(ThreadBlock& block, const Params& p, const HeadAt& at, const Area& area,
                    Fragment& dq) {
  scale_by(dq, p.scale_softmax);
  for (std::int64_t r = 0; r < dq.rows(); ++r) {
    float* sum = p.partials.of(0, at.sequence.first_query + area.row + r, at.head);
    for (std::int64_t c = 0; c < p.d; ++c) {
      std::atomic_ref<float>(sum[c]).fetch_add(dq.row(r)[c], std::memory_order_relaxed);
    }
  }
  block.count_global(Kind::kPartialAdded, dq.rows(), p.d * 4);
}

// One strip of rows meets the column.
void add_strip(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
               std::int64_t l, Column& column, Tiles& tiles, int n, Sum sum) {
  const Area area = {l * t.rows, t.rows, column.number * t.keys, t.keys};
  if (sum == Sum::kInTurn && column.number == 0) dot_do_o(block, p, at, area.row, t.rows);
  const Fragment q = block.load(tiles.q[n], l, p.dtype);
  const Fragment dout = block.load(tiles.dout[n], l, p.dtype);
  const Fragment ds = score_gradients(block, p, at, t, area, column, tiles, q, dout);
  Fragment dq = query_gradients(block, t, ds, column.k);
  block.sync();
  const Fragment weights = block.load(tiles.p, area.row, p.dtype);
  multiply(column.dv, Factor::columns(weights), dout, 0, dout.rows());
  block.count_product(t.keys, t.head_dim, t.rows, t.of_dkv());
  const Fragment stored = block.load(tiles.ds, area.row, p.dtype);
  multiply(column.dk, Factor::columns(stored), q, 0, q.rows());
  block.count_product(t.keys, t.head_dim, t.rows, t.of_dkv());
  if (sum == Sum::kInTurn) {
    add_in_turn(block, p, at, area, dq);
  } else {
    add_atomically(block, p, at, area, dq);
  }
}

Column load_column(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
                   std::int64_t j, SharedTile& k_tile, SharedTile& v_tile) {
  const Fragment v = load_whole(block, p, at, v_tile, p.v, j);
  Fragment k = load_whole(block, p, at, k_tile, p.k, j);
  Column column = {j, {}, k.transposed(), v.transposed(), {}, {}};
  column.k = std::move(k);
  column.dk = column.dv = Fragment(column.k.rows(), p.d);
  if (t.v_in_registers) block.count_shared_load(t.keys * t.head_dim * 2);
  return column;
}

void key_block(ThreadBlock& block, const Params& p, const HeadAt& at, const BackwardTile& t,
               std::int64_t j, Sum sum) {
  const Sequence& s = at.sequence;
  if (j * t.keys >= s.keys) return;
  Tiles tiles = tiles_of(block, t);
  SharedTile k_tile = block.tile("K", t.keys, t.head_dim);
  // Where V stays in registers it has no place of its own.
  SharedTile v_tile = block.tile("V", t.v_in_registers ? 0 : t.keys, t.head_dim);
  Column column = load_column(block, p, at, t, j, k_tile, t.v_in_registers ? k_tile : v_tile);
  const Matrix queries = p.queries(p.q, at), douts = p.queries(p.dout, at);
  const auto begin_copies = [&](std::int64_t l, int n) {
    block.copy(tiles.q[n], queries, l * t.rows, l);
    block.copy(tiles.dout[n], douts, l * t.rows, l);
    block.commit();
  };
  std::int64_t l = p.causal ? j * t.keys / t.rows : 0;
  int n = 0;
  if (l * t.rows < s.queries) begin_copies(l, n);
  for (; l * t.rows < s.queries; ++l, n = 1 - n) {
    block.wait(0);
    block.sync();
    if ((l + 1) * t.rows < s.queries) begin_copies(l + 1, 1 - n);
    add_strip(block, p, at, t, l, column, tiles, n, sum);
    block.sync();
  }
  scale_by(column.dk, p.scale_softmax);
  block.narrow_to(p.keys(p.dk, at, at.head), j * t.keys, column.dk, p.dtype);
  block.narrow_to(p.keys(p.dv, at, at.head), j * t.keys, column.dv, p.dtype);
}

constexpr std::int64_t kRowsOfDots = 128;

}  // namespace

void run_fmha_bwd(const Params& params, const BackwardTile& tile, std::int64_t num_splits) {
  Gpu& gpu = *params.gpu;
  const auto at = [&](const Dim3& index) {
    return HeadAt{index.x, index.y, params.sequence(index.x)};
  };
  if (num_splits == 1) {
    gpu.launch("fmha_bwd_dq_dk_dv_loop_kernel", {params.b, params.h, 1}, tile.resources(),
               [&](ThreadBlock& block, const Dim3& index) {
                 for (std::int64_t j = 0; j * tile.keys < params.seqlen_k; ++j) {
                   key_block(block, params, at(index), tile, j, Sum::kInTurn);
                 }
               });
    return;
  }
  gpu.launch("fmha_bwd_dot_do_o_kernel",
             {params.b, params.h, ceil_div(params.seqlen_q, kRowsOfDots)},
             {.threads = tile.resources().threads, .shared_bytes = 0},
             [&](ThreadBlock& block, const Dim3& index) {
               dot_do_o(block, params, at(index), index.z * kRowsOfDots, kRowsOfDots);
             });
  gpu.launch("fmha_bwd_q_dk_dv_loop_seqparallel_kernel", {params.b, params.h, num_splits},
             tile.resources(), [&](ThreadBlock& block, const Dim3& index) {
               key_block(block, params, at(index), tile, index.z, Sum::kAtomically);
             });
}

}  // namespace attest::vendor::nvidia_grid::v1
