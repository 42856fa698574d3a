// FlashAttention-2 on tiles (T. Dao, arXiv 2307.08691, Algorithms 1 and 2; "line n" below counts
// theirs), forward and backward, on the steps of the tile engine.
//
// This page is what a kernel of this algorithm needs; the algorithm is in parts, to be read in this
// order:
//
//   flash/tiles.h            the engine, rows of tensors as tiles, a worker
//   flash/pieces.h           the pieces of a block that a mask leaves
//   flash/forward.h          Algorithm 1, for a query block
//   flash/gradient.h         a key block, a query block, and the gradient of their scores
//   flash/backward.h         Algorithm 2, for a key head
//   flash/backward_evenly.h  the same, dealt by blocks of scores
//   flash/bias_gradient.h    dBias, in a pass of its own
//   flash.cpp                what is declared; both passes
//
// What the paper does not have stands between its lines: softcap, bias and mask on a tile of S,
// dropout on a tile of P; a sink is where a row's softmax begins. Memory grows with the lengths
// only: nothing of size Sq x Sk exists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "impl/plugin.h"

namespace attest::impl {

// How the blocks are dealt to the workers.
enum class Dealing {
  contiguous,  // neighbouring query blocks forward, whole key heads backward
  balanced,    // query blocks low with high forward, blocks of scores evenly backward
};

// B_r and B_c: multiples of what the engine computes at a time, so large that the softmax has long
// rows, and no larger than the second-level cache.
constexpr std::int64_t kQueryBlock = 96;
constexpr std::int64_t kKeyBlock = 256;      // at least
constexpr std::int64_t kLongKeyBlock = 512;  // where heads are narrow
constexpr std::int64_t kNarrow = 64;

inline std::int64_t forward_key_block(const attest_problem& p) {
  return std::max(p.head_dim, p.value_dim) <= kNarrow ? kLongKeyBlock : kKeyBlock;
}

// What a kernel declares.
template <Dealing dealing>
ArithmeticDeclaration flash_arithmetic(const std::string& dtype);
template <Dealing dealing>
ScheduleDeclaration flash_schedule();
template <Dealing dealing>
MemoryDeclaration flash_memory();

// The bytes that each worker takes.
std::uint64_t flash_workspace(const Call& call, bool backward, Dealing dealing);

// Both passes in the element type of the call, compiled once for all kernels.
void flash_forward(const Call& call, Dealing dealing);
void flash_backward(const Call& call, Dealing dealing);

// A kernel of this algorithm.
template <Dealing kDealing>
KernelCode flash_kernel(const char* name) {
  return {
      .name = name,
      .arithmetic = &flash_arithmetic<kDealing>,
      .workspace = [](const Call& call,
                      bool backward) { return flash_workspace(call, backward, kDealing); },
      .forward = [](const Call& call) { flash_forward(call, kDealing); },
      .backward = [](const Call& call) { flash_backward(call, kDealing); },
      .schedule = &flash_schedule<kDealing>,
      .memory = &flash_memory<kDealing>,
  };
}

}  // namespace attest::impl
