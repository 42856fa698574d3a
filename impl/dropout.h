// Dropout of P (DROP-1 to DROP-3), as functions over a tile of P whose rows lie `stride` apart.
//
// The keep-mask is an input, or drawn by the kernel: element (b,h,i,j) from the Philox counter
// (j / 4, i, h, b), so that it is the same in whatever order blocks are visited, and the backward
// pass has no need of memory to know it.
#pragma once

#include <array>
#include <cstdint>

#include "impl/call.h"

namespace attest::impl {

// Philox4x32-10 of J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::uint64_t key) {
  auto left_key = static_cast<std::uint32_t>(key);
  auto right_key = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ left_key,
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ right_key,
               static_cast<std::uint32_t>(a)};
    left_key += 0x9E3779B9;
    right_key += 0xBB67AE85;
  }
  return counter;
}

class Dropout {
 public:
  explicit Dropout(const Call& call)
      : mode_(call.problem.dropout),
        rescale_(1 / (1 - call.problem.dropout_probability)),
        threshold_(call.problem.dropout_probability * 0x1p32),
        bits_(mode_ == ATTEST_DROPOUT_GENERATED ? call.outputs.keep : call.inputs.keep),
        keys_(call.problem.key_len) {
    // The offset makes a key of its own out of the seed's.
    const std::uint64_t offset = call.problem.dropout_offset;
    const auto words =
        philox({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32), 0, 0},
               call.problem.dropout_seed);
    key_ = std::uint64_t{words[1]} << 32 | words[0];
  }

  // 1/(1-p), or 1 without dropout: what kept elements are multiplied by.
  double rescale() const { return mode_ == ATTEST_DROPOUT_NONE ? 1 : rescale_; }

  // p = factor p where it is kept, 0 where it is dropped, whatever it was.
  template <class R>
  void apply(std::int64_t batch, std::int64_t head, const Block& block, R factor,
             std::int64_t stride, R* p) const {
    if (mode_ == ATTEST_DROPOUT_NONE) return;
    for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
      R* row = p + (query - block.query_begin) * stride - block.key_begin;
      visit_row(batch, head, query, block.key_begin, block.key_end,
                [&](std::int64_t key, bool kept) { row[key] = kept ? factor * row[key] : R(0); });
    }
  }

  // Hands the mask that was drawn for some rows to the host. Bits beside them are left alone.
  void publish(std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end) const {
    if (mode_ != ATTEST_DROPOUT_GENERATED) return;
    for (std::int64_t query = begin; query < end; ++query) {
      std::uint8_t* row = row_of(batch, head, query);
      visit_row(batch, head, query, 0, keys_, [&](std::int64_t key, bool kept) {
        const auto bit = static_cast<std::uint8_t>(1u << (key % 8));
        row[key / 8] = static_cast<std::uint8_t>(kept ? row[key / 8] | bit : row[key / 8] & ~bit);
      });
    }
  }

 private:
  // Strides are counted in bits, and each row begins with a byte.
  std::uint8_t* row_of(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const UsedStrides stride(bits_);
    return static_cast<std::uint8_t*>(bits_.data) +
           (batch * stride.axes[0] + head * stride.axes[1] + query * stride.axes[2]) / 8;
  }

  template <class Visit>
  void visit_row(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t begin,
                 std::int64_t end, const Visit& visit) const {
    if (mode_ == ATTEST_DROPOUT_GIVEN) {
      const std::uint8_t* row = row_of(batch, head, query);
      for (std::int64_t key = begin; key < end; ++key) visit(key, row[key / 8] >> key % 8 & 1);
      return;
    }
    std::array<std::uint32_t, 4> words = {};
    for (std::int64_t key = begin; key < end; ++key) {
      if (key == begin || key % 4 == 0) {
        words = philox({static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(query),
                        static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)},
                       key_);
      }
      visit(key, words[static_cast<std::size_t>(key % 4)] >= threshold_);
    }
  }

  attest_dropout_mode mode_;
  double rescale_;
  double threshold_;  // an element is kept if its word is not below
  attest_tensor bits_;
  std::int64_t keys_;
  std::uint64_t key_;
};

}  // namespace attest::impl
