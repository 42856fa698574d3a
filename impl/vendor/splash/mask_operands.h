// What a kernel's scores are compared with: partial blocks of a mask that is stored, or ids from
// which the kernel computes it, and segment ids; and what becomes of a score.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "impl/vendor/splash/grid.h"
#include "impl/vendor/splash/mask_info.h"
#include "impl/vendor/splash/splash_types.h"
#include "impl/vendor/splash/tensor_core.h"

namespace attest::vendor::splash {

struct ScoreRules {
  double mask_value = kDefaultMaskValue;
  std::optional<double> soft_cap = {};
};

class MaskOperands {
 public:
  struct Slots {
    int partial = 0, q_sequence = 0, q_segments = 0, kv_segments = 0;
  };

  // Scores lie as queries by keys, or of dK and dV as keys by queries.
  MaskOperands(TensorCore& core, const MaskInfo& info, const SegmentIds* segment_ids,
               const ScoreRules& rules, bool k_in_lanes);

  Slots bring(std::int64_t q_block, std::int64_t kv_block, const GridStep& step);

  // Caps scores and gives hidden ones mask_value. They are of all queries of a block, and of its
  // keys `kv`, counted within the block.
  void apply(float* qk, const Slots& slots, const GridStep& step, std::int64_t kv_block, Slice kv);

  // Whether apply compares.
  bool masks(const GridStep& step) const {
    return info_.mask_function || segments_ || !step.should_not_mask;
  }

 private:
  // Ids of a sequence, each as often as lanes or sublanes read it.
  class Ids {
   public:
    Ids(TensorCore& core, const std::string& name, const std::vector<std::int32_t>& ids,
        std::int64_t copies, std::int64_t block);
    int bring(TensorCore& core, std::int64_t block);
    const std::int32_t* at(int slot) const { return window_.at(slot); }
    std::int64_t copies() const { return array_.dim; }

   private:
    std::vector<std::int32_t> data_;
    HbmArray<const std::int32_t> array_;
    std::int64_t block_;
    Window<std::int32_t> window_;
  };

  void cap(float* qk, std::int64_t size);
  void compare(const Slots& slots, const GridStep& step, std::int64_t kv_block, Slice kv);
  std::size_t place(std::int64_t q, std::int64_t kv, std::int64_t keys) const {
    return static_cast<std::size_t>(k_in_lanes_ ? q * keys + kv : kv * info_.block.q + q);
  }

  TensorCore& core_;
  const MaskInfo& info_;
  ScoreRules rules_;
  bool k_in_lanes_;
  HbmArray<const std::uint8_t> partial_array_;
  std::optional<Window<std::uint8_t>> partial_;
  std::optional<Ids> q_sequence_;
  bool segments_;
  std::optional<Ids> q_segments_, kv_segments_;
  std::vector<std::uint8_t> seen_, computed_;
  std::vector<std::int32_t> rows_;
};

}  // namespace attest::vendor::splash
