// The mask of a random problem, and the tables of booleans that masks and biases have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/fuzz/random_sizes.h"

namespace attest {

class MaskDrawing : Drawing {
 public:
  // `sizes` must outlive this.
  MaskDrawing(const Description& testee, Dice& dice, const Sizes& sizes)
      : Drawing(testee, dice), sizes_(sizes) {}

  // Null if the testee knows none of the kind that was drawn.
  nlohmann::json mask() const;

  // Some axes of those.
  std::string some_of(std::string_view axes) const;

  // A table of booleans with so many columns.
  nlohmann::json table(std::string_view axes, Index columns) const;

 private:
  nlohmann::json any(int depth) const;
  std::string placed() const;
  nlohmann::json window() const;
  nlohmann::json blocks_or_lengths() const;
  nlohmann::json segments() const;
  nlohmann::json several(int depth) const;
  nlohmann::json diagonal_and_keys() const;

  const Sizes& sizes_;
};

}  // namespace attest
