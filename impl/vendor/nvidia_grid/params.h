// What a kernel is launched with: where the tensors lie, as both layouts are seen from a head, and
// which keys a row sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "impl/vendor/nvidia_grid/element.h"
#include "impl/vendor/nvidia_grid/gpu.h"
#include "impl/vendor/nvidia_grid/thread_block.h"

namespace attest::vendor::nvidia_grid {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr double kLog2E = 1.4426950408889634;

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A tensor (batch, seqlen, heads, headdim), or (total, heads, headdim) with a batch stride of 0.
struct Heads {
  std::uint16_t* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  Matrix matrix(std::int64_t batch, std::int64_t first, std::int64_t rows, std::int64_t head,
                std::int64_t columns) const {
    return {.data = data + batch * batch_stride + first * row_stride + head * head_stride,
            .row_stride = row_stride,
            .rows = rows,
            .columns = columns};
  }
};

// Numbers of rows, LSE and dO . O: (batch, heads, seqlen), or (heads, total).
struct RowNumbers {
  float* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0;
  bool is_packed = false;

  float* of(std::int64_t batch, std::int64_t first, std::int64_t head) const {
    return data + batch * batch_stride + head * head_stride + (is_packed ? first : 0);
  }
};

// Sums in fp32 that are not yet whole: o_tmp, dq_tmp, dq_accum; (rows, heads, headdim).
struct Partials {
  float* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  float* of(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

// A batch element: where its rows and keys begin, of packed tensors, and how many there are.
struct Sequence {
  std::int64_t first_query, first_key, queries, keys;
};

// The head that a thread block works on.
struct HeadAt {
  std::int64_t batch, head;
  Sequence sequence;
};

// A tile of a head's scores: its first row and key, and its size.
struct Area {
  std::int64_t row, rows, key, keys;
};

// The keys from begin to before end that a row sees; none if end is not beyond begin.
struct Band {
  std::int64_t keys;
  bool has_left = false, has_right = false;
  std::int64_t left = 0, right = 0;  // of the row's number, inclusive

  std::int64_t begin(std::int64_t row) const {
    return has_left ? std::max<std::int64_t>(0, row + left) : 0;
  }
  std::int64_t end(std::int64_t row) const {
    return has_right ? std::min(keys, row + right + 1) : keys;
  }
};

struct Params {
  Gpu* gpu;
  ScalarType dtype;
  std::int64_t b, h, h_k, seqlen_q, seqlen_k, d;  // of packed sequences the longest
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_k = nullptr;

  Heads q = {}, k = {}, v = {}, out = {}, dout = {}, dq = {}, dk = {}, dv = {};
  RowNumbers lse = {}, dsoftmax_sum = {};
  Partials partials = {};

  float scale_softmax = 0, scale_softmax_log2 = 0;
  float softcap = 0;  // of v2: what q k is multiplied with before tanh
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  const float* alibi_slopes = nullptr;
  std::int64_t alibi_batch_stride = 0;

  bool is_varlen() const { return cu_seqlens_q != nullptr; }
  Sequence sequence(std::int64_t batch) const {
    if (!is_varlen()) return {0, 0, seqlen_q, seqlen_k};
    return {cu_seqlens_q[batch], cu_seqlens_k[batch], cu_seqlens_q[batch + 1] - cu_seqlens_q[batch],
            cu_seqlens_k[batch + 1] - cu_seqlens_k[batch]};
  }
  std::int64_t key_head(std::int64_t head) const { return head / (h / h_k); }
  bool is_local() const { return (window_left >= 0 || window_right >= 0) && !causal; }

  Matrix queries(const Heads& of, const HeadAt& at) const {
    return of.matrix(at.batch, at.sequence.first_query, at.sequence.queries, at.head, d);
  }
  Matrix keys(const Heads& of, const HeadAt& at, std::int64_t head) const {
    return of.matrix(at.batch, at.sequence.first_key, at.sequence.keys, head, d);
  }
  float* numbers(const RowNumbers& of, const HeadAt& at) const {
    return of.of(at.batch, at.sequence.first_query, at.head);
  }

  // Tells the profiler of a tile of scores, clipped to what there is.
  void tell(const ThreadBlock& block, const HeadAt& at, const Area& area, bool masked,
            bool backward) const {
    if (!gpu->profiler) return;
    gpu->profiler({.host_thread = block.host_thread(),
                   .batch = at.batch,
                   .head = at.head,
                   .query_begin = area.row,
                   .query_end = std::min(area.row + area.rows, at.sequence.queries),
                   .key_begin = area.key,
                   .key_end = std::min(area.key + area.keys, at.sequence.keys),
                   .masked = masked,
                   .backward = backward});
  }
};

}  // namespace attest::vendor::nvidia_grid
