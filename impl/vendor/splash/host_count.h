// What setting a kernel up costs the host, counted: operations, and bytes. The seed's figures are
// times of a Python program and of XLA; these are what both follow.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attest::vendor::splash {

struct HostCount {
  std::int64_t computed = 0;    // elements of masks that were made by comparing ids
  std::int64_t scanned = 0;     // elements that were looked at: is any set, are all?
  std::int64_t hashed = 0;      // bytes, of masks and blocks that are keys of dictionaries
  std::int64_t mask_bytes = 0;  // held as long as the masks are
  std::int64_t info_bytes = 0;  // held as long as the kernel is
  // Of the largest thing that was made for a look and let go: a block of a mask, or a copy of what
  // is hashed.
  std::int64_t temporary_bytes = 0;

  std::int64_t operations() const { return computed + scanned + hashed; }
  // At one time.
  std::int64_t bytes() const { return mask_bytes + info_bytes + temporary_bytes; }

  void hold_for_a_while(std::int64_t bytes) { temporary_bytes = std::max(temporary_bytes, bytes); }
};

}  // namespace attest::vendor::splash
