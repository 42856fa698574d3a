#include "impl/vendor/ascend/atlas_a2.h"

namespace attest::vendor::ascend {

void load_rows(device::Dma& dma, Gm from, int64_t runs, int64_t bytes, int64_t stride,
               std::byte* local, int64_t local_stride) {
  if (!from.host) {
    count_rows(dma, from.address, runs, bytes, stride);
  } else if (stride == bytes && local_stride == bytes) {
    dma.move(local, 0, from.host, 0, 1, runs * bytes, from.address, 0);
  } else if (stride == bytes) {
    dma.count(from.address, runs * bytes);
    for (int64_t n = 0; n < runs; ++n) {
      std::memcpy(local + n * local_stride, from.host + n * stride,
                  static_cast<std::size_t>(bytes));
    }
  } else {
    dma.move(local, local_stride, from.host, stride, runs, bytes, from.address, stride);
  }
}

void store_rows(device::Dma& dma, const std::byte* local, int64_t local_stride, Gm to, int64_t runs,
                int64_t bytes, int64_t stride) {
  count_rows(dma, to.address, runs, bytes, stride);
  if (!to.host) return;
  for (int64_t n = 0; n < runs; ++n) {
    std::memcpy(to.host + n * stride, local + n * local_stride, static_cast<std::size_t>(bytes));
  }
}

}  // namespace attest::vendor::ascend
