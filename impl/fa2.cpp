// FlashAttention-2: workers take neighbouring query blocks forward, and whole key heads backward,
// so that no bit depends on how many they are. On processors with AMX tiles, bf16 on these too.
#include "impl/amx/availability.h"
#include "impl/engine/engine.h"
#include "impl/flash.h"

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin = [] {
    std::vector<KernelCode> kernels =
        for_each_target(flash_kernel<Dealing::contiguous>("fa2"), engines<float>());
    std::vector<AbsentKernel> absent;
    amx::offer_tile_kernel("fa2/amx", kernels, absent);
    return Plugin(kernels, absent);
  }();
  return plugin.table();
}
