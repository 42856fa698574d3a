// Another problem of the same sizes: each batch element has the lengths and tables of the next one.
// What a kernel has taken from them for one call is wrong in another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../kernel.h"
#include "mirror.h"

namespace attest::device {

namespace detail {

// Element [b, h, s, d] becomes what [b + 1, h, s, d] was, and those of the last what the first's
// were.
inline void turn(const attest_tensor& t) {
  const std::size_t bytes = attest::detail::bytes_of(t.dtype);
  auto* const data = static_cast<unsigned char*>(t.data);
  if (!data || bytes == 0) return;
  const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    return data + static_cast<std::int64_t>(bytes) *
                      (b * t.stride[0] + h * t.stride[1] + s * t.stride[2] + d * t.stride[3]);
  };
  std::uint64_t first = 0;
  for (std::int64_t h = 0; h < t.shape[1]; ++h) {
    for (std::int64_t s = 0; s < t.shape[2]; ++s) {
      for (std::int64_t d = 0; d < t.shape[3]; ++d) {
        std::memcpy(&first, at(0, h, s, d), bytes);
        for (std::int64_t b = 0; b + 1 < t.shape[0]; ++b) {
          std::memcpy(at(b, h, s, d), at(b + 1, h, s, d), bytes);
        }
        std::memcpy(at(t.shape[0] - 1, h, s, d), &first, bytes);
      }
    }
  }
}

// Where sequences begin, from 0 on: with their lengths turned.
inline void turn_starts(const attest_tensor& t) {
  if (!t.data) return;
  const View<std::int64_t> starts(t);
  const std::int64_t count = t.shape[0] - 1, first = starts(1, 0, 0, 0),
                     end = starts(count, 0, 0, 0);
  for (std::int64_t b = 1; b < count; ++b) starts(b, 0, 0, 0) = starts(b + 1, 0, 0, 0) - first;
  starts(count, 0, 0, 0) = end;
}

}  // namespace detail

// In an image of that call, what lies there of its lengths and tables.
inline void turn_tables(const Layout& layout, const attest::Call& host, Bytes& image) {
  const Translated there(host,
                         [&](const void* data) { return layout.in_image(image.data(), data); });
  const attest_problem& p = there.problem;
  if (p.batch < 2) return;
  const auto turn = [&](const attest_tensor& t) {
    if (t.shape[0] == p.batch) detail::turn(t);
  };
  for (const attest_mask& node : there.nodes) turn(node.table), turn(node.table2);
  turn(p.query_lens), turn(p.key_lens), turn(p.page_table);
  detail::turn_starts(p.cu_query_lens), detail::turn_starts(p.cu_key_lens);
}

}  // namespace attest::device
