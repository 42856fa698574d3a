// How Pallas runs a grid on a TensorCore: step after step, the blocks of the next one on their way
// while this one is computed.
//
// Each operand has a window of two slots in VMEM. A block is brought when its index differs from
// that of the step before; a step whose blocks are all there already brings nothing, which is why
// data_next of a step to be skipped names what will be needed next.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "impl/vendor/device/queue.h"
#include "impl/vendor/splash/mask_info.h"
#include "impl/vendor/splash/tensor_core.h"

namespace attest::vendor::splash {

template <class T>
class Window {
 public:
  Window(TensorCore& core, const std::string& name, std::int64_t elements)
      : slots_{core.vmem.take<T>(name, static_cast<std::size_t>(elements)),
               core.vmem.take<T>(name, static_cast<std::size_t>(elements))} {}

  // The slot that holds block `index`: where it is, or where `bring` puts it. The stage that brings
  // calls it; a slot is free again when the step before the last is over, which the queue of two
  // steps sees to.
  template <class Bring>
  int hold(std::int64_t index, const Bring& bring) {
    if (index != index_) {
      index_ = index;
      slot_ = 1 - slot_;
      bring(slots_[static_cast<std::size_t>(slot_)].data());
    }
    return slot_;
  }
  const T* at(int slot) const { return slots_[static_cast<std::size_t>(slot)].data(); }

 private:
  std::array<device::Memory::Region<T>, 2> slots_;
  std::int64_t index_ = -1;
  int slot_ = 0;
};

// A table of a mask info in scalar memory, in as many bytes as it was cut down to.
class ScalarTable {
 public:
  ScalarTable(TensorCore& core, const std::string& name, const BlockTable& table);
  std::int64_t at(std::int64_t head, std::int64_t row, std::int64_t column) const;

 private:
  std::int64_t rows_, columns_;
  std::int64_t itemsize_;
  device::Memory::Region<std::uint8_t> bytes_;
};

// What a step of a grid needs: a block of the operands that its mask info names, computed or not.
struct GridStep {
  std::int64_t block;  // of keys; of dK and dV of queries
  std::int64_t partial_block;
  bool should_run, should_not_mask;
};

// The three tables of an info, as a kernel reads them.
class NextNonzero {
 public:
  NextNonzero(TensorCore& core, const MaskInfo& info);
  GridStep operator()(std::int64_t head, std::int64_t row, std::int64_t column) const;

 private:
  std::int64_t heads_;
  ScalarTable data_next_, block_mask_;
  std::vector<ScalarTable> mask_next_;  // one or none
};

// Blocks of a line come in ascending order, for so they are listed; one that is not is of another
// mask's list.
class AscendingBlocks {
 public:
  void begin_line() { last_ = -1; }
  void run(std::int64_t block, std::int64_t blocks);

 private:
  std::int64_t last_ = -1;
};

// `bring(step)` answers the slots of a step, on a thread of its own; `compute(step, slots)` uses
// them.
template <class Slots, class Bring, class Compute>
void run_grid(TensorCore& core, std::int64_t steps, const Bring& bring, const Compute& compute) {
  device::Stages stages;
  device::Queue<Slots> queue(stages, core.compute.name + " grid", 2);
  stages.add([&] {
    for (std::int64_t step = 0; step < steps; ++step) {
      queue.reserve(core.dma_in.unit());
      Slots slots = bring(step);
      queue.push(core.dma_in.unit(), step, slots);
    }
  });
  stages.add([&] {
    for (std::int64_t step = 0; step < steps; ++step) {
      const Slots& slots = queue.front(core.compute, step);
      compute(step, slots);
      queue.pop(core.compute);
    }
  });
  stages.run();
}

}  // namespace attest::vendor::splash
