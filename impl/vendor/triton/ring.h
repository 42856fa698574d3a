// The buffers of a software-pipelined loop: `num_stages` tiles of one operand in shared memory,
// which asynchronous copies fill ahead of the warps that use them. One program issues the copies
// and waits for them, so no thread is needed but its own.
//
//   ring.load(n + num_stages - 1, source);   // into the place that tile n - 1 has left
//   const std::uint8_t* tile = ring.wait(warps, n);
//   ...
//   ring.release(warps);
//
// A copy into a place that is still in use, a wait for a tile that no copy was issued for, and one
// for a tile that is not the oldest are errors of the device (queue.h).
#pragma once

#include <cstdint>
#include <string>

#include "impl/vendor/device/dma.h"
#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/queue.h"

namespace attest::vendor::triton {

// A tile in the device's memory, row by row. Strides are in bytes.
struct Rows {
  const std::uint8_t* data;  // of the first element; null: nothing moves, but the time is taken
  std::int64_t address;      // of the same in its tensor, in bytes
  std::int64_t rows, channels, itemsize;
  std::int64_t row_stride, channel_stride;
};

// In runs as long as what lies side by side, into rows without gaps.
inline void copy_rows(device::Dma& dma, std::uint8_t* to, const Rows& from) {
  std::int64_t rows = from.rows, runs = 1, bytes = from.channels * from.itemsize;
  const std::int64_t row_bytes = bytes;
  if (from.channel_stride != from.itemsize) {
    runs = from.channels;
    bytes = from.itemsize;
  } else if (from.row_stride == row_bytes) {
    bytes *= rows;
    rows = 1;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = row * from.row_stride, address = from.address + begin;
    if (from.data) {
      dma.move(to + row * row_bytes, from.itemsize, from.data + begin, from.channel_stride, runs,
               bytes, address, from.channel_stride);
      continue;
    }
    for (std::int64_t run = 0; run < runs; ++run) {
      dma.count(address + run * from.channel_stride, bytes);
    }
  }
}

class Ring {
 public:
  Ring(device::Stages& stages, device::Memory& shared, device::Dma& dma, const std::string& name,
       std::int64_t num_stages, std::int64_t tile_bytes)
      : dma_(dma),
        num_stages_(num_stages),
        tile_bytes_(tile_bytes),
        tiles_(shared.take<std::uint8_t>(name, static_cast<std::size_t>(num_stages * tile_bytes))),
        queue_(stages, name, static_cast<std::size_t>(num_stages)) {}

  void load(std::int64_t number, const Rows& from) {
    if (from.rows * from.channels * from.itemsize > tile_bytes_) {
      throw device::DeviceError("shared memory", "a tile of " + std::to_string(from.rows) + " x " +
                                                     std::to_string(from.channels) +
                                                     " is larger than its place");
    }
    std::uint8_t* const place = tiles_.data() + number % num_stages_ * tile_bytes_;
    // A copy is issued, and waits for nobody: one that has no place overruns.
    if (in_use_ < num_stages_) queue_.reserve(dma_.unit()), ++in_use_;
    copy_rows(dma_, place, from);
    queue_.push(dma_.unit(), number, place);
  }
  const std::uint8_t* wait(device::Unit& warps, std::int64_t number) {
    return queue_.front(warps, number);
  }
  void release(device::Unit& warps) {
    queue_.pop(warps);
    --in_use_;
  }

 private:
  device::Dma& dma_;
  const std::int64_t num_stages_, tile_bytes_;
  std::int64_t in_use_ = 0;
  device::Memory::Region<std::uint8_t> tiles_;
  device::Queue<std::uint8_t*> queue_;
};

}  // namespace attest::vendor::triton
