// The numbers of the mock Wormhole: a grid of Tensix cores, each with an L1 of its own, around one
// DRAM.
//
// Models TT-Metal's FlashAttention as the seed describes it; no claim on hardware. The grid, L1 and
// DRAM are the seed's. It has no figure of what an operation takes: those of the matrix and vector
// units, the packer and the NoC are round ones of the maker's public reports on matrix multiplies
// and on the instruction set. Ratios of schedules hold by them, times of day do not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "impl/vendor/device/device.h"

namespace attest::vendor::wormhole {

using device::Cycles;

struct CoreCoord {
  int x, y;
};

constexpr int kTile = 32;  // rows and columns of a tile
constexpr int kFace = 16;  // of a face: a tile is four, one after the other
constexpr int kTileElements = kTile * kTile;

struct WormholeRules {
  CoreCoord grid = {.x = 8, .y = 10};
  std::size_t l1_bytes = 1536 * 1024;  // of each core, enforced
  int dram_channels = 12;
  std::int64_t dram_channel_bytes = std::int64_t{1} << 30;
  std::int64_t dram_bytes_per_cycle = 288;  // of all cores together: 288 GB/s at 1 GHz
  double cycles_per_second = 1e9;
  int data_movers = 2;    // RISC0 and RISC1, which start transfers
  int compute_riscs = 3;  // RISC2 to RISC4, which feed the engine
  // Of one core's link to the NoC: 32 bytes a cycle, after what it takes to start a transfer. One
  // that begins at no multiple of 32 is an error.
  device::DmaRules noc = {
      .burst = 32, .misaligned_burst = 0, .alignment = 32, .bytes_per_cycle = 32, .setup = 16};

  int cores() const { return grid.x * grid.y; }
  std::size_t all_l1_bytes() const { return static_cast<std::size_t>(cores()) * l1_bytes; }
  double dram_bytes_per_second() const {
    return static_cast<double>(dram_bytes_per_cycle) * cycles_per_second;
  }
};

// How many passes the matrix unit makes for one product: its multiplier takes 5 by 7 digits, so
// that bf16's 8 by 8 take four. With fewer, digits are left out (tiles.h).
enum class MathFidelity { LoFi = 1, HiFi2 = 2, HiFi4 = 4 };

// Cycles of the compute engine for one tile.
struct TileCosts {
  Cycles matmul_pass = 16;  // 32 x 32 x 32 at 2048 products a cycle, for each pass
  Cycles exp = 256;         // 8 instructions of the vector unit for each of 32 rows
  Cycles reciprocal = 256;
  std::int64_t packed_bytes_per_cycle = 64;  // of the packer, which all other operations wait for

  // A sum, product, difference, maximum or copy of tiles of so many bytes.
  Cycles elementwise(std::int64_t tile_bytes) const { return tile_bytes / packed_bytes_per_cycle; }
};

// The device that the host opens.
const device::Device& wormhole();
const WormholeRules& wormhole_rules();

}  // namespace attest::vendor::wormhole
