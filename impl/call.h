// What a kernel is called with, once the glue in plugin.cpp has checked it: every tensor has its
// shape and its memory, every feature asked for is one that the kernels have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "spec/attest_plugin.h"

namespace attest::impl {

class MadeMask;

// How many queries and keys of a batch element are real (MASK-5, MASK-6).
struct Lengths {
  std::int64_t query;
  std::int64_t key;
};

// A rectangle of the score matrix.
struct Block {
  std::int64_t query_begin, query_end;
  std::int64_t key_begin, key_end;

  std::int64_t queries() const { return query_end - query_begin; }
  std::int64_t keys() const { return key_end - key_begin; }
};

// The strides of a tensor, with 0 wherever they mean nothing, so that they can be used blindly.
struct UsedStrides {
  explicit UsedStrides(const attest_tensor& tensor) {
    const bool empty = std::any_of(tensor.shape, tensor.shape + 4, [](auto n) { return n == 0; });
    for (int axis = 0; axis < 4; ++axis) {
      axes[axis] = empty || tensor.shape[axis] == 1 ? 0 : tensor.stride[axis];
    }
  }
  std::int64_t axes[4];
};

// The passes over the scores that kernels report: dBias, where it is wanted, has one of its own.
enum Pass { kForwardPass = 0, kGradientPass = 1, kBiasPass = 2 };

// How many query heads read one key head (HEAD-1).
inline std::int64_t group_of(const attest_problem& p) {
  return p.key_heads == 0 ? 0 : p.query_heads / p.key_heads;
}

struct Call {
  attest_problem problem = {};
  std::vector<attest_mask> mask = {};  // the nodes, children first; none: full
  std::vector<Lengths> lengths = {};   // one a batch element
  // Packed: where the sequence of each batch element begins. Else empty.
  std::vector<std::int64_t> query_starts = {}, key_starts = {};
  attest_inputs inputs = {};
  attest_outputs outputs = {};
  attest_context context = {};
  int workers = 1;               // threads that the kernel shall use
  std::string_view target = {};  // the instruction set that it shall use; empty: the fastest
  // The mask element by element, where a kernel made it beforehand; null: by blocks, on demand.
  const MadeMask* whole_mask = nullptr;

  std::int64_t group_size() const { return group_of(problem); }

  // How many rows and keys of a batch element have a place in the tensors: padding has one, unless
  // the sequences are packed or paged.
  std::int64_t stored_queries(std::int64_t batch) const {
    return query_starts.empty() ? problem.query_len : lengths_of(batch).query;
  }
  std::int64_t stored_keys(std::int64_t batch) const {
    const bool padded = key_starts.empty() && problem.page_size == 0;
    return padded ? problem.key_len : lengths_of(batch).key;
  }
  const Lengths& lengths_of(std::int64_t batch) const {
    return lengths[static_cast<std::size_t>(batch)];
  }

  // Tells the host, if it wants to know, that a worker computes a block: in the n-th pass of a
  // backward call, or, as pass 0, in a forward call.
  void report(std::int64_t worker, std::int64_t batch, std::int64_t head, const Block& block,
              bool masked, int pass) const {
    if (!context.trace) return;
    const attest_block seen = {
        sizeof(attest_block), worker,          batch,         head,   block.query_begin,
        block.query_end,      block.key_begin, block.key_end, masked, pass};
    context.trace(context.trace_context, &seen);
  }
};

}  // namespace attest::impl
