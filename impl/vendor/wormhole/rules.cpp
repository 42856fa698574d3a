#include "impl/vendor/wormhole/rules.h"

namespace attest::vendor::wormhole {

const WormholeRules& wormhole_rules() {
  static const WormholeRules rules;
  return rules;
}

const device::Device& wormhole() {
  static const device::Device device(
      {.name = "Wormhole n150 (mock)",
       .model = "models TT-Metal's calling convention as the seed describes it; no claim on "
                "hardware",
       .cores = wormhole_rules().cores(),
       .formats = {"BFLOAT16", "BFLOAT8_B"},
       .layouts = {"TILE"}});
  return device;
}

}  // namespace attest::vendor::wormhole
