#include "impl/vendor/wormhole/measures.h"

#include <cmath>
#include <cstdint>

namespace attest::vendor::wormhole {
namespace {

constexpr std::int64_t kTokens = 16384, kHiddenDim = 2048;

SizeMeasured measure(const Shape& shape, DataType dtype) {
  SdpaArguments arguments;
  const Swept swept = sweep(shape, shape, dtype, arguments).value();
  arguments.program_config = swept.config;
  const SdpaShape split = make_program(shape, shape, dtype, arguments).shape;
  const CoreCoord grid = swept.config.compute_with_storage_grid_size;
  const auto chunks = split_work(split, grid.x * grid.y, true).front().query_chunks.size();
  const auto with = [&](auto Choices::*choice, auto value) {
    SdpaArguments other = arguments;
    other.choices.*choice = value;
    return estimate(shape, shape, dtype, other);
  };
  return {.shape = shape,
          .dtype = dtype,
          .config = swept.config,
          .best = swept.estimate,
          .baseline_seconds =
              baseline_seconds(shape, shape, dtype, arguments.compute_kernel_config.math_fidelity),
          .contiguous = with(&Choices::balanced, false),
          .single_buffered = with(&Choices::chunks_in_buffer, 1),
          .masked_everywhere = with(&Choices::mask_diagonal_only, false),
          .splits_heads = static_cast<std::int64_t>(chunks) < split.query_chunks};
}

// Sums of 12 uniform numbers are near enough to normal, and the same everywhere.
class Numbers {
 public:
  float next() {
    double sum = -6;
    for (int n = 0; n < 12; ++n) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<double>(state_ >> 11) * 0x1p-53;
    }
    return round_to_bf16(static_cast<float>(sum));
  }

 private:
  std::uint64_t state_ = 1;
};

std::vector<double> exact_causal(const std::vector<float>& q, const std::vector<float>& k,
                                 const std::vector<float>& v, const Shape& shape) {
  const std::int64_t s = shape[2], d = shape[3];
  std::vector<double> o(q.size());
  for (std::int64_t row = 0; row < shape[0] * shape[1] * s; ++row) {
    const std::int64_t keys = row / s * s;
    std::vector<double> score;
    double sum = 0;
    for (std::int64_t j = keys; j <= row; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) {
        dot += double{q[static_cast<std::size_t>(row * d + c)]} *
               k[static_cast<std::size_t>(j * d + c)];
      }
      score.push_back(std::exp(dot / std::sqrt(static_cast<double>(d))));
      sum += score.back();
    }
    for (std::int64_t j = keys; j <= row; ++j) {
      for (std::int64_t c = 0; c < d; ++c) {
        o[static_cast<std::size_t>(row * d + c)] += score[static_cast<std::size_t>(j - keys)] /
                                                    sum * v[static_cast<std::size_t>(j * d + c)];
      }
    }
  }
  return o;
}

template <class Exact>
double relative_rms(const std::vector<float>& values, const std::vector<Exact>& exact) {
  double error = 0, size = 0;
  for (std::size_t n = 0; n < exact.size(); ++n) {
    error += std::pow(double{values[n]} - double{exact[n]}, 2);
    size += std::pow(double{exact[n]}, 2);
  }
  return std::sqrt(error / size);
}

}  // namespace

const std::vector<SizeMeasured>& measured_sizes() {
  static const std::vector<SizeMeasured> sizes = [] {
    std::vector<SizeMeasured> all;
    for (const DataType dtype : {DataType::BFLOAT16, DataType::BFLOAT8_B}) {
      for (const std::int64_t head_dim : {64, 128, 256}) {
        for (std::int64_t length = 512; length <= kTokens; length *= 2) {
          all.push_back(
              measure({kTokens / length, kHiddenDim / head_dim, length, head_dim}, dtype));
        }
      }
    }
    return all;
  }();
  return sizes;
}

FormatError measured_error(DataType dtype, const DeviceComputeKernelConfig& config) {
  const Shape shape = {1, 2, 256, 64};
  Numbers numbers;
  std::array<std::vector<float>, 3> values;
  for (auto& of_one : values) {
    for (int n = 0; n < 2 * 256 * 64; ++n) of_one.push_back(numbers.next());
  }
  const auto tensor = [&](const std::vector<float>& from) {
    return Tensor::from_values(from, shape, dtype, Layout::TILE);
  };
  const Tensor o = scaled_dot_product_attention(
      tensor(values[0]), tensor(values[1]), tensor(values[2]), {.compute_kernel_config = config});
  return {
      .inputs = relative_rms(tensor(values[0]).to_values(), values[0]),
      .output = relative_rms(o.to_values(), exact_causal(values[0], values[1], values[2], shape))};
}

}  // namespace attest::vendor::wormhole
