// K and V outside. A block of keys is in registers while all strips of 16 rows pass by it, and each
// strip's output and LSE wait in global memory for the next block of keys: O is normalised in each,
// and a strip's row is merged with what was there by LSE.
//
// The keys of a block are dealt to the warps, so that a row's maximum, sum and output are added up
// between them through shared memory (split-K).
#include <algorithm>
#include <vector>

#include "impl/vendor/nvidia_grid/kernels.h"
#include "impl/vendor/nvidia_grid/softmax.h"

namespace attest::vendor::nvidia_grid::v1 {
namespace {

using Kind = ThreadBlock::Kind;

struct KeyBlock {
  std::int64_t number;
  Fragment k_transposed, v;
};

// K and V by the same place in shared memory, one after the other, into registers.
KeyBlock load_keys(ThreadBlock& block, const Params& p, const HeadAt& at, const ForwardTile& t,
                   std::int64_t j) {
  SharedTile tile = block.tile("K and V", t.keys, t.head_dim);
  const auto load = [&](const Heads& of) {
    block.sync();
    block.copy(tile, p.keys(of, at, at.head), j * t.keys, j);
    block.commit();
    block.wait(0);
    block.count_shared_load(t.keys * t.head_dim * 2);
    return block.load(tile, j, p.dtype);
  };
  Fragment v = load(p.v);
  return {j, load(p.k).transposed(), std::move(v)};
}

// O of one strip and one block of keys, added up from the warps' parts.
Fragment output_of(ThreadBlock& block, const ForwardTile& t, const Fragment& weights,
                   const Fragment& v) {
  auto parts = block.shared().take<float>("parts of O",
                                          static_cast<std::size_t>(t.warps * t.rows * t.head_dim));
  Fragment o(weights.rows(), v.columns());
  const std::int64_t own = t.keys / t.warps;
  for (std::int64_t warp = 0; warp < t.warps; ++warp) {
    Fragment part(weights.rows(), v.columns());
    multiply(part, Factor::rows(weights), v, std::min(warp * own, v.rows()),
             std::min((warp + 1) * own, v.rows()));
    for (std::int64_t r = 0; r < part.rows(); ++r) {
      float* place = parts.data() + (warp * t.rows + r) * t.head_dim;
      std::copy_n(part.row(r), part.columns(), place);
      for (std::int64_t c = 0; c < part.columns(); ++c) o.row(r)[c] += place[c];
    }
  }
  block.count_product(t.rows, t.head_dim, t.keys, t.of_output());
  return o;
}

// What a row has of the keys before, as it lies in global memory.
struct Row {
  float lse;
  const float* o;  // normalised; null before the first keys
};

// Scores of a row become weights, relative to the larger of their maximum and the LSE before.
struct Absorbed {
  float rescale, sum, lse;
};
Absorbed absorb(const Row& before, float* scores, std::int64_t count, const Params& p) {
  float max = before.o ? before.lse / p.scale_softmax : -kInfinity;
  for (std::int64_t c = 0; c < count; ++c) max = larger(max, scores[c]);
  const float subtrahend = max * p.scale_softmax_log2;
  float sum = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    scores[c] = exp2_of(scores[c], p.scale_softmax_log2, subtrahend);
    sum += scores[c];
  }
  const float scaled_max = max * p.scale_softmax;
  const float rescale = before.o ? std::exp(before.lse - scaled_max) : 0.0f;
  sum += rescale;
  const bool is_empty = sum == 0 || sum != sum;
  return {rescale, is_empty ? 1.0f : sum, is_empty ? -kInfinity : scaled_max + std::log(sum)};
}

// One strip of rows meets one more block of keys.
void add_keys(ThreadBlock& block, const Params& p, const HeadAt& at, const ForwardTile& t,
              std::int64_t l, const KeyBlock& keys, const Fragment& q) {
  const Area area = {l * t.rows, t.rows, keys.number * t.keys, t.keys};
  Fragment weights(q.rows(), keys.v.rows());
  multiply(weights, Factor::rows(q), keys.k_transposed, 0, p.d);
  block.count_product(t.rows, t.keys, t.head_dim, t.of_scores());
  block.count_scores(t.rows * t.keys);
  mask(weights, {.keys = at.sequence.keys, .has_right = p.causal}, area);
  p.tell(block, at, area, true, false);

  const bool is_first = keys.number == 0;
  if (!is_first) block.count_global(Kind::kPartialRead, 1, q.rows() * 4);
  float* lse = p.numbers(p.lse, at) + area.row;
  std::vector<Absorbed> absorbed;
  for (std::int64_t r = 0; r < q.rows(); ++r) {
    const float* o = p.partials.of(0, at.sequence.first_query + area.row + r, at.head);
    absorbed.push_back(
        absorb({lse[r], is_first ? nullptr : o}, weights.row(r), weights.columns(), p));
    round_to(p.dtype, weights.row(r), weights.columns());
  }
  block.count_split_k(2 * t.rows, t.warps);  // maxima and sums

  Fragment o = output_of(block, t, weights, keys.v);
  const bool is_final = (keys.number + 1) * t.keys >= at.sequence.keys ||
                        (p.causal && area.row < (keys.number + 1) * t.keys);
  for (std::int64_t r = 0; r < q.rows(); ++r) {
    const Absorbed& row = absorbed[static_cast<std::size_t>(r)];
    float* before = p.partials.of(0, at.sequence.first_query + area.row + r, at.head);
    const float inverse = 1.0f / row.sum;
    for (std::int64_t c = 0; c < p.d; ++c) {
      const float sum = is_first ? o.row(r)[c] : before[c] * row.rescale + o.row(r)[c];
      o.row(r)[c] = sum * inverse;
      if (!is_final) before[c] = o.row(r)[c];
    }
    lse[r] = row.lse;
  }
  if (!is_first) block.count_global(Kind::kPartialRead, q.rows(), p.d * 4);
  if (is_final) {
    block.narrow_to(p.queries(p.out, at), area.row, o, p.dtype);
  } else {
    block.count_global(Kind::kPartialWritten, q.rows(), p.d * 4);
  }
  block.count_global(is_final ? Kind::kOutput : Kind::kPartialWritten, 1, q.rows() * 4);
}

// The strips of split `z` that see block `j`: every `splits`-th, so that they are the same ones for
// each block of keys, and depend on no other thread block.
std::int64_t first_strip(const Params& p, const ForwardTile& t, std::int64_t j, std::int64_t z,
                         std::int64_t splits) {
  const std::int64_t begin = p.causal ? j * t.keys / t.rows : 0;
  return begin <= z ? z : z + ceil_div(begin - z, splits) * splits;
}

void split(ThreadBlock& block, const Params& p, const HeadAt& at, const ForwardTile& t,
           std::int64_t z, std::int64_t splits) {
  const Sequence& s = at.sequence;
  SharedTile buffers[2] = {block.tile("Q", t.rows, t.head_dim),
                           block.tile("next Q", t.rows, t.head_dim)};
  const auto statistics = block.shared().take<float>(
      "maxima and sums", static_cast<std::size_t>(2 * (t.warps + 1) * t.rows));
  const Matrix queries = p.queries(p.q, at);
  for (std::int64_t j = 0; j * t.keys < s.keys; ++j) {
    std::int64_t l = first_strip(p, t, j, z, splits);
    if (l * t.rows >= s.queries) continue;
    const KeyBlock keys = load_keys(block, p, at, t, j);
    int n = 0;
    block.copy(buffers[n], queries, l * t.rows, l);
    block.commit();
    for (; l * t.rows < s.queries; l += splits, n = 1 - n) {
      block.wait(0);
      block.sync();
      const std::int64_t next = l + splits;
      if (next * t.rows < s.queries) {  // begun now, and stored when this strip is done
        block.copy(buffers[1 - n], queries, next * t.rows, next);
        block.commit();
      }
      add_keys(block, p, at, t, l, keys, block.load(buffers[n], l, p.dtype));
      block.sync();
    }
  }
}

}  // namespace

void run_fmha_fwd(const Params& params, const ForwardTile& tile, std::int64_t num_splits) {
  params.gpu->launch("fmha_fwd_loop_kernel", {params.b, params.h, num_splits}, tile.resources(),
                     [&](ThreadBlock& block, const Dim3& index) {
                       const HeadAt at = {index.x, index.y, params.sequence(index.x)};
                       split(block, params, at, tile, index.z, num_splits);
                     });
}

}  // namespace attest::vendor::nvidia_grid::v1
