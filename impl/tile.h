// Tiles: small dense matrices of the computing type, row by row, into which kernels load parts of
// tensors. Whatever the strides and the format of a tensor are, the loops of a kernel see only
// tiles.
#pragma once

#include <cstdint>
#include <new>

#include "impl/call.h"
#include "impl/elements.h"

namespace attest::impl {

// The matrix [position, channel] of one batch element and head. T is const for inputs.
template <class T>
struct Plane {
  Plane(const attest_tensor& tensor, std::int64_t batch, std::int64_t head) {
    const UsedStrides stride(tensor);
    data = static_cast<T*>(tensor.data);
    if (data) data += batch * stride.axes[0] + head * stride.axes[1];
    position_stride = stride.axes[2];
    channel_stride = stride.axes[3];
  }

  T& at(std::int64_t position, std::int64_t channel) const {
    return data[position * position_stride + channel * channel_stride];
  }

  // The same from a position on, which becomes position 0.
  Plane from(std::int64_t position) const {
    Plane rest = *this;
    if (data) rest.data += position * position_stride;
    return rest;
  }

  T* data;
  std::int64_t position_stride, channel_stride;
};

// tile[rows, channels] = the plane from position `begin` on.
template <class T, class R = Real<T>>
void load(const Plane<const T>& plane, std::int64_t begin, std::int64_t rows, std::int64_t channels,
          R* tile) {
  for (std::int64_t row = 0; row < rows; ++row) {
    R* __restrict out = tile + row * channels;
    if (plane.channel_stride == 1) {  // the usual case, as a loop that vectorises
      const T* __restrict in = &plane.at(begin + row, 0);
      for (std::int64_t c = 0; c < channels; ++c) out[c] = widen(in[c]);
    } else {
      for (std::int64_t c = 0; c < channels; ++c) out[c] = widen(plane.at(begin + row, c));
    }
  }
}

// The plane from position `begin` on = factor * tile[rows, channels]. The product is made in
// double, where it is exact for a factor of 1 and for the others costs no accuracy.
template <class T, class R = Real<T>>
void store(const R* tile, double factor, std::int64_t begin, std::int64_t rows,
           std::int64_t channels, const Plane<T>& plane) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      plane.at(begin + row, c) = narrow<T>(static_cast<R>(factor * tile[row * channels + c]));
    }
  }
}

// The plane from `begin` to `end` = value.
template <class T>
void fill(const Plane<T>& plane, std::int64_t begin, std::int64_t end, std::int64_t channels,
          Real<T> value) {
  for (std::int64_t position = begin; position < end; ++position) {
    for (std::int64_t c = 0; c < channels; ++c) plane.at(position, c) = narrow<T>(value);
  }
}

// Deals out the workspace. Without memory it only counts: a kernel's tiles are laid out by one
// piece of code, which also says how much they need.
class Arena {
 public:
  explicit Arena(void* memory = nullptr) : base_(reinterpret_cast<std::uintptr_t>(memory)) {}

  template <class T>
  T* take(std::int64_t rows, std::int64_t columns = 1) {
    T* start = reinterpret_cast<T*>(base_ + used_);
    std::uint64_t bytes;
    if (__builtin_mul_overflow(rows, columns, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(T), &bytes) ||
        __builtin_add_overflow(bytes, kAlignment - 1, &bytes) ||
        __builtin_add_overflow(used_, bytes / kAlignment * kAlignment, &used_)) {
      throw std::bad_alloc();
    }
    return start;
  }

  std::uint64_t used() const { return used_; }

 private:
  static constexpr std::uint64_t kAlignment = 64;
  std::uintptr_t base_;
  std::uint64_t used_ = 0;
};

}  // namespace attest::impl
