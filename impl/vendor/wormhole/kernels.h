// The three kernels of one core, which run at the same time and meet at its circular buffers:
//
//   reader  (RISC0)    for each chunk of Q: Q, and for each chunk of keys K, the mask, V
//   compute (RISC2-4)  the online softmax over the chunks of K and V
//   writer  (RISC1)    each chunk of the output
#pragma once

#include "impl/vendor/wormhole/circular_buffer.h"
#include "impl/vendor/wormhole/program.h"
#include "impl/vendor/wormhole/tiles.h"

namespace attest::vendor::wormhole {

// Tensors in DRAM.
struct Operands {
  const Tensor* q;
  const Tensor* k;
  const Tensor* v;
  const Tensor* attn_mask;  // may be null
  Tensor* output;
};

struct Buffers {
  Buffers(const Program& program, device::Stages& stages, device::Memory& l1);
  CircularBuffer q, k, v, mask, output;
};

void reader(const Program& program, const CoreWork& work, const Operands& operands,
            const Multicast& multicast, Buffers& cb, DataMover& mover);
void writer(const Program& program, const CoreWork& work, const Operands& operands, Buffers& cb,
            DataMover& mover);

// FlashAttention-2 on chunks: what a chunk of Q has seen so far is (o / sum), with weights relative
// to `maximum`.
class ComputeKernel {
 public:
  ComputeKernel(const Program& program, float scale, device::Memory& l1);
  void run(const CoreWork& work, Buffers& cb, device::Unit& unit);

 private:
  void key_chunk(Buffers& cb, device::Unit& unit, std::int64_t number, bool masked);
  void scores(const std::uint8_t* key_chunk);
  void add_mask(const std::uint8_t* mask_chunk);
  void softmax();
  void accumulate();

  const Program& program_;
  const StepCycles cycles_;
  const MatrixUnit matrix_;
  const float scale_;
  std::int64_t masks_taken_ = 0;
  bool first_ = true;  // chunk of keys of this chunk of Q
  std::vector<float> query_;
  Block scalars_, scores_, weights_;
  Block maximum_, new_maximum_, sum_, new_sum_, factor_;  // of each row, in the first column
  Block output_, new_output_;
};

}  // namespace attest::vendor::wormhole
