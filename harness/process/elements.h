// The elements of a tensor of a request, where they lie in memory that is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "spec/dtype.h"
#include "spec/tensor.h"

namespace attest {

class Elements {
 public:
  Elements(const nlohmann::json& tensor, std::byte* memory)
      : dtype_(*dtype_named(tensor.at("dtype").get<std::string>())),
        shape_(tensor.at("shape").get<Shape>()),
        stride_(tensor.at("stride").get<Strides>()),
        data_(memory + tensor.at("offset").get<std::size_t>()) {}

  Index count() const { return element_count(shape_); }
  DType dtype() const { return dtype_; }
  std::uint64_t bits(Index n) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, place(n), width());
    return bits;
  }
  double value(Index n) const { return decode(dtype_, bits(n)); }
  void put_bits(Index n, std::uint64_t bits) { std::memcpy(place(n), &bits, width()); }
  void put(Index n, double value) { put_bits(n, encode(dtype_, value)); }

 private:
  std::size_t width() const { return static_cast<std::size_t>(format_of(dtype_).bytes); }
  std::byte* place(Index n) const {
    const auto at = coordinates(shape_, n);
    Index elements = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) elements += at[axis] * stride_[axis];
    return data_ + static_cast<std::size_t>(elements) * width();
  }

  DType dtype_;
  Shape shape_;
  Strides stride_;
  std::byte* data_;
};

}  // namespace attest
