// What splash attention is asked for and gives back: options, arrays, results.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "impl/vendor/device/unit.h"
#include "impl/vendor/splash/mask.h"
#include "impl/vendor/splash/tensor_core.h"

namespace attest::vendor::splash {

inline constexpr double kDefaultMaskValue = -0.7 * 3.4028234663852886e38;  // of the largest float32

// Tokens attend to those of the same number alone.
struct SegmentIds {
  std::vector<std::int32_t> q, kv;  // of [q_seq_len], [kv_seq_len]
};

enum class QkvLayout { kHeadDimMinor, kSeqMinor };

struct BlockSizes {
  std::int64_t block_q = {}, block_kv = {};
  std::optional<std::int64_t> block_kv_compute = {};  // default: block_kv
  std::optional<std::int64_t> block_q_dkv = {}, block_kv_dkv = {};
  std::optional<std::int64_t> block_kv_dkv_compute = {};  // default: block_kv_dkv
  std::optional<std::int64_t> block_q_dq = {}, block_kv_dq = {};
  bool use_fused_bwd_kernel = false;  // dQ comes from the kernel of dK and dV, in parts
  QkvLayout q_layout = QkvLayout::kHeadDimMinor, k_layout = QkvLayout::kHeadDimMinor,
            v_layout = QkvLayout::kHeadDimMinor;

  bool has_backward_blocks() const;
  // With the defaults filled in; what contradicts itself is refused.
  BlockSizes completed() const;
  static BlockSizes get_default();  // 128 everywhere
};

struct SplashOptions {
  std::optional<BlockSizes> block_sizes = {};  // default: get_default
  bool save_residuals = false;                 // logsumexp comes beside the output
  double mask_value = kDefaultMaskValue;
  std::optional<double> attn_logits_soft_cap = {};
  bool downcast_smem_data = true;
  int head_shards = 1, q_seq_shards = 1;  // no others here: the mock is one device
};

// [heads, seq, head_dim]; of one key head alone (mqa) heads is 1.
template <class T>
using Array = HbmArray<T>;

// A block that a kernel computed.
enum class Phase { kForward, kDq, kDkv };
struct BlockRun {
  Phase phase;
  std::int64_t head;
  Slice q, kv;
  bool masked;  // whether its scores were compared with any mask
};

template <class T>
struct Output {
  std::vector<T> out;            // [q heads, q_seq_len, head_dim]
  std::vector<float> logsumexp;  // [q heads, q_seq_len], if save_residuals
  device::Elapsed elapsed;
  std::vector<BlockRun> blocks;
};

template <class T>
struct Residuals {
  Array<const T> q, k, v;
  Array<const T> out;
  const float* logsumexp;  // [q heads, q_seq_len]
  const SegmentIds* segment_ids = nullptr;
};

template <class T>
struct Gradients {
  std::vector<T> dq, dk, dv;
  device::Elapsed dkv, dq_alone;  // of the two kernels; fused, of the first
  std::vector<BlockRun> blocks;
};

}  // namespace attest::vendor::splash
