// What every worker of a kernel on tiles has, whatever its tiles are.
#pragma once

#include <cstdint>
#include <utility>

#include "impl/call.h"
#include "impl/dropout.h"
#include "impl/mask.h"

namespace attest::impl {

struct WorkerState {
  WorkerState(const Call& the_call, int the_number)
      : call(the_call), number(the_number), mask(call), dropout(call) {}

  // Forward: whether K and V of a key head are still to be packed; after that they are.
  bool has_to_pack(std::int64_t b, std::int64_t key_head) {
    const std::int64_t head = b * call.problem.key_heads + key_head;
    return std::exchange(packed_head_, head) != head;
  }

  const Call& call;
  int number;
  BlockMask mask;
  Dropout dropout;
  bool values_finite = true;  // all of V that is packed

 private:
  std::int64_t packed_head_ = -1;  // counted over the batch
};

}  // namespace attest::impl
