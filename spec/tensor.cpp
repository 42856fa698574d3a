#include "spec/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::string_view kAxisLetters = "bhsd";
constexpr Index kWidestGap = Index(1) << 32;  // the rows of a small tensor pass every 32-bit offset
constexpr Index kWildStride = Index(1) << 40;  // far beyond any mapping: using it faults

Axis axis_of(char letter, std::string_view text) {
  const auto place = kAxisLetters.find(letter);
  if (place == std::string_view::npos) {
    throw InputError(
        "", fmt::format("layout \"{}\": '{}' is no axis; axes are b, h, s, d", text, letter));
  }
  return static_cast<Axis>(place);
}

}  // namespace

Layout Layout::parse(std::string_view text) {
  Layout layout;
  std::istringstream words{std::string(text)};
  std::string order;
  words >> order;
  if (order == "bsh") order = "bshd";
  std::string sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != "bdhs") {
    throw InputError("", fmt::format("layout \"{}\": the first word orders the axes b, h, s, d, "
                                     "such as bhsd or bshd",
                                     text));
  }
  for (std::size_t i = 0; i < 4; ++i) layout.order_[i] = axis_of(order[i], text);
  const auto twice = [&](std::string_view what) {
    return InputError("", fmt::format("layout \"{}\": {} stands twice", text, what));
  };
  for (std::string word; words >> word;) {
    if (word == "wild") {
      if (std::exchange(layout.wild_, true)) throw twice("wild");
    } else if (word.starts_with("gap=")) {
      if (layout.gap_ > 0) throw twice("gap");
      const char* end = word.data() + word.size();
      const auto [stop, error] = std::from_chars(word.data() + 4, end, layout.gap_);
      if (error != std::errc() || stop != end || layout.gap_ < 1 || layout.gap_ > kWidestGap) {
        throw InputError(
            "", fmt::format("layout \"{}\": gap takes a count of elements, at most 2^32", text));
      }
    } else if (word.starts_with("expand=") && word.size() > 7) {
      for (const char letter : word.substr(7)) {
        if (std::exchange(layout.expanded_[axis_of(letter, text)], true)) {
          throw twice(fmt::format("expand={}", letter));
        }
      }
    } else {
      throw InputError(
          "",
          fmt::format("layout \"{}\": \"{}\" is not one of gap=N, expand=AXES, wild", text, word));
    }
  }
  return layout;
}

Strides Layout::strides(const Shape& shape) const {
  Strides strides{};
  Index stride = 1;
  for (std::size_t i = 4; i-- > 0;) {
    const Axis axis = order_[i];
    strides[axis] = expanded_[axis] ? 0 : stride;
    if (!expanded_[axis]) stride *= std::max<Index>(shape[axis], 1);
    if (i == 3) stride += gap_;
  }
  for (std::size_t axis = 0; wild_ && axis < 4; ++axis) {
    if (shape[axis] == 1) strides[axis] = kWildStride;
  }
  return strides;
}

Index Layout::span(const Shape& shape) const {
  if (element_count(shape) == 0) return 0;
  const Strides strides = this->strides(shape);
  Index last = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] > 1) last += (shape[axis] - 1) * strides[axis];
  }
  return last + 1;
}

std::string Layout::order() const {
  std::string text;
  for (const Axis axis : order_) text += kAxisLetters[axis];
  return text;
}

std::string Layout::to_string() const {
  std::string text = order();
  if (gap_ > 0) text += fmt::format(" gap={}", gap_);
  std::string expanded;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (expanded_[axis]) expanded += kAxisLetters[axis];
  }
  if (!expanded.empty()) text += " expand=" + expanded;
  if (wild_) text += " wild";
  return text;
}

}  // namespace attest
