// FlashAttention-2 in bf16 on matrix tiles (T. Dao, arXiv 2307.08691): every product takes bf16 and
// adds up in f32, so P and dS are rounded to bf16 before theirs; the softmax is computed in f32.
//
// While the processor's vectors work on the rows of one block of scores, its tiles compute the
// scores of the next block and use the weights of the one before. All features of attention come
// from the headers that the other kernels share; formats other than bf16 are refused.
#pragma once

#include <string>

#include "impl/amx/steps.h"
#include "impl/plugin.h"

namespace attest::impl::amx {

ArithmeticDeclaration tile_arithmetic(const std::string& dtype);
ScheduleDeclaration tile_schedule();
MemoryDeclaration tile_memory();
std::uint64_t tile_workspace(const Call& call, bool backward);
void tile_forward(const Call& call, const Steps& steps);
void tile_backward(const Call& call, const Steps& steps);

// The kernel on the tiles of a machine.
template <const Steps& (*kSteps)()>
KernelCode tile_kernel(const std::string& name) {
  return {
      .name = name,
      .arithmetic = &tile_arithmetic,
      .workspace = &tile_workspace,
      .forward = [](const Call& call) { tile_forward(call, kSteps()); },
      .backward = [](const Call& call) { tile_backward(call, kSteps()); },
      .schedule = &tile_schedule,
      .memory = &tile_memory,
      .dtypes = {"bf16"},
  };
}

}  // namespace attest::impl::amx
