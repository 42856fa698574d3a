// Where the operators' tensors have their rows, by the name of the layout:
//
//   BSH, BSND   batch, position, head and channel as one axis H, or apart
//   SBH         position, batch, H
//   BNSD        batch, head, position, channel
//   TND         positions of all sequences one after the other, head, channel
//
// B, N, S, D and T as Ascend has them: N1, S1 of the query, N2, S2 of key and value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attest::vendor::ascend {

using std::int64_t;

// Sizes that a shape says; n and d of the layouts with an axis H come of head_num.
struct Sizes {
  int64_t b = 0, n = 0, s = 0, d = 0;  // TND: s is T, b is 1
};

// Of a shape in a layout that the device has. `d` is given for the keys of BSH and SBH, whose head
// count is H / D; else `head_num` is. Throws std::invalid_argument with the reason.
Sizes sizes_of_query(const std::string& layout, const std::vector<int64_t>& shape,
                     int64_t head_num);
Sizes sizes_of_key(const std::string& layout, const std::vector<int64_t>& shape, int64_t d);

// Steps between rows, in elements.
struct Steps {
  int64_t batch, head, position;

  int64_t row(int64_t b, int64_t n, int64_t s) const { return b * batch + n * head + s * position; }
};
Steps steps_of(const std::string& layout, const Sizes& sizes);

// The statistics: [B,N,S,8], or [T,N,8]; each number stands 8 times, a block of 32 bytes.
inline constexpr int64_t kStatistics = 8;
Steps steps_of_statistics(const std::string& layout, const Sizes& query);

// A sequence: the batch element, and where its queries and keys begin (TND).
struct Sequence {
  int64_t batch = 0, query_start = 0, key_start = 0, s1 = 0, s2 = 0;
};

}  // namespace attest::vendor::ascend
