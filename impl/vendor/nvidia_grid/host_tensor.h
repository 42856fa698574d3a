// What the host code of both releases does with tensors: checks, in the words of the package, and
// copies of those that its kernels cannot take as they lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "impl/vendor/nvidia_grid/params.h"
#include "impl/vendor/nvidia_grid/tensor.h"

namespace attest::vendor::nvidia_grid {

using Sizes = std::vector<std::int64_t>;

void check(bool condition, const std::string& otherwise);
void check_shape(const Tensor& tensor, const char* name, const Sizes& sizes);
void check_dense_floats(const Tensor& tensor, const char* name, const Sizes& sizes);
const std::int32_t* cu_seqlens(const Tensor& tensor, const char* name, std::int64_t batch);

// How kernels see it: (batch_size, seqlen, nheads, headdim), or (total, nheads, headdim).
Heads heads_of(const Tensor& tensor);

void fill(const Tensor& tensor, std::uint16_t bits);

// An input, as it is, or a contiguous copy whose channels are padded with zeros to a multiple of 8,
// if they do not lie side by side or are no such multiple.
class Input {
 public:
  explicit Input(const Tensor& tensor);
  const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<std::uint16_t> elements_;
  Tensor tensor_;
};

// An output likewise; what is to be copied back is with `finish`.
class Output {
 public:
  explicit Output(const Tensor& tensor);
  const Tensor& tensor() const { return tensor_; }
  void finish() const;

 private:
  std::vector<std::uint16_t> elements_;
  Tensor to_, tensor_;
};

}  // namespace attest::vendor::nvidia_grid
