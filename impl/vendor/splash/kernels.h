// The three kernels of splash attention, each a grid on a TensorCore: what splash_api.h calls.
#pragma once

#include <cstdint>
#include <vector>

#include "impl/vendor/splash/grid.h"
#include "impl/vendor/splash/mask_operands.h"
#include "impl/vendor/splash/splash_types.h"

namespace attest::vendor::splash {

// Vector operations of an element, in this model: exp, and one that adds, multiplies or compares.
inline constexpr std::int64_t kExp = 6, kSimple = 1;

// What all three are given.
template <class T>
struct KernelCall {
  const MaskInfo& info;
  Array<const T> q, k, v;
  const SegmentIds* segment_ids;
  ScoreRules rules;
  std::int64_t kv_compute;  // keys that are computed at a time, a part of a block
  std::vector<BlockRun>* blocks;

  std::int64_t q_heads_per_kv_head() const { return q.heads / k.heads; }
  std::int64_t kv_blocks() const { return k.seq / info.block.kv; }
  std::int64_t q_blocks() const { return q.seq / info.block.q; }
};

// O and logsumexp of heads `heads`. logsumexp is [q heads, q_seq_len, 128], or has no element.
template <class T>
struct ForwardCall {
  KernelCall<T> common;
  Array<T> o;
  Array<float> logsumexp;
};
template <class T>
void run_forward(TensorCore& core, const ForwardCall<T>& call, Slice heads);

// Of both backward kernels. logsumexp and di are [q heads, q_seq_len, sublanes].
template <class T>
struct BackwardCall {
  KernelCall<T> common;
  Array<const float> logsumexp;
  Array<const T> d_o;
  Array<const float> di;
};
template <class T>
void run_dq(TensorCore& core, const BackwardCall<T>& call, const Array<T>& dq);

// dQ in parts of the blocks of keys, [kv blocks * q heads, q_seq_len, head_dim], if it is fused.
template <class T>
struct DkvOutputs {
  Array<T> dk, dv;
  Array<T> dq_unreduced;
};
template <class T>
void run_dkv(TensorCore& core, const BackwardCall<T>& call, const DkvOutputs<T>& to);

// dS = (dP - di) P, through the derivative of the cap, of scores [rows][columns]. di is of columns
// where `di_in_columns`, else of rows; its numbers lie `stride` apart.
struct ScoreGradient {
  std::int64_t rows, columns;
  bool di_in_columns;
  std::int64_t stride;
  std::optional<double> soft_cap;
};
void score_gradient(TensorCore& core, const ScoreGradient& of, const float* uncapped,
                    const float* p, const float* di, float* dp_to_ds);

// P = exp(qk - logsumexp), whose numbers lie as those of di.
void weights(TensorCore& core, const ScoreGradient& of, const float* logsumexp, float* qk_to_p);

// What a kernel writes, unless nothing is computed.
template <class T>
std::vector<T> room(const Tpu& tpu, std::int64_t elements) {
  return std::vector<T>(tpu.timing_only ? 0 : static_cast<std::size_t>(elements));
}
template <class T>
Array<T> like(const Array<const T>& shape, T* data) {
  return {.data = data, .heads = shape.heads, .seq = shape.seq, .dim = shape.dim};
}

void check_compute_block(const char* name, std::int64_t block, std::int64_t compute);

// What enters a product as T.
template <class T>
void convert(TensorCore& core, const float* from, std::int64_t size, T* to) {
  core.vector(size, kSimple, [&] {
    for (std::int64_t e = 0; e < size; ++e) to[e] = static_cast<T>(from[e]);
  });
}

// to += from.
inline void add(TensorCore& core, float* to, const float* from, std::int64_t size) {
  core.vector(size, kSimple, [&] {
    for (std::int64_t e = 0; e < size; ++e) to[e] += from[e];
  });
}

}  // namespace attest::vendor::splash
