// A mover of data between the device's memory and a core's: runs of contiguous bytes, each cut into
// bursts.
//
// The model: a burst of up to `burst` bytes that begins at a multiple of `alignment` takes
// `burst / bytes_per_cycle` cycles, full or not. A run that begins elsewhere is cut into bursts of
// `misaligned_burst` bytes instead (0: it is an error). Each run takes `setup` cycles before.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "impl/vendor/device/error.h"
#include "impl/vendor/device/unit.h"

namespace attest::vendor::device {

struct DmaRules {
  std::int64_t burst;             // bytes
  std::int64_t misaligned_burst;  // bytes; 0: a misaligned run is an error
  std::int64_t alignment;         // bytes, in the device's memory
  std::int64_t bytes_per_cycle;
  Cycles setup;
};

class Dma {
 public:
  Dma(std::string name, const DmaRules& rules) : rules_(rules), unit_{.name = std::move(name)} {}

  // Moves `runs` runs of `bytes`, the next one `to_stride` and `from_stride` bytes on. `address` is
  // where the device has the first, whatever the host gave it for memory; `stride` is the step
  // there.
  void move(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
            std::int64_t runs, std::int64_t bytes, std::int64_t address, std::int64_t stride) {
    for (std::int64_t n = 0; n < runs; ++n) {
      count(address + n * stride, bytes);
      std::memcpy(static_cast<char*>(to) + n * to_stride,
                  static_cast<const char*>(from) + n * from_stride,
                  static_cast<std::size_t>(bytes));
    }
  }

  // The time alone, of a run that the caller moves.
  void count(std::int64_t address, std::int64_t bytes) {
    if (bytes <= 0) return;
    std::int64_t size = rules_.burst;
    if (address % rules_.alignment != 0) {
      if (rules_.misaligned_burst == 0) {
        throw DeviceError(unit_.name, "a run begins at byte " + std::to_string(address) +
                                          ", no multiple of " + std::to_string(rules_.alignment));
      }
      size = rules_.misaligned_burst;
    }
    const std::int64_t bursts = (bytes + size - 1) / size;
    bursts_ += bursts;
    bytes_ += bytes;
    unit_.spend(rules_.setup +
                bursts * ((size + rules_.bytes_per_cycle - 1) / rules_.bytes_per_cycle));
  }

  Unit& unit() { return unit_; }
  std::int64_t bursts() const { return bursts_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  DmaRules rules_;
  Unit unit_;
  std::int64_t bursts_ = 0, bytes_ = 0;
};

}  // namespace attest::vendor::device
