// The mock of an Atlas A2: models Ascend's device as the seed describes it; no claim on hardware.
//
// A core is a cube core (AIC) and a vector core (AIV), with movers of their own:
//
//   AIC   global memory --MTE2--> L1 -> L0A, L0B --Cube--> L0C --FixPipe--> global memory
//   AIV   global memory --MTE2--> unified buffer <--Vector--> unified buffer --MTE3--> global
//   memory
//
// The two talk through a workspace in global memory. Left out: the second vector core of each pair
// and MTE1, which moves from L1 to L0 behind the products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "impl/vendor/device/device.h"
#include "impl/vendor/device/dma.h"
#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/unit.h"

namespace attest::vendor::ascend {

using device::Cycles;
using device::DeviceError;
using std::int64_t;

inline constexpr int64_t kKb = 1024;
inline constexpr int64_t kFloatBytes = 4;

// On-chip memory, as the documentation of Ascend C has it for the A2.
inline constexpr int64_t kUnifiedBuffer = 192 * kKb, kL1 = 512 * kKb;
inline constexpr int64_t kL0a = 64 * kKb, kL0b = 64 * kKb, kL0c = 128 * kKb;
inline constexpr int64_t kUbAlignment = 32;  // of every address in the unified buffer

inline constexpr int kCores = 24;             // models of the A2 have 20 to 25
inline constexpr int64_t kFractal = 16;       // the cube multiplies 16 x 16 x 16 halves in a cycle,
inline constexpr Cycles kFloatCube = 4;       // and floats at a quarter of that
inline constexpr int64_t kVectorBytes = 256;  // of a vector instruction, in a cycle

// The movers. 512, and 128 for what begins elsewhere, are the seed's. The width is CHOSEN, for the
// seed's two halvings: at 256 bytes a cycle a transfer of 128 bytes takes a cycle as one of 256
// does, so that FixPipe at a misaligned address takes twice as long, and MTE2 over rows of 128
// bytes 2.5 times (every fourth of them is aligned, and takes the 2 cycles of a whole burst). At
// 128 bytes a cycle or less neither would cost anything. Nothing else here was fitted.
inline constexpr device::DmaRules kMover = {
    .burst = 512, .misaligned_burst = 128, .alignment = 512, .bytes_per_cycle = 256, .setup = 0};

// What the seed names without a number: the head of a loop trip of the vector core, and a flag
// between the cube and the vector core. Free choices: as long as a vector instruction over a whole
// (128,128) block, and half of that.
inline constexpr Cycles kTripHead = 256, kFlag = 128;

inline device::DeviceRules atlas_a2() {
  return {.name = "Atlas A2 (mock)",
          .model =
              "models Ascend's calling convention as the seed describes it; no claim on "
              "hardware",
          .cores = kCores,
          .formats = {"FLOAT16", "BFLOAT16", "FLOAT"},
          .layouts = {"BSH", "SBH", "BNSD", "BSND", "TND"}};
}

// A place in global memory: where the device has it, and where the host does; no host's, where only
// the time is wanted.
struct Gm {
  std::byte* host = nullptr;
  int64_t address = 0;

  Gm operator+(int64_t bytes) const { return {host ? host + bytes : nullptr, address + bytes}; }
};

struct AiCore {
  device::Dma mte2{"AIC MTE2", kMover}, fixpipe{"AIC FixPipe", kMover};
  device::Unit cube{.name = "AIC Cube"};
  device::Dma vector_mte2{"AIV MTE2", kMover}, mte3{"AIV MTE3", kMover};
  device::Unit vector{.name = "AIV Vector"};
  device::Memory l1{"L1", kL1}, l0a{"L0A", kL0a}, l0b{"L0B", kL0b}, l0c{"L0C", kL0c};
  device::Memory unified{"UB", kUnifiedBuffer};

  Cycles now() {
    return std::max({mte2.unit().now, cube.now, fixpipe.unit().now, vector_mte2.unit().now,
                     vector.now, mte3.unit().now});
  }
};

// A buffer that InitBuffer took of the unified buffer.
class TBuf {
 public:
  TBuf(AiCore& core, std::string name, int64_t bytes)
      : name_(std::move(name)),
        data_(core.unified.take<std::byte>(name_, static_cast<std::size_t>(bytes))) {}

  // `count` elements of T from `offset` bytes on.
  template <class T>
  T* get_with_offset(int64_t count, int64_t offset) {
    const int64_t end = offset + count * static_cast<int64_t>(sizeof(T));
    if (offset % kUbAlignment != 0) {
      throw DeviceError(name_, "byte " + std::to_string(offset) + " is no multiple of " +
                                   std::to_string(kUbAlignment));
    }
    if (offset < 0 || end > static_cast<int64_t>(data_.size())) {
      throw DeviceError(name_, "bytes up to " + std::to_string(end) + " are asked for, of " +
                                   std::to_string(data_.size()));
    }
    most_used_ = std::max(most_used_, end);
    return reinterpret_cast<T*>(data_.data() + offset);
  }
  int64_t most_used() const { return most_used_; }

 private:
  std::string name_;
  device::Memory::Region<std::byte> data_;
  int64_t most_used_ = 0;
};

// Takes parts of a buffer one after the other.
class Carver {
 public:
  explicit Carver(TBuf& buffer) : buffer_(buffer) {}
  template <class T>
  T* take(int64_t count) {
    T* part = buffer_.get_with_offset<T>(count, offset_);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    offset_ += (bytes + kUbAlignment - 1) / kUbAlignment * kUbAlignment;
    return part;
  }

 private:
  TBuf& buffer_;
  int64_t offset_ = 0;
};

// The three buffers of the seed: 158 KB of the unified buffer.
struct UbBuffers {
  TBuf ub, tmp, clc3;
  explicit UbBuffers(AiCore& core)
      : ub(core, "ubBuffer", 120 * kKb),
        tmp(core, "tmpBuffer", 30 * kKb),
        clc3(core, "vecClc3", 8 * kKb) {}
};

// `runs` rows of `bytes`, `stride` bytes apart in global memory; rows side by side are one run.
inline void count_rows(device::Dma& dma, int64_t address, int64_t runs, int64_t bytes,
                       int64_t stride) {
  if (stride == bytes) {
    dma.count(address, runs * bytes);
    return;
  }
  for (int64_t n = 0; n < runs; ++n) dma.count(address + n * stride, bytes);
}
// The same, with the numbers: `local` has its rows `local_stride` bytes apart.
void load_rows(device::Dma& dma, Gm from, int64_t runs, int64_t bytes, int64_t stride,
               std::byte* local, int64_t local_stride);
void store_rows(device::Dma& dma, const std::byte* local, int64_t local_stride, Gm to, int64_t runs,
                int64_t bytes, int64_t stride);

}  // namespace attest::vendor::ascend
