#include "impl/vendor/triton/tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace attest::vendor::triton {
namespace {

Sizes dense_strides(const Sizes& shape) {
  Sizes stride(shape.size());
  std::int64_t step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) stride[axis] = step;
  return stride;
}

std::int64_t product_of(const Sizes& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

template <class T>
float element_of(const void* data, std::int64_t n) {
  T element;
  std::memcpy(&element, static_cast<const char*>(data) + n * std::int64_t{sizeof(T)}, sizeof(T));
  return static_cast<float>(element);
}

template <class T>
void set_element(void* data, std::int64_t n, float value) {
  const T element(value);
  std::memcpy(static_cast<char*>(data) + n * std::int64_t{sizeof(T)}, &element, sizeof(T));
}

}  // namespace

const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
      return "fp16";
    case Dtype::bfloat16:
      return "bf16";
    case Dtype::float32:
      return "fp32";
    case Dtype::float8_e5m2:
      return "fp8e5";
  }
  return "";
}

std::int64_t itemsize(Dtype dtype) {
  return dtype == Dtype::float32 ? 4 : dtype == Dtype::float8_e5m2 ? 1 : 2;
}

Tensor Tensor::zeros(const Sizes& shape, Dtype dtype) {
  Tensor tensor = meta(shape, dtype);
  tensor.own_.reset(new std::uint8_t[tensor.elements_ * itemsize(dtype)]());
  tensor.data_ = tensor.own_.get();
  return tensor;
}

Tensor Tensor::from_blob(void* data, const Sizes& shape, const Sizes& stride, Dtype dtype,
                         std::int64_t elements) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.stride_ = stride;
  tensor.dtype_ = dtype;
  tensor.elements_ = elements;
  tensor.data_ = data;
  return tensor;
}

Tensor Tensor::meta(const Sizes& shape, Dtype dtype) {
  return from_blob(nullptr, shape, dense_strides(shape), dtype, product_of(shape));
}

Tensor Tensor::empty_like() const {
  Tensor like = is_meta() ? meta(shape_, dtype_) : zeros(shape_, dtype_);
  if (is_permuted()) like.stride_ = stride_;
  return like;
}

bool Tensor::is_permuted() const {
  std::vector<std::size_t> axes(shape_.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::stable_sort(axes.begin(), axes.end(),
                   [&](std::size_t a, std::size_t b) { return stride_[a] > stride_[b]; });
  std::int64_t step = 1;
  for (std::size_t n = axes.size(); n-- > 0; step *= shape_[axes[n]]) {
    if (stride_[axes[n]] != step && shape_[axes[n]] != 1) return false;
  }
  return true;
}

Tensor Tensor::to(Dtype dtype) const {
  if (is_meta()) return meta(shape_, dtype);
  Tensor copy = zeros(shape_, dtype);
  Sizes place(shape_.size(), 0);
  for (std::int64_t n = 0; n < copy.elements_; ++n) {
    std::int64_t from = 0;
    for (std::size_t axis = 0; axis < place.size(); ++axis) from += place[axis] * stride_[axis];
    copy.set(n, get(from));
    for (std::size_t axis = place.size(); axis-- > 0;) {
      if (++place[axis] < shape_[axis]) break;
      place[axis] = 0;
    }
  }
  return copy;
}

float Tensor::get(std::int64_t n) const {
  switch (dtype_) {
    case Dtype::float16:
      return element_of<f16>(data_, n);
    case Dtype::bfloat16:
      return element_of<bf16>(data_, n);
    case Dtype::float32:
      return element_of<float>(data_, n);
    case Dtype::float8_e5m2:
      return element_of<f8e5m2>(data_, n);
  }
  return 0;
}

void Tensor::set(std::int64_t n, float value) const {
  switch (dtype_) {
    case Dtype::float16:
      return set_element<f16>(data_, n, value);
    case Dtype::bfloat16:
      return set_element<bf16>(data_, n, value);
    case Dtype::float32:
      return set_element<float>(data_, n, value);
    case Dtype::float8_e5m2:
      return set_element<f8e5m2>(data_, n, value);
  }
}

}  // namespace attest::vendor::triton
