// The vector core's instructions, on rows of f32 in the unified buffer. Each takes as many cycles
// as it has 256 bytes; without numbers that is all it does.
#pragma once

#include <limits>

#include "impl/vendor/ascend/atlas_a2.h"
#include "impl/vendor/ascend/formats.h"

namespace attest::vendor::ascend {

// What stands for a score that the mask hides: the lowest number, not an infinity.
inline constexpr float kHidden = -std::numeric_limits<float>::max();

// Rows in the unified buffer.
struct UbTile {
  float* data;
  int64_t rows, columns, stride;

  float* row(int64_t n) const { return data + n * stride; }
  UbTile rows_from(int64_t first, int64_t count) const {
    return {data + first * stride, count, columns, stride};
  }
};

class VectorCore {
 public:
  VectorCore(AiCore& core, bool numbers) : core_(core), numbers_(numbers) {}

  // ---- Movers. The unified buffer has each thing once: a load waits till the vector unit is done
  // with what was there, the vector unit for the load, and a store for the vector unit.
  void load(Gm from, int64_t rows, int64_t bytes, int64_t stride, std::byte* to, int64_t to_stride);
  void store(const std::byte* from, int64_t from_stride, Gm to, int64_t rows, int64_t bytes,
             int64_t stride);
  // Before what a store still reads is written to.
  void wait_for_stores() {
    core_.vector.wait_until(core_.mte3.unit().now);
    core_.vector_mte2.unit().wait_until(core_.mte3.unit().now);
  }
  void trip() { core_.vector.spend(kTripHead); }

  // ---- Instructions
  void muls(UbTile x, float factor);
  void mul(UbTile x, UbTile y);                    // x = x * y
  void add(UbTile x, UbTile y);                    // x = x + y
  void sub_of_row(UbTile x, const float* of_row);  // x = x - of_row[row]
  void mul_of_row(UbTile x, const float* of_row);
  // Exp and Div flush subnormal results to 0.
  void div_of_row(UbTile x, const float* of_row);
  void exp(UbTile x);
  void select(UbTile x, const std::uint8_t* hidden, int64_t stride);  // kHidden where it is 1
  // x / keep_prob where the bit is 1, else 0; rows of bits begin at any bit, as the mask has them.
  struct Bits {
    const std::byte* data;
    int64_t first, stride;  // in bits
  };
  void dropout(UbTile x, const Bits& keep, float keep_prob);
  void max_of_row(UbTile x, float* of_row);           // of_row = max(of_row, the row's largest)
  void sum_of_row(UbTile x, float* of_row);           // of_row = the row's sum
  void cast(UbTile x, DataType type, std::byte* to);  // rows side by side
  void cast_from(const std::byte* from, DataType type, UbTile x);

  bool numbers() const { return numbers_; }
  AiCore& core() { return core_; }
  // An instruction over as many floats that is computed by the caller.
  void op(int64_t floats) { core_.vector.spend((floats * 4 + kVectorBytes - 1) / kVectorBytes); }

 private:
  AiCore& core_;
  bool numbers_;
};

}  // namespace attest::vendor::ascend
