// FlashAttention-2: workers take neighbouring query blocks forward; backward whole key heads, and
// of those that are too few for all workers the key blocks. No bit depends on how many workers
// there are. On processors with AMX tiles, bf16 on these too.
#include "impl/amx/availability.h"
#include "impl/engine/engine.h"
#include "impl/flash.h"

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin = [] {
    std::vector<KernelCode> kernels =
        for_each_target(flash_kernel<kUpwards>("fa2"), engines<float>());
    std::vector<AbsentKernel> absent;
    amx::offer_tile_kernel("fa2/amx", kernels, absent);
    return Plugin(kernels, absent);
  }();
  return plugin.table();
}
