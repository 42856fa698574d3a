// A call of the plug-in as the host makes it: dense, with a causal mask.
#pragma once

#include <attest/kernel.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/impl/vendor/triton_plain.h"

namespace attest::vendor::triton {

inline const attest_kernel* kernel_named(const std::string& name) {
  const attest_plugin* const plugin = attest_plugin_get();
  for (std::uint32_t n = 0; n < plugin->kernel_count; ++n) {
    if (plugin->kernels[n]->name == name) return plugin->kernels[n];
  }
  return nullptr;
}

inline attest_tensor dense(void* data, attest_dtype dtype, Sizes shape, std::int64_t size) {
  attest_tensor t = {};
  t.data = data;
  t.dtype = dtype;
  std::int64_t step = 1;
  for (int axis = 3; axis >= 0; --axis) {
    t.shape[axis] = shape[static_cast<std::size_t>(axis)];
    t.stride[axis] = step;
    step *= t.shape[axis];
  }
  t.capacity_bytes = static_cast<std::uint64_t>(step * size);
  return t;
}

struct PluginCall {
  Inputs in{Sizes{2, 2, 128, 32}};
  Tensor o = in.q.empty_like();
  std::vector<float> lse = std::vector<float>(512, std::nanf(""));
  attest_mask mask = {};
  attest_problem problem = {};
  attest_inputs inputs = {};
  attest_outputs outputs = {};
  char message[256] = "";

  PluginCall() {
    mask.struct_size = sizeof(mask);
    mask.kind = ATTEST_MASK_BAND;
    mask.left = ATTEST_UNBOUNDED;
    problem.struct_size = sizeof(problem);
    problem.dtype = ATTEST_F16;
    problem.batch = problem.query_heads = problem.key_heads = 2;
    problem.query_len = problem.key_len = 128;
    problem.head_dim = problem.value_dim = 32;
    problem.scale = 0.3;
    problem.mask = &mask;
    problem.mask_count = 1;
    const Sizes shape = {2, 2, 128, 32};
    inputs.struct_size = sizeof(inputs);
    inputs.q = dense(in.q.data(), ATTEST_F16, shape, 2);
    inputs.k = dense(in.k.data(), ATTEST_F16, shape, 2);
    inputs.v = dense(in.v.data(), ATTEST_F16, shape, 2);
    outputs.struct_size = sizeof(outputs);
    outputs.o = dense(o.data(), ATTEST_F16, shape, 2);
    outputs.lse = dense(lse.data(), ATTEST_F32, {2, 2, 128, 1}, 4);
  }
  attest_status run(const std::string& name) {
    attest_context context = {};
    context.struct_size = sizeof(context);
    context.threads = 1;
    context.message = message;
    context.message_bytes = sizeof(message);
    const attest_kernel* const kernel = kernel_named(name);
    return kernel->forward(kernel, &problem, &inputs, &outputs, &context);
  }
};

}  // namespace attest::vendor::triton
