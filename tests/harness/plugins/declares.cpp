// Right kernels, in f32, that declare what not everybody may: "declares/lag" a maximum that lags,
// beyond the default column; "declares/beyond_caps" what nobody may, in words.
#include "spec/kernel.h"
#include "tests/harness/plain_kernel.h"

namespace {

attest::Declaration declared() {
  return attest::declare()
      .profiles({"forward-core"})
      .dtypes({"f32"})
      .features({"lse", "causal", "gqa", "value-dim", "strides", "zero-sizes", "any-scale"})
      .set("alignment", "4");
}

void forward(const attest::Call& c) {
  attest::plain::forward(c.problem, c.inputs, c.outputs, c.context);
}

}  // namespace

ATTEST_KERNEL("declares/lag", declared().arithmetic("f32", R"({"max_lag": 5.5})"), forward)
ATTEST_KERNEL("declares/beyond_caps",
              declared().set("beyond_caps", R"({"f32": "keeps scores in f16"})"), forward)
