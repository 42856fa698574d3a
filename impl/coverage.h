// How much of a rectangle of the score matrix is seen, and whoever knows that beforehand.
#pragma once

#include <cstdint>

#include "impl/call.h"

namespace attest::impl {

enum class Coverage : std::uint8_t {
  empty,  // no query of the block sees any key of it
  partial,
  full,  // every query sees every key
};

// A mask of which all elements were made before a kernel asks for blocks of it.
class MadeMask {
 public:
  // As BlockMask::cover.
  virtual Coverage cover(std::int64_t batch, std::int64_t head, const Block& block,
                         std::uint8_t* visible) const = 0;

 protected:
  ~MadeMask() = default;
};

}  // namespace attest::impl
