// What a kernel may get wrong that is tried on few heads alone: "far_keys/lost" loses all keys from
// number 4096 on where there are 32 query heads, as when a split is counted in a grid that is full
// then; "far_keys/none" is the same kernel without that. In f32, forward.
#include "spec/kernel.h"
#include "tests/harness/plain_kernel.h"

namespace {

constexpr std::int64_t kHeads = 32, kKeys = 4096;

attest::Declaration declared() {
  return attest::declare()
      .profiles({"forward-core"})
      .dtypes({"f32"})
      .features({"lse", "causal", "gqa", "value-dim", "strides", "zero-sizes", "any-scale"})
      .set("alignment", "4");
}

attest::Pass forward(bool loses) {
  return [loses](const attest::Call& c) {
    attest_problem seen = c.problem;
    if (loses && seen.query_heads == kHeads && seen.key_len > kKeys) seen.key_len = kKeys;
    attest::plain::forward(seen, c.inputs, c.outputs, c.context);
  };
}

}  // namespace

ATTEST_KERNEL("far_keys/none", declared(), forward(false))
ATTEST_KERNEL("far_keys/lost", declared(), forward(true))
