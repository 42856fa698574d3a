// A circular buffer of L1: a producer and a consumer, two of the core's concurrent kernels, hand
// chunks of tiles from one to the other. That of two chunks is a double buffer: one is filled while
// the other is used.
//
//   cb.reserve_back(unit) -> where the next chunk goes      cb.push_back(unit, n)
//   cb.wait_front(unit, n) -> chunk number n                cb.pop_front(unit)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/queue.h"
#include "impl/vendor/wormhole/formats.h"

namespace attest::vendor::wormhole {

class CircularBuffer {
 public:
  CircularBuffer(device::Stages& stages, device::Memory& l1, const std::string& name,
                 DataFormat format, std::int64_t chunk_tiles, int chunks)
      : format_(format),
        chunk_bytes_(static_cast<std::size_t>(chunk_tiles * tile_bytes(format))),
        chunks_(static_cast<std::size_t>(chunks)),
        bytes_(l1.take<std::uint8_t>(name, chunk_bytes_ * chunks_)),
        queue_(stages, name, chunks_) {}

  DataFormat format() const { return format_; }

  std::uint8_t* reserve_back(device::Unit& producer) {
    queue_.reserve(producer);
    return &bytes_[pushed_ % chunks_ * chunk_bytes_];
  }
  void push_back(device::Unit& producer, std::int64_t number) {
    queue_.push(producer, number, pushed_ % chunks_);
    ++pushed_;
  }
  const std::uint8_t* wait_front(device::Unit& consumer, std::int64_t number) {
    return &bytes_[queue_.front(consumer, number) * chunk_bytes_];
  }
  void pop_front(device::Unit& consumer) { queue_.pop(consumer); }

 private:
  const DataFormat format_;
  const std::size_t chunk_bytes_, chunks_;
  device::Memory::Region<std::uint8_t> bytes_;
  std::size_t pushed_ = 0;            // the producer's own
  device::Queue<std::size_t> queue_;  // of places
};

}  // namespace attest::vendor::wormhole
