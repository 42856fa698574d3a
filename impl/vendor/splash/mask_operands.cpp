#include "impl/vendor/splash/mask_operands.h"

#include <algorithm>
#include <cmath>

namespace attest::vendor::splash {
namespace {

// Vector operations of an element: an id and a comparison; a bit and a comparison; and the rest.
constexpr std::int64_t kComputeMask = 2, kReadMask = 2, kCompareSegments = 1, kSelect = 1;
constexpr std::int64_t kCap = 6;

}  // namespace

MaskOperands::Ids::Ids(TensorCore& core, const std::string& name,
                       const std::vector<std::int32_t>& ids, std::int64_t copies,
                       std::int64_t block)
    : array_{.data = nullptr,
             .heads = 1,
             .seq = static_cast<std::int64_t>(ids.size()),
             .dim = copies},
      block_(block),
      window_(core, name, block * copies) {
  if (core.timing_only) return;
  data_.reserve(ids.size() * static_cast<std::size_t>(copies));
  for (const std::int32_t id : ids) data_.insert(data_.end(), static_cast<std::size_t>(copies), id);
  array_.data = data_.data();
}

int MaskOperands::Ids::bring(TensorCore& core, std::int64_t block) {
  return window_.hold(block,
                      [&](std::int32_t* to) { core.bring(to, array_, 0, block * block_, block_); });
}

MaskOperands::MaskOperands(TensorCore& core, const MaskInfo& info, const SegmentIds* segment_ids,
                           const ScoreRules& rules, bool k_in_lanes)
    : core_(core),
      info_(info),
      rules_(rules),
      k_in_lanes_(k_in_lanes),
      partial_array_{.data = info.partial_mask_blocks.data(),
                     .heads = info.partial_blocks(),
                     .seq = k_in_lanes ? info.block.q : info.block.kv,
                     .dim = k_in_lanes ? info.block.kv : info.block.q},
      segments_(segment_ids != nullptr) {
  const std::int64_t of_q = k_in_lanes ? kNumLanes : kNumSublanes;
  const std::int64_t of_kv = k_in_lanes ? kNumSublanes : kNumLanes;
  if (info.mask_next) partial_.emplace(core, "mask", info.block.q * info.block.kv);
  if (info.mask_function) {
    q_sequence_.emplace(core, "q_sequence", info.q_sequence, of_q, info.block.q);
  }
  if (segments_) {
    q_segments_.emplace(core, "q_segment_ids", segment_ids->q, of_q, info.block.q);
    kv_segments_.emplace(core, "kv_segment_ids", segment_ids->kv, of_kv, info.block.kv);
  }
}

MaskOperands::Slots MaskOperands::bring(std::int64_t q_block, std::int64_t kv_block,
                                        const GridStep& step) {
  Slots slots;
  if (partial_) {
    slots.partial = partial_->hold(step.partial_block, [&](std::uint8_t* to) {
      core_.bring(to, partial_array_, step.partial_block, 0, partial_array_.seq);
    });
  }
  if (q_sequence_) slots.q_sequence = q_sequence_->bring(core_, q_block);
  if (segments_) {
    slots.q_segments = q_segments_->bring(core_, q_block);
    slots.kv_segments = kv_segments_->bring(core_, kv_block);
  }
  return slots;
}

void MaskOperands::apply(float* qk, const Slots& slots, const GridStep& step, std::int64_t kv_block,
                         Slice kv) {
  const std::int64_t size = info_.block.q * kv.size();
  if (rules_.soft_cap) cap(qk, size);
  if (!partial_ && !q_sequence_ && !segments_) return;
  const std::int64_t operations = (partial_ ? kReadMask : 0) + (q_sequence_ ? kComputeMask : 0) +
                                  (segments_ ? kCompareSegments : 0) + kSelect;
  core_.vector(size, operations, [&] {
    compare(slots, step, kv_block, kv);
    const auto hidden = static_cast<float>(rules_.mask_value);
    for (std::int64_t e = 0; e < size; ++e) {
      if (seen_[static_cast<std::size_t>(e)] == 0) qk[e] = hidden;
    }
  });
}

void MaskOperands::cap(float* qk, std::int64_t size) {
  core_.vector(size, kCap, [&] {
    const auto soft_cap = static_cast<float>(*rules_.soft_cap);
    for (std::int64_t e = 0; e < size; ++e) qk[e] = std::tanh(qk[e] / soft_cap) * soft_cap;
  });
}

// Fills `seen_`, which lies as the scores do.
void MaskOperands::compare(const Slots& slots, const GridStep& step, std::int64_t kv_block,
                           Slice kv) {
  const std::int64_t queries = info_.block.q, keys = kv.size();
  seen_.assign(static_cast<std::size_t>(queries * keys), 1);
  if (partial_ && !step.should_not_mask) {
    const std::uint8_t* const mask = partial_->at(slots.partial);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        seen_[place(i, j, keys)] = k_in_lanes_ ? mask[i * info_.block.kv + kv.start + j]
                                               : mask[(kv.start + j) * queries + i];
      }
    }
  }
  if (q_sequence_) {
    rows_.resize(static_cast<std::size_t>(queries));
    const std::int32_t* const ids = q_sequence_->at(slots.q_sequence);
    for (std::int64_t i = 0; i < queries; ++i) {
      rows_[static_cast<std::size_t>(i)] = ids[i * q_sequence_->copies()];
    }
    computed_.resize(seen_.size());
    info_.mask_function(rows_.data(), queries, kv_block * info_.block.kv + kv.start, keys,
                        computed_.data());
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        seen_[place(i, j, keys)] &= computed_[static_cast<std::size_t>(i * keys + j)];
      }
    }
  }
  if (segments_) {
    const std::int32_t* const of_q = q_segments_->at(slots.q_segments);
    const std::int32_t* const of_kv = kv_segments_->at(slots.kv_segments);
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int32_t own = of_q[i * q_segments_->copies()];
      for (std::int64_t j = 0; j < keys; ++j) {
        if (own != of_kv[(kv.start + j) * kv_segments_->copies()]) seen_[place(i, j, keys)] = 0;
      }
    }
  }
}

}  // namespace attest::vendor::splash
