// Where the operators keep what they have in global memory for themselves: the results of products
// on their way to the vector cores and back, and the sums of gradients in f32.
//
// Each part begins at a multiple of 512 bytes, as the seed has it in the end; or just behind the
// one before, as in the seed's operator before its fourth optimisation.
#pragma once

#include <cstdint>

#include "impl/vendor/ascend/atlas_a2.h"

namespace attest::vendor::ascend {

inline constexpr int64_t kAddressAlign = 512;     // ADDR_ALIGN_SIZE
inline constexpr int64_t kSyncGlobal = 16 * kKb;  // SYNC_GLOBAL_WORKSPACE_SIZE
inline constexpr int64_t kSyncOfCore = 32;        // what the cores need of that

// What is asked for.
struct WorkspaceNeeds {
  int cores = 1;
  int64_t launch = 0;      // floats of the blocks of a launch: cubeBaseMN
  int slots = 2;           // 2: ping-pong
  int64_t element = 2;     // bytes of the operator's format
  int64_t query_sums = 0;  // floats of dq, or of the output of one core's row of blocks
  int64_t key_sums = 0;    // of each of dk and dv
  bool gradients = false;
  bool aligned = true;
};

// Offsets in bytes. Of a core: the start, the core's number times its size, a slot's times its own.
struct Workspace {
  struct Part {
    int64_t start = 0, core_bytes = 0, slot_bytes = 0;
    int64_t at(int core, int64_t slot) const {
      return start + core * core_bytes + slot * slot_bytes;
    }
  };
  Gm base;
  int64_t dq = 0, dk = 0, dv = 0;  // of all cores
  // Backward: mm1 holds dy v^T, mm2 the scores, sub what Sub made of mm1, drop the dropped P, mul
  // dS. Forward: mm2 the scores, drop P, mm1 P v, sub the output so far.
  Part mm1, mm2, sub, drop, mul;
  int64_t bytes = 0;

  Gm of(const Part& part, int core, int64_t slot) const { return base + part.at(core, slot); }
};

Workspace lay_out(const WorkspaceNeeds& needs);

}  // namespace attest::vendor::ascend
