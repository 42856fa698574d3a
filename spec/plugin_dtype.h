// The formats of attest_plugin.h, as whoever reads its tensors needs them.
#pragma once

#include <cstdint>

#include "spec/attest_plugin.h"

namespace attest {

// What an element takes in memory. Undefined for what is none.
inline std::uint64_t bits_of(attest_dtype dtype) {
  switch (dtype) {
    case ATTEST_F64:
    case ATTEST_I64:
      return 64;
    case ATTEST_F32:
    case ATTEST_I32:
      return 32;
    case ATTEST_FP8_E4M3:
    case ATTEST_FP8_E5M2:
    case ATTEST_INT8:
    case ATTEST_U8:
      return 8;
    case ATTEST_BITS:
      return 1;
    default:
      return 16;
  }
}

}  // namespace attest
