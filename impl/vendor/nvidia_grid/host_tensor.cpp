#include "impl/vendor/nvidia_grid/host_tensor.h"

namespace attest::vendor::nvidia_grid {
namespace {

constexpr std::int64_t kChannels = 8;  // of a copy of 16 bytes

bool is_taken(const Tensor& tensor) {
  return tensor.strides.back() == 1 && tensor.sizes.back() % kChannels == 0;
}

std::uint16_t* elements_of(const Tensor& tensor) {
  return static_cast<std::uint16_t*>(tensor.data);
}

// Contiguous, with padded channels; the elements are `storage`'s.
Tensor padded_like(const Tensor& tensor, std::vector<std::uint16_t>& storage) {
  Tensor padded = {nullptr, tensor.dtype, tensor.sizes, tensor.strides};
  padded.sizes.back() = ceil_div(tensor.sizes.back(), kChannels) * kChannels;
  std::int64_t stride = 1;
  for (std::size_t axis = padded.sizes.size(); axis-- > 0;) {
    padded.strides[axis] = stride;
    stride *= padded.sizes[axis];
  }
  storage.assign(static_cast<std::size_t>(stride), 0);
  padded.data = storage.data();
  return padded;
}

// Calls visit(offset in a, offset in b) for each element of `sizes`.
template <class Visit>
void for_each(const Sizes& sizes, const Tensor& a, const Tensor& b, const Visit& visit) {
  Sizes at(sizes.size());
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t rest = n, of_a = 0, of_b = 0;
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      const std::int64_t place = rest % sizes[axis];
      rest /= sizes[axis];
      of_a += place * a.strides[axis];
      of_b += place * b.strides[axis];
    }
    visit(of_a, of_b);
  }
}

void copy(const Tensor& from, const Tensor& to, const Sizes& sizes) {
  const std::uint16_t* source = elements_of(from);
  std::uint16_t* target = elements_of(to);
  for_each(sizes, from, to,
           [&](std::int64_t of_from, std::int64_t of_to) { target[of_to] = source[of_from]; });
}

}  // namespace

void check(bool condition, const std::string& otherwise) {
  if (!condition) throw FlashAttnError(otherwise);
}

void check_shape(const Tensor& tensor, const char* name, const Sizes& sizes) {
  if (tensor.sizes == sizes) return;
  std::string shape;
  for (const std::int64_t size : sizes) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  }
  throw FlashAttnError(std::string(name) + " must have shape (" + shape + ")");
}

void check_dense_floats(const Tensor& tensor, const char* name, const Sizes& sizes) {
  check(tensor.dtype == ScalarType::kFloat32, std::string(name) + " must have dtype fp32");
  check_shape(tensor, name, sizes);
  std::int64_t stride = 1;
  for (std::size_t axis = sizes.size(); axis-- > 0; stride *= sizes[axis]) {
    check(sizes[axis] == 1 || tensor.strides[axis] == stride,
          std::string(name) + " must be contiguous");
  }
}

const std::int32_t* cu_seqlens(const Tensor& tensor, const char* name, std::int64_t batch) {
  check(tensor.dtype == ScalarType::kInt32, std::string(name) + " must have dtype int32");
  check_shape(tensor, name, {batch + 1});
  check(tensor.strides[0] == 1, std::string(name) + " must be contiguous");
  return static_cast<const std::int32_t*>(tensor.data);
}

Heads heads_of(const Tensor& tensor) {
  const std::size_t axes = tensor.sizes.size();
  return {.data = elements_of(tensor),
          .batch_stride = axes == 4 ? tensor.strides[0] : 0,
          .row_stride = tensor.strides[axes - 3],
          .head_stride = tensor.strides[axes - 2]};
}

void fill(const Tensor& tensor, std::uint16_t bits) {
  std::uint16_t* elements = elements_of(tensor);
  for_each(tensor.sizes, tensor, tensor,
           [&](std::int64_t at, std::int64_t) { elements[at] = bits; });
}

Input::Input(const Tensor& tensor) : tensor_(tensor) {
  if (is_taken(tensor)) return;
  tensor_ = padded_like(tensor, elements_);
  copy(tensor, tensor_, tensor.sizes);
}

Output::Output(const Tensor& tensor) : to_(tensor), tensor_(tensor) {
  if (!is_taken(tensor)) tensor_ = padded_like(tensor, elements_);
}

void Output::finish() const {
  if (!elements_.empty()) copy(tensor_, to_, to_.sizes);
}

}  // namespace attest::vendor::nvidia_grid
