#include "impl/vendor/wormhole/schedule.h"

#include <algorithm>
#include <map>

namespace attest::vendor::wormhole {
namespace {

// The part-th of `parts` runs of ceil(size / parts) numbers below `size`; the last may be shorter,
// or empty.
std::vector<std::int64_t> run_of(std::int64_t size, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = (size + parts - 1) / parts;
  std::vector<std::int64_t> run;
  for (std::int64_t n = part * each; n < std::min(size, (part + 1) * each); ++n) run.push_back(n);
  return run;
}

// As many of the first chunks, from the front, as of the last, from the back.
std::vector<std::int64_t> low_and_high(std::int64_t chunks, std::int64_t parts, std::int64_t part) {
  const std::int64_t half = chunks / parts / 2;
  std::vector<std::int64_t> mine;
  for (std::int64_t n = 0; n < half; ++n) mine.push_back(part * half + n);
  for (std::int64_t n = 0; n < half; ++n) mine.push_back(chunks - 1 - (part * half + n));
  return mine;
}

}  // namespace

std::int64_t SdpaShape::key_chunks_of(std::int64_t query_chunk) const {
  if (!is_causal) return key_chunks;
  const std::int64_t end = (query_chunk + 1) * query_chunk_tiles;
  return std::min(key_chunks, (end + key_chunk_tiles - 1) / key_chunk_tiles);
}

bool SdpaShape::on_diagonal(std::int64_t query_chunk, std::int64_t key_chunk) const {
  return is_causal && (key_chunk + 1) * key_chunk_tiles > query_chunk * query_chunk_tiles;
}

std::vector<CoreWork> split_work(const SdpaShape& shape, int cores, bool balanced) {
  const std::int64_t batch_parts = std::min<std::int64_t>(shape.batch, cores);
  const std::int64_t head_parts = std::min(cores / batch_parts, shape.query_heads);
  const std::int64_t chunk_parts = std::min(cores / (batch_parts * head_parts), shape.query_chunks);
  const bool comes_out_even = shape.query_chunks % (2 * chunk_parts) == 0;

  std::vector<CoreWork> work;
  for (std::int64_t core = 0; core < batch_parts * head_parts * chunk_parts; ++core) {
    const std::int64_t part = core % chunk_parts;
    CoreWork of_core = {run_of(shape.batch, batch_parts, core / chunk_parts / head_parts),
                        run_of(shape.query_heads, head_parts, core / chunk_parts % head_parts),
                        balanced && shape.is_causal && comes_out_even
                            ? low_and_high(shape.query_chunks, chunk_parts, part)
                            : run_of(shape.query_chunks, chunk_parts, part)};
    const bool idle =
        of_core.batches.empty() || of_core.heads.empty() || of_core.query_chunks.empty();
    if (!idle) work.push_back(std::move(of_core));
  }
  return work;
}

std::vector<Multicast> multicasts(const SdpaShape& shape, const std::vector<CoreWork>& work,
                                  bool multicast) {
  std::vector<Multicast> of_core(work.size());
  if (!multicast) return of_core;
  // What a core reads of K and V: batches, key heads, and how far it goes in each pass over them.
  using Reads = std::vector<std::vector<std::int64_t>>;
  std::map<Reads, std::vector<std::size_t>> groups;
  for (std::size_t core = 0; core < work.size(); ++core) {
    Reads reads = {work[core].batches, {}, {}};
    for (const std::int64_t head : work[core].heads) reads[1].push_back(shape.key_head(head));
    for (const std::int64_t chunk : work[core].query_chunks) {
      reads[2].push_back(shape.key_chunks_of(chunk));
    }
    groups[reads].push_back(core);
  }
  for (const auto& group : groups) {
    for (const std::size_t core : group.second) {
      of_core[core] = {.group = static_cast<std::int64_t>(group.second.size()),
                       .is_leader = core == group.second.front()};
    }
  }
  return of_core;
}

}  // namespace attest::vendor::wormhole
