// FlashAttention-2: workers take neighbouring query blocks forward, and whole key heads backward,
// so that no bit depends on how many they are.
#include "impl/flash.h"

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin(
      for_each_target(flash_kernel<Dealing::contiguous>("fa2"), engines<float>()));
  return plugin.table();
}
