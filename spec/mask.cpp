#include "spec/mask.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attest {
namespace {

std::string band_to_string(const Mask& mask) {
  std::string text;
  if (mask.left == kUnbounded && mask.right == 0) {
    text = "causal";
  } else {
    const auto bound = [](const char* sign, Index width) {
      return width == kUnbounded ? std::string("*") : fmt::format("{}{}", sign, width);
    };
    text = fmt::format("window {}..{}", bound("-", mask.left), bound("", mask.right));
  }
  text += mask.anchor == Anchor::bottom_right ? " bottom_right" : " top_left";
  if (mask.offset != 0) text += fmt::format(" offset={}", mask.offset);
  return text;
}

}  // namespace

std::string to_string(const Mask& mask) {
  switch (mask.kind) {
    case Mask::Kind::full:
      return "full";
    case Mask::Kind::band:
      return band_to_string(mask);
    case Mask::Kind::dense:
      return fmt::format("dense [{}]", fmt::join(mask.table->shape, ","));
    case Mask::Kind::all_of:
    case Mask::Kind::any_of: {
      std::vector<std::string> parts;
      for (const Mask& part : mask.parts) parts.push_back(to_string(part));
      return fmt::format("({})",
                         fmt::join(parts, mask.kind == Mask::Kind::all_of ? " and " : " or "));
    }
  }
  return "?";
}

}  // namespace attest
