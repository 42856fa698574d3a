// The program that the operator makes for a grid of cores: its shape in tiles, its formats, its
// circular buffers, and what its steps take. Reader, compute and writer (kernels.h) are its
// kernels.
#pragma once

#include <cstdint>
#include <functional>

#include "impl/vendor/wormhole/noc.h"
#include "impl/vendor/wormhole/schedule.h"
#include "impl/vendor/wormhole/tensor.h"

namespace attest::vendor::wormhole {

// What the seed compares; the operator's users have no say in it.
struct Choices {
  bool balanced = true;            // a low and a high chunk of Q for each core, else neighbours
  bool mask_diagonal_only = true;  // else the causal mask is read for all chunks that are computed
  int chunks_in_buffer = 2;        // of Q, K, V and the mask; 1: nothing is read ahead
  bool multicast_keys = false;     // one core reads K and V for all that need the same
  std::function<void(const char* buffer, std::int64_t query_chunk, std::int64_t key_chunk)> on_read;
};

// Formats on the way from Q, K and V to the output, and how exactly products are computed.
struct Precision {
  DataFormat intermediate;  // of scores, of the sums of P V and of a row's statistics
  MathFidelity fidelity;
  bool fp32_dest_acc_en;
};

// What the compute kernel's steps take for one chunk of Q and one of K and V.
struct StepCycles {
  Cycles scores, mask, softmax, values, rescale;
  Cycles finish;  // once for a chunk of Q
};

struct Program {
  SdpaShape shape;
  std::int64_t head_dim_tiles;
  std::int64_t key_len;  // without padding
  DataFormat input;      // of Q, K, V and the output
  bool given_mask;       // else none but the causal one
  Precision precision;
  Choices choices;

  std::int64_t query_tiles() const { return shape.query_chunk_tiles * head_dim_tiles; }
  std::int64_t key_tiles() const { return shape.key_chunk_tiles * head_dim_tiles; }
  std::int64_t score_tiles() const { return shape.query_chunk_tiles * shape.key_chunk_tiles; }
  // Keys beyond `key_len` are in the last chunk, if anywhere.
  bool pads_keys() const { return key_len < shape.key_chunks * shape.key_chunk_tiles * kTile; }
  // Whether something is added to the scores of these chunks.
  bool masks(std::int64_t query_chunk, std::int64_t key_chunk) const;
  // Whether that comes from DRAM: padding is made by the reader.
  bool reads_mask() const { return given_mask || shape.is_causal; }
  StepCycles step_cycles() const;
};

// P as it enters P V, and is summed: what the matrix unit takes.
constexpr DataFormat kWeights = DataFormat::Float16_b;
constexpr DataFormat kMask = DataFormat::Float16_b;

}  // namespace attest::vendor::wormhole
