// What both passes stand on: the engine, rows of tensors as tiles, and a worker that has both.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "impl/elements.h"
#include "impl/engine/engine.h"
#include "impl/sequence.h"
#include "impl/tile.h"
#include "impl/worker.h"

namespace attest::impl {

// The engine that the kernel is named after.
template <class R>
const Engine<R>& engine_of(const Call& call) {
  for (const Engine<R>& engine : engines<R>()) {
    if (call.target.empty() || engine.target == call.target) return engine;
  }
  throw std::runtime_error("the processor does not have " + std::string(call.target));
}

// The distance between rows of scores: no power of two, lest all rows share a few lines of the
// cache.
template <class R>
std::int64_t score_stride(const Engine<R>& engine, std::int64_t keys) {
  return engine.padded(keys) + 16;
}

// Some rows of a plane, as the engine takes and gives them.
template <class T>
Stored stored(const Plane<const T>& plane, std::int64_t rows, std::int64_t channels) {
  return {plane.data, kTypeOf<T>, rows, channels, plane.position_stride, plane.channel_stride};
}
template <class T>
StoredResult result(const Plane<T>& plane, std::int64_t rows, std::int64_t channels) {
  return {plane.data, kTypeOf<T>, rows, channels, plane.position_stride, plane.channel_stride};
}

// The same as a tile: where it lies if it is one already, else a copy in `memory`.
template <class T, class R = Real<T>>
Tile<R> as_tile(const Engine<R>& engine, const Plane<const T>& plane, std::int64_t rows,
                std::int64_t channels, R* memory) {
  if constexpr (std::is_same_v<T, R>) {
    if (plane.channel_stride == 1) {
      return {const_cast<R*>(plane.data), rows, channels, plane.position_stride};
    }
  }
  const Tile<R> tile = {memory, rows, channels, channels};
  engine.load(stored(plane, rows, channels), tile);
  return tile;
}

// Some keys of K or V; those on pages, and those that are stored in 8 bits, are gathered first.
template <class T, class R = Real<T>>
Stored gather_keys(const Call& call, const attest_tensor& tensor, std::int64_t b,
                   std::int64_t key_head, std::int64_t begin, std::int64_t keys, R* page) {
  const std::int64_t channels = tensor.shape[3];
  if (call.problem.page_size == 0 && !is_stored(tensor.dtype)) {
    return stored(key_plane<const T>(call, tensor, b, key_head).from(begin), keys, channels);
  }
  load_keys<T>(call, tensor, b, key_head, begin, keys, page);
  return {page, kTypeOf<R>, keys, channels, channels, 1};
}

inline bool gathers_keys(const attest_problem& p) {
  return p.page_size > 0 || is_stored(p.k_dtype) || is_stored(p.v_dtype);
}

template <class R>
Tile<R> rows_of(const Tile<R>& tile, std::int64_t begin, std::int64_t rows) {
  return {tile.row(begin), rows, tile.columns, tile.stride};
}

// What one worker has: the engine and its tiles.
template <class R, class Tiles>
struct Worker : WorkerState {
  Worker(const Call& the_call, int the_number, const Tiles& the_tiles)
      : WorkerState(the_call, the_number), engine(engine_of<R>(call)), tile(the_tiles) {}

  const Engine<R>& engine;
  Tiles tile;
};

}  // namespace attest::impl
