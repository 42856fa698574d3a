// What the first of the two phases makes of a call: sizes, masks, tiling, workspace and the cores'
// shares. The second phase runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "impl/vendor/ascend/cube.h"
#include "impl/vendor/ascend/formats.h"
#include "impl/vendor/ascend/layout.h"
#include "impl/vendor/ascend/sparse.h"
#include "impl/vendor/ascend/workspace.h"

namespace attest::vendor::ascend {

// How blocks are dealt to the cores: by the rows of blocks of a head, ceil(rows / cores) to a core,
// or so that all have as many.
enum class Dealing { kByRows, kEvenly };

// The choices that the seed tunes, as it leaves them.
struct Tiling {
  int64_t base_m = 128, base_n = 128;  // a basic block: rows, columns
  int64_t blocks_at_once = 4;  // of a row, that a Matmul of the backward pass computes in a launch
  bool ahead = true;           // the cube core begins the next launch before it ends this one's
                               // products; then the workspace is a ping-pong of two
  bool next_round = true;      // the vector core does dropout and Sub of the next block before it
                               // waits for this one's scores
  bool aligned_workspace = true;  // at multiples of 512 bytes
  Dealing dealing = Dealing::kEvenly;
  int cores = kCores;
};

// A tensor of the operator: where it lies, and the steps between its rows.
struct Operand {
  Gm at;
  Steps steps{};

  Matrix matrix(int64_t first, int64_t rows, int64_t columns, DataType type) const {
    return {at + first * bytes_of(type), rows, columns, steps.position};
  }
};

struct Plan {
  DataType type = DataType::kFloat16;
  std::string layout;
  Sizes query, key;
  int64_t group = 1;  // N1 / N2
  std::vector<Sequence> sequences;
  float scale = 1, keep_prob = 1;
  bool invalid_rows = false;   // rows that see nothing are computed apart (inner_precise 2)
  bool numbers = true;         // false: the time alone
  std::vector<Sparse> sparse;  // one

  Operand q, k, v, out;    // attention_out, or attention_in of the backward pass
  Operand dy, dq, dk, dv;  // of the backward pass
  Operand softmax_max, softmax_sum;
  Gm drop_mask;  // bits of [N,S1,S2] of each batch element, one after the other
  bool has_drop_mask = false;
  std::vector<int64_t> drop_start;  // of each sequence, in bits

  Tiling tiling;
  Workspace workspace;

  const Sparse& masks() const { return sparse.front(); }
  int64_t row(const Operand& x, int64_t sequence, int64_t head, int64_t s) const {
    const Sequence& q_of = sequences[static_cast<std::size_t>(sequence)];
    return x.steps.row(q_of.batch, head, q_of.query_start + s);
  }
  int64_t key_row(const Operand& x, int64_t sequence, int64_t head, int64_t s) const {
    const Sequence& k_of = sequences[static_cast<std::size_t>(sequence)];
    return x.steps.row(k_of.batch, head, k_of.key_start + s);
  }
};

// Loads the bits of a block, rows of whole bytes; answers how to read them. The device has rows of
// bits begin at any bit, where S2 is no multiple of 8, and an adapter before the operator shifts
// them; here the load does.
VectorCore::Bits load_drop_bits(VectorCore& core, const Plan& plan, int64_t sequence, int64_t head,
                                const Block& block, std::byte* to);

}  // namespace attest::vendor::ascend
