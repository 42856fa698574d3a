// A tensor as the operator's users have them (torch): a shape, strides in elements, a format, and
// storage that is its own, somebody else's, or none (torch's device "meta").
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "impl/vendor/triton/floats.h"

namespace attest::vendor::triton {

enum class Dtype { float16, bfloat16, float32, float8_e5m2 };

const char* name_of(Dtype dtype);  // as the compiler prints it: "fp8e5"
std::int64_t itemsize(Dtype dtype);

using Sizes = std::vector<std::int64_t>;

class Tensor {
 public:
  Tensor() = default;
  // Zeros, dense in the order of the axes.
  static Tensor zeros(const Sizes& shape, Dtype dtype);
  // A view of memory that the caller keeps, of so many elements.
  static Tensor from_blob(void* data, const Sizes& shape, const Sizes& stride, Dtype dtype,
                          std::int64_t elements);
  // A launch on tensors without storage takes its time, and computes nothing.
  static Tensor meta(const Sizes& shape, Dtype dtype);

  // torch.empty_like: the same shape and format, and the same order of axes if this is dense in
  // some order; else dense in theirs.
  Tensor empty_like() const;
  // torch's .to(dtype): a dense copy, each element rounded to the nearest, ties to even.
  Tensor to(Dtype dtype) const;

  const Sizes& shape() const { return shape_; }
  std::int64_t stride(std::size_t axis) const { return stride_[axis]; }
  Dtype dtype() const { return dtype_; }
  bool is_meta() const { return data_ == nullptr; }
  // How many elements the storage has: all that may be touched.
  std::int64_t elements() const { return elements_; }
  void* data() const { return data_; }

  // Element `n` of the storage.
  float get(std::int64_t n) const;
  void set(std::int64_t n, float value) const;
  float at(std::int64_t z, std::int64_t h, std::int64_t m, std::int64_t k) const {
    return get(z * stride_[0] + h * stride_[1] + m * stride_[2] + k * stride_[3]);
  }

 private:
  bool is_permuted() const;

  Sizes shape_, stride_;
  Dtype dtype_ = Dtype::float16;
  std::int64_t elements_ = 0;
  std::shared_ptr<std::uint8_t[]> own_;
  void* data_ = nullptr;
};

}  // namespace attest::vendor::triton
