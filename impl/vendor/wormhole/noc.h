// A data mover of a core: RISC0 or RISC1, which moves tiles between DRAM and L1 over the NoC.
//
// A tile takes as long as the core's link to the NoC is busy with it, or as this core's share of
// DRAM's bandwidth needs, whichever is longer: all running cores want something of DRAM at once.
// Where one core reads for a group and multicasts what it read, it has the shares of the whole
// group; the others have the tile when it has passed its link once more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "impl/vendor/device/dma.h"
#include "impl/vendor/wormhole/rules.h"

namespace attest::vendor::wormhole {

// How a core gets K and V: it reads for itself; it reads for a group of cores; it is one of them.
struct Multicast {
  std::int64_t group = 1;  // cores, the one that reads among them
  bool is_leader = true;   // whether this is the one
};

// Cycles of a run of bytes on a link, and of a tile on its way from or to DRAM.
inline Cycles link_cycles(std::int64_t bytes, const WormholeRules& rules) {
  const device::DmaRules& noc = rules.noc;
  return noc.setup + (bytes + noc.burst - 1) / noc.burst * (noc.burst / noc.bytes_per_cycle);
}
inline Cycles tile_cycles(std::int64_t bytes, std::int64_t running_cores,
                          const Multicast& multicast, const WormholeRules& rules) {
  const std::int64_t shares = rules.dram_bytes_per_cycle * multicast.group;
  const Cycles link = link_cycles(bytes, rules);
  const Cycles read = std::max(link, (bytes * running_cores + shares - 1) / shares);
  return multicast.group > 1 ? read + link : read;
}

class DataMover {
 public:
  DataMover(std::string name, std::int64_t running_cores, const WormholeRules& rules)
      : rules_(rules), cores_(running_cores), dma_(std::move(name), rules.noc) {}

  // A tile, which lies at `address` of a tensor in DRAM; of K and V it may come by multicast: the
  // same bytes, of which a core that receives them asks nothing of DRAM.
  void move(void* to, const void* from, std::int64_t bytes, std::int64_t address,
            const Multicast& multicast = {}) {
    const Cycles end = dma_.unit().now + tile_cycles(bytes, cores_, multicast, rules_);
    dma_.move(to, bytes, from, bytes, 1, bytes, address, bytes);
    dma_.unit().wait_until(end);
    if (multicast.is_leader) dram_bytes_ += bytes;
  }

  device::Unit& unit() { return dma_.unit(); }
  std::int64_t dram_bytes() const { return dram_bytes_; }

 private:
  const WormholeRules& rules_;
  std::int64_t cores_;
  device::Dma dma_;
  std::int64_t dram_bytes_ = 0;
};

}  // namespace attest::vendor::wormhole
