// FlashAttention-2 on tiles (T. Dao, arXiv 2307.08691, Algorithms 1 and 2; "line n" below counts
// theirs), forward and backward, on the steps of the tile engine.
//
// This page is what a kernel of this algorithm needs; the algorithm is in parts, to be read in this
// order:
//
//   flash/tiles.h            the engine, rows of tensors as tiles, a worker
//   flash/pieces.h           the pieces of a block that a mask leaves
//   flash/forward.h          Algorithm 1, for a query block
//   flash/forward_evenly.h   the same, dealt by scores
//   flash/gradient.h         a key block, a query block, and the gradient of their scores
//   flash/backward.h         Algorithm 2, for a key head, by one worker or by all together
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
  contiguous,  // neighbouring query blocks forward; backward whole key heads, and the key blocks of
               // those that are too few to keep all busy
  balanced,    // scores evenly
};

// In which order the key blocks of a query block come, forward.
enum class Visits { upwards, downwards };

struct Form {
  Dealing dealing = Dealing::contiguous;
  Visits visits = Visits::upwards;
};
constexpr Form kUpwards = {}, kBalanced = {.dealing = Dealing::balanced},
               kDownwards = {.visits = Visits::downwards};

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
template <Form form>
ArithmeticDeclaration flash_arithmetic(const std::string& dtype);
template <Form form>
ScheduleDeclaration flash_schedule();
template <Form form>
MemoryDeclaration flash_memory();

// The bytes that each worker takes, and those that they share.
std::uint64_t flash_workspace(const Call& call, bool backward, Form form);
std::uint64_t flash_shared_workspace(const Call& call, bool backward, Form form);

// Both passes in the element type of the call, compiled once for all kernels.
void flash_forward(const Call& call, Form form);
void flash_backward(const Call& call, Form form);

// What the backward pass gives besides dQ, dK and dV: dBias and dSink, where they are wanted.
void flash_further_gradients(const Call& call, Form form);

// A kernel of this algorithm.
template <Form kForm>
KernelCode flash_kernel(const char* name) {
  return {
      .name = name,
      .arithmetic = &flash_arithmetic<kForm>,
      .workspace = [](const Call& call,
                      bool backward) { return flash_workspace(call, backward, kForm); },
      .forward = [](const Call& call) { flash_forward(call, kForm); },
      .backward = [](const Call& call) { flash_backward(call, kForm); },
      .schedule = &flash_schedule<kForm>,
      .memory = &flash_memory<kForm>,
      .shared_workspace =
          [](const Call& call, bool backward) {
            return flash_shared_workspace(call, backward, kForm);
          },
      .takes_stored = true,
  };
}

}  // namespace attest::impl
