// FlashAttention-2 for causal masks: all workers have equally many of the scores that the mask
// leaves, so that a query block, and backward a key block, may lie with several of them.
#include "impl/engine/engine.h"
#include "impl/flash.h"

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin(
      for_each_target(flash_kernel<kBalanced>("causal_balanced"), engines<float>()));
  return plugin.table();
}
