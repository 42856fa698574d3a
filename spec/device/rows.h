// What a kernel on the device asks of a problem whose mask is full, causal or a window: how long
// each batch element is, which keys a row sees, where rows and keys lie. As attest::Problem has it,
// but by the tables of the device, and to be passed to a kernel by value.
//
//   my_kernel<<<blocks, threads, 0, c.stream()>>>(attest::device::Rows(c.on_device), ...);
#pragma once

#include <cstdint>
#include <stdexcept>

#include "../kernel/problem.h"

namespace attest::device {

class Rows {
 public:
  std::int64_t batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim;
  float scale;

  // Of a problem whose tables lie on the device. Throws if its mask is another.
  explicit Rows(const Problem& p)
      : batch(p.batch),
        query_heads(p.query_heads),
        key_heads(p.key_heads),
        query_len(p.query_len),
        key_len(p.key_len),
        head_dim(p.head_dim),
        value_dim(p.value_dim),
        scale(static_cast<float>(p.scale)),
        page_size_(p.page_size),
        query_lens_(Tensor(p.query_lens)),
        key_lens_(Tensor(p.key_lens)),
        cu_query_lens_(Tensor(p.cu_query_lens)),
        cu_key_lens_(Tensor(p.cu_key_lens)),
        page_table_(Tensor(p.page_table)) {
    if (p.full()) return;
    const attest_mask& band = p.mask_nodes().back();
    if (band.kind != ATTEST_MASK_BAND) throw std::logic_error("this mask is no band");
    left_ = band.left, right_ = band.right, offset_ = band.offset;
    from_the_end_ = band.anchored_bottom_right != 0;
  }

  ATTEST_ON_DEVICE std::int64_t query_len_of(std::int64_t b) const {
    return length(cu_query_lens_, query_lens_, b, query_len);
  }
  ATTEST_ON_DEVICE std::int64_t key_len_of(std::int64_t b) const {
    return length(cu_key_lens_, key_lens_, b, key_len);
  }
  // How many rows of a batch element are to be written.
  ATTEST_ON_DEVICE std::int64_t rows(std::int64_t b) const {
    return cu_query_lens_ ? query_len_of(b) : query_len;
  }
  ATTEST_ON_DEVICE std::int64_t key_head(std::int64_t h) const {
    return h / (query_heads / key_heads);
  }

  ATTEST_ON_DEVICE Keys keys(std::int64_t b, std::int64_t i) const {
    const std::int64_t end = key_len_of(b), own = query_len_of(b);
    if (i >= own) return {0, 0};
    const std::int64_t diagonal = i + offset_ + (from_the_end_ ? end - own : 0);
    const std::int64_t first = left_ == ATTEST_UNBOUNDED ? 0 : diagonal - left_;
    const std::int64_t last = right_ == ATTEST_UNBOUNDED ? end : diagonal + right_ + 1;
    const std::int64_t stop = last < 0 ? 0 : last > end ? end : last;
    return {first < 0 ? 0 : first > stop ? stop : first, stop};
  }

  ATTEST_ON_DEVICE Place query_place(std::int64_t b, std::int64_t i) const {
    return cu_query_lens_ ? Place{0, cu_query_lens_(b, 0, 0, 0) + i} : Place{b, i};
  }
  ATTEST_ON_DEVICE Place key_place(std::int64_t b, std::int64_t j) const {
    if (page_size_ > 0) return {page_table_(b, j / page_size_, 0, 0), j % page_size_};
    return cu_key_lens_ ? Place{0, cu_key_lens_(b, 0, 0, 0) + j} : Place{b, j};
  }

 private:
  ATTEST_ON_DEVICE static std::int64_t length(const View<std::int64_t>& cu,
                                              const View<std::int64_t>& lens, std::int64_t b,
                                              std::int64_t whole) {
    if (cu) return cu(b + 1, 0, 0, 0) - cu(b, 0, 0, 0);
    return lens ? lens(b, 0, 0, 0) : whole;
  }

  std::int64_t left_ = ATTEST_UNBOUNDED, right_ = ATTEST_UNBOUNDED, offset_ = 0;
  bool from_the_end_ = false;
  std::int64_t page_size_;
  View<std::int64_t> query_lens_, key_lens_, cu_query_lens_, cu_key_lens_;
  View<std::int32_t> page_table_;
};

}  // namespace attest::device
