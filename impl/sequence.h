// Where the queries and keys of a batch element lie: padded to a common length, packed one after
// the other (LAYOUT-5), or, the keys, on pages (PAGE-1). Beyond this header, queries and keys only
// have their number within the batch element.
#pragma once

#include <algorithm>
#include <cstdint>

#include "impl/call.h"
#include "impl/stored.h"
#include "impl/tile.h"

namespace attest::impl {

// One head of Q, O, LSE or their gradients; position 0 is the first query of the batch element.
template <class T>
Plane<T> query_plane(const Call& call, const attest_tensor& tensor, std::int64_t batch,
                     std::int64_t head) {
  if (call.query_starts.empty()) return Plane<T>(tensor, batch, head);
  return Plane<T>(tensor, 0, head).from(call.query_starts[static_cast<std::size_t>(batch)]);
}

// The same of K, V or their gradients, which are not paged.
template <class T>
Plane<T> key_plane(const Call& call, const attest_tensor& tensor, std::int64_t batch,
                   std::int64_t head) {
  if (call.key_starts.empty()) return Plane<T>(tensor, batch, head);
  return Plane<T>(tensor, 0, head).from(call.key_starts[static_cast<std::size_t>(batch)]);
}

inline std::int64_t page_of(const Call& call, std::int64_t batch, std::int64_t entry) {
  const attest_tensor& table = call.problem.page_table;
  const UsedStrides stride(table);
  return static_cast<const std::int32_t*>(
      table.data)[batch * stride.axes[0] + entry * stride.axes[1]];
}

// Calls visit(plane, position, count, done) for each run of neighbours among `count` keys from
// `begin` on: they are `count` positions of the plane from `position` on, after `done` others.
template <class T, class Visit>
void for_each_run(const Call& call, const attest_tensor& tensor, std::int64_t batch,
                  std::int64_t head, std::int64_t begin, std::int64_t keys, const Visit& visit) {
  const std::int64_t page_size = call.problem.page_size;
  if (page_size == 0) {
    visit(key_plane<const T>(call, tensor, batch, head), begin, keys, std::int64_t{0});
    return;
  }
  for (std::int64_t done = 0; done < keys;) {
    const std::int64_t key = begin + done, slot = key % page_size;
    const std::int64_t count = std::min(page_size - slot, keys - done);
    visit(Plane<const T>(tensor, page_of(call, batch, key / page_size), head), slot, count, done);
    done += count;
  }
}

// tile[rows, channels] = the rows of Q from `begin` on.
template <class T, class R = Real<T>>
void load_queries(const Call& call, std::int64_t batch, std::int64_t head, std::int64_t begin,
                  std::int64_t rows, R* tile) {
  const attest_tensor& q = call.inputs.q;
  const std::int64_t channels = q.shape[3];
  if constexpr (std::is_same_v<R, float>) {
    if (is_stored(q.dtype)) {
      const auto scales = query_plane<const float>(call, call.inputs.q_scale, batch, head);
      return with_stored_type(q.dtype, [&](auto e) {
        load_as(query_plane<const decltype(e)>(call, q, batch, head), scales, begin, rows, channels,
                channels_of_scale(q, call.inputs.q_scale), tile);
      });
    }
  }
  load(query_plane<const T>(call, q, batch, head), begin, rows, channels, tile);
}

// The same of keys of K or V that are stored in 8 bits.
inline void load_stored_keys(const Call& call, const attest_tensor& tensor, std::int64_t batch,
                             std::int64_t head, std::int64_t begin, std::int64_t keys,
                             float* tile) {
  const std::int64_t channels = tensor.shape[3], page_size = call.problem.page_size;
  const attest_tensor& scale = key_scales(call, tensor);
  with_stored_type(tensor.dtype, [&](auto e) {
    using E = decltype(e);
    for_each_run<E>(call, tensor, batch, head, begin, keys,
                    [&](const Plane<const E>& plane, std::int64_t position, std::int64_t count,
                        std::int64_t done) {
                      const auto scales =
                          page_size == 0
                              ? key_plane<const float>(call, scale, batch, head)
                              : Plane<const float>(
                                    scale, page_of(call, batch, (begin + done) / page_size), head);
                      load_as(plane, scales, position, count, channels,
                              channels_of_scale(tensor, scale), tile + done * channels);
                    });
  });
}

// tile[keys, channels] = the keys of K or V from `begin` on.
template <class T, class R = Real<T>>
void load_keys(const Call& call, const attest_tensor& tensor, std::int64_t batch, std::int64_t head,
               std::int64_t begin, std::int64_t keys, R* tile) {
  const std::int64_t channels = tensor.shape[3];
  if constexpr (std::is_same_v<R, float>) {
    if (is_stored(tensor.dtype)) {
      return load_stored_keys(call, tensor, batch, head, begin, keys, tile);
    }
  }
  for_each_run<T>(
      call, tensor, batch, head, begin, keys,
      [&](const Plane<const T>& plane, std::int64_t position, std::int64_t count,
          std::int64_t done) { load(plane, position, count, channels, tile + done * channels); });
}

// dK and dV that are zero: beyond the length, and where no query head reads the key head.
template <class T>
void clear_unread_keys(const Call& call, std::int64_t b, std::int64_t key_head) {
  using R = Real<T>;
  const std::int64_t keys = call.group_size() == 0 ? 0 : call.lengths_of(b).key;
  const std::int64_t stored = call.stored_keys(b);
  const auto dk = key_plane<T>(call, call.outputs.dk, b, key_head);
  const auto dv = key_plane<T>(call, call.outputs.dv, b, key_head);
  if (dk.data) fill(dk, keys, stored, call.problem.head_dim, R(0));
  if (dv.data) fill(dv, keys, stored, call.problem.value_dim, R(0));
}

}  // namespace attest::impl
