// FlashAttention-2 under masks that stay descriptions. A mask answers for a block of scores whether
// it is empty, partial or full (mask.h); empty blocks are never visited, full ones computed without
// a mask, and only a partial one is made, in memory for one block. A query block
// takes in its keys from the last to the first, as FlashAttention-2's released code does: under a
// causal mask, the blocks that the diagonal cuts come before the full ones.
//
// Beside it, `lazy_mask/dense` makes all elements of the mask first, as programs do that pass a
// matrix of booleans, and from it the same list of blocks (whole_mask.h); from there on both are
// the same. So between them lies only what making the mask costs: Sq x Sk bytes, and the time to
// fill them.

#include "impl/engine/engine.h"
#include "impl/flash.h"
#include "impl/whole_mask.h"

namespace attest::impl {
namespace {

KernelCode lazy() { return flash_kernel<kDownwards>("lazy_mask"); }

// With the blocks that a pass visits.
WholeMask whole_mask(const Call& call, bool backward, Arena arena) {
  return {call, kQueryBlock, backward ? kKeyBlock : forward_key_block(call.problem), arena};
}

// A byte for each pair and for each block of them, where batch elements and heads share nothing.
MemoryDeclaration memory_with_whole_mask() {
  MemoryDeclaration declared = flash_memory<kDownwards>();
  declared.growth = "quadratic";
  declared.workspace["per_pair"] = 1 + 1.0 / (kQueryBlock * kKeyBlock);
  declared.workspace["per_query"] = 2;
  declared.workspace["per_key"] = 1;
  declared.workspace["fixed"] = 128;
  return declared;
}

void run_with_whole_mask(const Call& call, bool backward) {
  const KernelCode kernel = lazy();
  void* const memory = shared_workspace_of(call, kernel.workspace(call, backward));
  WholeMask mask = whole_mask(call, backward, Arena(memory));
  mask.make();
  Call with_mask = call;
  with_mask.whole_mask = &mask;
  (backward ? kernel.backward : kernel.forward)(with_mask);
}

KernelCode dense() {
  KernelCode kernel = lazy();
  kernel.name += "/dense";
  kernel.longest = 65536;
  kernel.memory = &memory_with_whole_mask;
  kernel.shared_workspace = [](const Call& call, bool backward) {
    return whole_mask(call, backward, Arena()).bytes();
  };
  kernel.forward = [](const Call& call) { run_with_whole_mask(call, false); };
  kernel.backward = [](const Call& call) { run_with_whole_mask(call, true); };
  return kernel;
}

}  // namespace
}  // namespace attest::impl

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin([] {
    std::vector<KernelCode> kernels = for_each_target(lazy(), engines<float>());
    kernels.push_back(dense());
    return kernels;
  }());
  return plugin.table();
}
