// The kernel fa2/amx on emulated tiles, as a plug-in that any machine can run:
// `attest run --testee PATH/amx_emulated.so` judges its algorithm. Of its speed it says nothing.
#include "impl/amx/kernel.h"
#include "impl/amx/steps.inl"
#include "tests/impl/amx_emulation.h"

namespace attest::impl::amx {
namespace {

const Steps& emulated_steps() {
  static constexpr Steps kSteps = steps_of<TileEmulation>();
  return kSteps;
}

}  // namespace
}  // namespace attest::impl::amx

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin({amx::tile_kernel<&amx::emulated_steps>("amx_emulated")},
                             {{"amx_emulated/real", "tiles are emulated here"}});
  return plugin.table();
}
