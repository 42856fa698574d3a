// Tensors of attest_plugin.h as somebody handed them over: checked before an element is read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "spec/attest_plugin.h"
#include "spec/inputs.h"
#include "spec/json_reader.h"
#include "spec/tensor.h"

namespace attest {

// The fields of a struct that its maker knew; all others are 0. Throws InputError at `where` if it
// is not there, or ends before `least` bytes.
void copy_known(const void* given, std::size_t least, std::size_t most, void* copy,
                const std::string& where);
template <class Struct>
Struct known_fields(const Struct* given, std::size_t least, const std::string& where) {
  Struct copy{};
  copy_known(given, least, sizeof(Struct), &copy, where);
  return copy;
}

bool is_given(const attest_tensor& tensor);

// A shape of somebody's tensor whose first axes may be 1 instead of what `whole` has there. Throws
// InputError at `where` if it has another, or a size that no tensor has.
Shape broadcast_shape(const attest_tensor& tensor, const Shape& whole, const std::string& where);

// What it must be. Each reader throws InputError at `where` if the tensor has another dtype or
// shape, is absent, has a negative stride, or reaches beyond its capacity.
struct Wanted {
  std::string where;  // "inputs.q"
  attest_dtype dtype;
  Shape shape;
};

// In dense order: numbers, their bits, integers of i32 or i64, bytes, and single bits.
Values read_values(const attest_tensor& tensor, const Wanted& wanted);
std::vector<std::uint64_t> read_bits(const attest_tensor& tensor, const Wanted& wanted);
std::vector<Index> read_integers(const attest_tensor& tensor, const Wanted& wanted);
std::vector<std::uint8_t> read_booleans(const attest_tensor& tensor, const Wanted& wanted);
Keep read_keep(const attest_tensor& tensor, const Wanted& wanted);

}  // namespace attest
