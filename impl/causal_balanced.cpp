// FlashAttention-2 for causal masks: workers take query blocks in pairs, one with few keys and one
// with many, and backward an equal number of the blocks that the mask leaves.
#include "impl/engine/engine.h"
#include "impl/flash.h"

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin(
      for_each_target(flash_kernel<Dealing::balanced>("causal_balanced"), engines<float>()));
  return plugin.table();
}
