// Q outside. A row's softmax begins and ends in one thread block; what it carries from one block of
// keys to the next, its maximum, sum and unnormalised output, never leaves the registers.
//
// Read `row_block` first, which is the algorithm, then `absorb`, which is its step.
#include <algorithm>
#include <vector>

#include "impl/vendor/nvidia_grid/kernels.h"
#include "impl/vendor/nvidia_grid/softmax.h"
#include "impl/vendor/nvidia_grid/v2_scores.h"

namespace attest::vendor::nvidia_grid::v2 {
namespace {

// After any number of keys the output so far is o / sum, and LSE is max scale + log(sum).
struct Rows {
  std::vector<float> max, sum;
  Fragment o;
};

// The blocks of keys that some row of a block sees.
struct KeyBlocks {
  std::int64_t begin, end;
};

KeyBlocks key_blocks(const Params& p, const Sequence& s, const ForwardTile& t,
                     std::int64_t m_block) {
  const std::int64_t shift = s.keys - s.queries;
  KeyBlocks blocks = {0, ceil_div(s.keys, t.keys)};
  if (p.is_local()) {
    blocks.begin = std::max<std::int64_t>(0, (m_block * t.rows + shift - p.window_left) / t.keys);
  }
  if (p.causal || p.is_local()) {
    blocks.end =
        std::min(blocks.end, ceil_div((m_block + 1) * t.rows + shift + p.window_right, t.keys));
  }
  return blocks;
}

// How many blocks of keys, from the last, are masked whatever they hold: the diagonal's, and one
// more where lengths end within a block. Kernels that know better exist up to 128 channels.
std::int64_t masked_blocks_of(const Params& p, const Sequence& s, const ForwardTile& t) {
  const bool is_even = !p.is_varlen() && s.queries % t.rows == 0 && s.keys % t.keys == 0 &&
                       p.d == t.head_dim && t.head_dim <= 128;
  if (p.causal || p.is_local()) return ceil_div(t.rows, t.keys) + (is_even && p.causal ? 0 : 1);
  return is_even ? 0 : 1;
}

// One more block of keys for one row: scores become weights.
void absorb(Rows& rows, std::int64_t r, float* scores, std::int64_t count, float scale_log2) {
  const auto at = static_cast<std::size_t>(r);
  const float before = rows.max[at];
  float max = before;
  for (std::int64_t c = 0; c < count; ++c) max = larger(max, scores[c]);
  rows.max[at] = max;
  const float finite = max == -kInfinity ? 0.0f : max;  // of a row that has seen no key yet
  const float rescale = std::exp2((before - finite) * scale_log2);
  float sum = rows.sum[at] * rescale;
  const float subtrahend = finite * scale_log2;
  for (std::int64_t c = 0; c < count; ++c) {
    scores[c] = exp2_of(scores[c], scale_log2, subtrahend);
    sum += scores[c];
  }
  rows.sum[at] = sum;
  float* o = rows.o.row(r);
  for (std::int64_t c = 0; c < rows.o.columns(); ++c) o[c] *= rescale;
}

void write(ThreadBlock& block, const Params& p, const HeadAt& at, std::int64_t first, Rows& rows) {
  float* lse = p.numbers(p.lse, at) + first;
  for (std::int64_t r = 0; r < rows.o.rows(); ++r) {
    const auto n = static_cast<std::size_t>(r);
    const float sum = rows.sum[n];
    const bool is_empty = sum == 0 || sum != sum;
    lse[r] = is_empty ? kInfinity : rows.max[n] * p.scale_softmax + std::log(sum);
    const float inverse = is_empty ? 1.0f : 1.0f / sum;
    float* o = rows.o.row(r);
    for (std::int64_t c = 0; c < rows.o.columns(); ++c) o[c] *= inverse;
  }
  block.narrow_to(p.queries(p.out, at), first, rows.o, p.dtype);
  block.count_global(ThreadBlock::Kind::kOutput, 1, rows.o.rows() * 4);
}

// The scores of a block of rows and keys, and whether they were masked: the last blocks are, where
// they may be cut off or lie on the diagonal, and under a window all.
Fragment scores_of(ThreadBlock& block, const Params& p, const HeadAt& at, const ForwardTile& t,
                   const Area& area, bool masks, const Fragment& q, const Fragment& keys) {
  Fragment scores(q.rows(), keys.rows());
  multiply(scores, Factor::rows(q), keys.transposed(), 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_scores());
  block.count_scores(t.rows * t.keys);
  if (p.softcap > 0) apply_softcap(scores, p.softcap);
  if (p.alibi_slopes) apply_alibi(scores, p, at, area);
  if (masks) mask(scores, band_of(p, at.sequence), area);
  p.tell(block, at, area, masks, false);
  return scores;
}

void row_block(ThreadBlock& block, const Params& p, const ForwardTile& t, const HeadAt& at,
               std::int64_t m_block) {
  const Sequence& s = at.sequence;
  const std::int64_t first = m_block * t.rows;
  if (first >= s.queries) return;
  const auto count = static_cast<std::size_t>(std::min(t.rows, s.queries - first));
  Rows rows = {std::vector<float>(count, -kInfinity), std::vector<float>(count),
               Fragment(static_cast<std::int64_t>(count), p.d)};
  const KeyBlocks blocks = key_blocks(p, s, t, m_block);
  if (blocks.end <= blocks.begin) return write(block, p, at, first, rows);

  const std::int64_t key_head = p.key_head(at.head);
  SharedTile q_tile = block.tile("Q", t.rows, t.head_dim);
  SharedTile k_tile = block.tile("K", t.keys, t.head_dim);
  SharedTile v_tile = block.tile("V", t.keys, t.head_dim);
  const Matrix keys = p.keys(p.k, at, key_head), values = p.keys(p.v, at, key_head);
  block.copy(q_tile, p.queries(p.q, at), first, m_block);
  block.copy(k_tile, keys, (blocks.end - 1) * t.keys, blocks.end - 1);
  block.commit();

  const std::int64_t masked_blocks = masked_blocks_of(p, s, t);
  for (std::int64_t n = blocks.end - 1; n >= blocks.begin; --n) {
    block.wait(0);
    block.sync();
    block.copy(v_tile, values, n * t.keys, n);  // while Q K^T is computed
    block.commit();
    const Area area = {first, t.rows, n * t.keys, t.keys};
    const bool masks = p.is_local() || blocks.end - 1 - n < masked_blocks;
    Fragment p_of = scores_of(block, p, at, t, area, masks, block.load(q_tile, m_block, p.dtype),
                              block.load(k_tile, n, p.dtype));
    block.wait(0);
    block.sync();
    if (n > blocks.begin) {
      block.copy(k_tile, keys, (n - 1) * t.keys, n - 1);  // while P V is
      block.commit();
    }
    for (std::int64_t r = 0; r < p_of.rows(); ++r) {
      absorb(rows, r, p_of.row(r), p_of.columns(), p.scale_softmax_log2);
      round_to(p.dtype, p_of.row(r), p_of.columns());
    }
    multiply(rows.o, Factor::rows(p_of), block.load(v_tile, n, p.dtype), 0, p_of.columns());
    block.count_product(t.rows, t.head_dim, t.keys, t.of_output());
  }
  write(block, p, at, first, rows);
}

}  // namespace

void run_mha_fwd(const Params& params, const ForwardTile& tile) {
  const Dim3 grid = {ceil_div(params.seqlen_q, tile.rows), params.b, params.h};
  params.gpu->launch("flash_fwd_kernel", grid, tile.resources(),
                     [&](ThreadBlock& block, const Dim3& index) {
                       const HeadAt at = {index.y, index.z, params.sequence(index.y)};
                       row_block(block, params, tile, at, index.x);
                     });
}

}  // namespace attest::vendor::nvidia_grid::v2
