#include "impl/vendor/nvidia_grid/dot_do_o.h"

#include <algorithm>
#include <vector>

namespace attest::vendor::nvidia_grid {

void dot_do_o(ThreadBlock& block, const Params& params, const HeadAt& at, std::int64_t first_row,
              std::int64_t rows) {
  const std::int64_t count = std::clamp<std::int64_t>(at.sequence.queries - first_row, 0, rows);
  const Matrix dout = params.queries(params.dout, at), out = params.queries(params.out, at);
  float* sums = params.numbers(params.dsoftmax_sum, at) + first_row;
  std::vector<float> of_dout(static_cast<std::size_t>(params.d)), of_out(of_dout.size());
  for (std::int64_t r = 0; r < count; ++r) {
    widen(params.dtype, dout.data + (first_row + r) * dout.row_stride, of_dout.data(), params.d);
    widen(params.dtype, out.data + (first_row + r) * out.row_stride, of_out.data(), params.d);
    float sum = 0;
    for (std::size_t c = 0; c < of_dout.size(); ++c) sum += of_dout[c] * of_out[c];
    sums[r] = sum;
  }
  block.count_global(ThreadBlock::Kind::kInput, 2 * count, params.d * 2);
  block.count_global(ThreadBlock::Kind::kPartialWritten, 1, count * 4);
}

}  // namespace attest::vendor::nvidia_grid
