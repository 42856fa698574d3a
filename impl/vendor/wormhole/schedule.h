// Which core computes which chunks of Q: the output is split over batch, then heads, then chunks of
// the sequence.
//
// With a causal mask chunk n has n + 1 chunks of K and V to see, so that cores with neighbouring
// chunks are not equally busy. "Balanced", a core has as many of the first chunks as of the last:
//
//   8 chunks on 4 cores   contiguous   0 1 | 2 3 | 4 5 | 6 7    3, 7, 11, 15 chunks of K
//                         balanced     0 7 | 1 6 | 2 5 | 3 4    9, 9, 9, 9
#pragma once

#include <cstdint>
#include <vector>

#include "impl/vendor/wormhole/noc.h"

namespace attest::vendor::wormhole {

// What a program is made for.
struct SdpaShape {
  std::int64_t batch, query_heads, key_heads;
  std::int64_t query_chunks, key_chunks;            // of the padded sequence
  std::int64_t query_chunk_tiles, key_chunk_tiles;  // rows of tiles in each
  bool is_causal;

  // The key head of a query head: groups are contiguous.
  std::int64_t key_head(std::int64_t head) const { return head / (query_heads / key_heads); }
  // How many chunks of K and V a chunk of Q has to see; those beyond it are skipped.
  std::int64_t key_chunks_of(std::int64_t query_chunk) const;
  // Whether some of their scores are masked by the causal mask, others are not or may not be.
  bool on_diagonal(std::int64_t query_chunk, std::int64_t key_chunk) const;
};

// A core's own part of the output, which it computes in this order.
struct CoreWork {
  std::vector<std::int64_t> batches, heads, query_chunks;
};

// Calls visit(batch, head, query chunk) for all that a core has to compute, in order: reader,
// compute and writer each go through it by themselves.
template <class Visit>
void for_each_query_chunk(const CoreWork& work, const Visit& visit) {
  for (const std::int64_t batch : work.batches) {
    for (const std::int64_t head : work.heads) {
      for (const std::int64_t chunk : work.query_chunks) visit(batch, head, chunk);
    }
  }
}

// The work of all cores that have any. "Balanced" is done where it comes out even: as many chunks
// for each core, and two or more.
std::vector<CoreWork> split_work(const SdpaShape& shape, int cores, bool balanced);

// How each core gets K and V: cores that would read the same chunks in the same order are a group,
// of which the first reads for all. Without multicast each is a group of its own.
std::vector<Multicast> multicasts(const SdpaShape& shape, const std::vector<CoreWork>& work,
                                  bool multicast);

}  // namespace attest::vendor::wormhole
