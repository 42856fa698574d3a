// NumPy's .npy files: what any numerical tool can open, and what came back from one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/dtype.h"
#include "spec/tensor.h"

namespace attest {

// A file of format 1.0, in C order. bf16, which NumPy has not, are its bits, as unsigned integers.
std::string npy_of(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f64);
// How NumPy calls its elements: 'f', or 'u' where they are bits.
char npy_kind(DType dtype);
std::string npy_of(const Shape& shape, const std::vector<std::int64_t>& values);
std::string npy_of(const Shape& shape, const std::vector<std::int32_t>& values);
std::string npy_of(const Shape& shape, const std::vector<std::uint8_t>& values);

struct NpyArray {
  char kind;          // of the elements, as NumPy has it: f, i, u, b, V, ...
  std::size_t width;  // of one, in bytes: 1, 2, 4 or 8
  std::vector<Index> shape;
  std::vector<std::uint64_t> bits;  // of the elements, in C order
};

// Of formats 1 to 3, in either order and byte order. Throws InputError that says what is wrong:
// it is no .npy, has objects or records for elements, is longer or shorter than it says.
NpyArray parse_npy(std::string_view bytes);

}  // namespace attest
