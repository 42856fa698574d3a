// Ascend's operators as a plug-in of Attest: models Ascend's calling convention as the seed
// describes it; no claim on hardware.
#include <attest/kernel.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "impl/vendor/ascend/ascend_api.h"
#include "impl/vendor/ascend/translation.h"

namespace attest::vendor::ascend {

namespace {

void expect_ok(const Status& status) {
  if (status.ok()) return;
  throw std::runtime_error("aclnn " + std::to_string(static_cast<int>(status.code)) + ": " +
                           status.message);
}

std::uint64_t workspace_bytes(const Problem& problem, bool backward, std::int32_t) {
  Translation translation(problem, backward, nullptr);
  if (translation.empty()) return 0;
  std::uint64_t bytes = 0;
  Executor executor;
  expect_ok(backward ? flash_attention_score_grad_get_workspace_size(translation.backward_call(),
                                                                     bytes, executor)
                     : flash_attention_score_get_workspace_size(translation.forward_call(), bytes,
                                                                executor));
  return bytes;
}

void forward(const Call& call) {
  Translation translation(call.problem, false, &call);
  if (!translation.empty()) {
    std::uint64_t bytes = 0;
    Executor executor;
    expect_ok(
        flash_attention_score_get_workspace_size(translation.forward_call(), bytes, executor));
    expect_ok(flash_attention_score(call.workspace, bytes, executor));
  }
  translation.finish_forward(call);
}

void backward(const Call& call) {
  Translation translation(call.problem, true, &call);
  if (!translation.empty()) {
    std::uint64_t bytes = 0;
    Executor executor;
    expect_ok(flash_attention_score_grad_get_workspace_size(translation.backward_call(), bytes,
                                                            executor));
    expect_ok(flash_attention_score_grad(call.workspace, bytes, executor));
  }
  translation.finish_backward(call);
}

// What the mock computes. The cube sums in f32, rounded to the nearest, of operands as they are;
// all of the softmax is f32, with libm's expf, within 1 ulp; P and dS are cast to the operator's
// format before their products, P unnormalised in the forward pass; the scale follows the products
// of dQ and dK; keys come in blocks of 128 from left to right, in one pass. Exp and Div flush
// subnormal results to 0, as asc-devkit's issue 1604 has it of a later device; of the A2 no source
// was found.
std::string arithmetic(const std::string& dtype) {
  std::string json = R"({"products":{"default":{"accumulator":"f32","truncates":false}},)"
                     R"("softmax":"f32","exp_ulp":1,"p":")" +
                     dtype +
                     R"(","p_normalised":"last",)"
                     R"("ds":")" +
                     dtype +
                     R"(","ds_scaled":"after_rounding","ds_from":"p",)"
                     R"("kv_splits":1,"rescales_output":false,"key_block":128,)"
                     R"("subnormal_inputs":"kept","output_rounding":"nearest",)"
                     R"("deterministic":true,"thread_invariant":true,"batch_invariant":true,)";
  return json + R"("subnormal_outputs":")" + (dtype == "f16" ? "kept" : "flushed") + "\"}";
}

// TND has one mask for all sequences and heads.
std::string never() {
  std::string json;
  for (const char* lengths : {"packed", "lengths"}) {
    for (const char* mask :
         {"dense-mask", "prefix", "segments", "block-sparse", "dilated", "mask-and", "mask-or"}) {
      json += json.empty() ? "[" : ",";
      json += std::string(R"({"features":[")") + lengths + R"(",")" + mask + R"("]})";
    }
  }
  return json + "]";
}

// Not there, as the operators have no such argument or this mock leaves it out: f64, Dv other than
// D, softcap, biases (real_shift is added before the scale, SCORE-3), ALiBi, sinks, dLSE, pages,
// dropout that is generated. Schedules are not reported: the device's cores are its own, and no
// threads of the call.
Declaration declared() {
  Declaration d = declare();
  d.version("0.1.0")
      .vendor(
          "Ascend, a mock: models its calling convention as the seed describes it; no claim on "
          "hardware")
      .dtypes({"f32", "f16", "bf16"})
      .features({"causal",     "window",   "dense-mask", "prefix",     "segments", "block-sparse",
                 "dilated",    "mask-and", "mask-or",    "packed",     "lengths",  "backward",
                 "any-scale",  "dropout",  "gqa",        "zero-sizes", "long",     "strides",
                 "transposed", "expanded", "lse"})
      // None of them is met: rows that see nothing hold other statistics than EMPTY-2 has, which
      // is the vendor's own, below. What misses HIDE-3, FINITE-2 and FINITE-3 (recommended): P of
      // 0 times a NaN of V is NaN, in the cube as elsewhere.
      .profiles({"forward-core+declared/limits", "training-core+declared/limits",
                 "masks+declared/limits", "sparse-masks+declared/limits", "dropout+declared/limits",
                 "varlen+declared/limits", "packed+declared/limits", "layouts+declared/limits"})
      .limit("head_dim", R"({"min":1,"max":512})")
      .limit("query_heads", R"({"max":256})")
      .limit("never", never())
      .set("lse", R"({"as":"maximum_and_sum"})")
      // A row that sees nothing keeps the number that hides scores for its maximum, and gets the
      // largest one for its sum, as FlashAttentionScore's public source has it (AdjustSoftMaxRes);
      // the seed does not speak of such rows. Not EMPTY-2: declared by EMPTY-5.
      .set("empty_rows", R"({"maximum":-3.4028234663852886e38,"sum":3.4028234663852886e38})")
      .workspace(workspace_bytes);
  for (const char* dtype : {"f32", "f16", "bf16"}) d.arithmetic(dtype, arithmetic(dtype));
  return d;
}

}  // namespace

ATTEST_KERNEL("ascend", declared(), forward, backward)

}  // namespace attest::vendor::ascend
