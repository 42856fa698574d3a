#include "harness/oracle/strided.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "spec/dtype.h"
#include "spec/plugin_dtype.h"

namespace attest {
namespace {

// Elements: as many as problem.cpp lets a tensor have.
constexpr double kMostElements = 0x1p32;

std::string name_of(attest_dtype dtype) {
  if (const auto format = dtype_numbered(dtype)) return std::string(name(*format));
  switch (dtype) {
    case ATTEST_U8:
      return "u8";
    case ATTEST_I32:
      return "i32";
    case ATTEST_I64:
      return "i64";
    case ATTEST_BITS:
      return "bits";
    default:
      return fmt::format("number {}", dtype);
  }
}

bool is_empty(const Shape& shape) { return std::count(shape.begin(), shape.end(), 0) > 0; }

// With 0 where they mean nothing.
Strides used_strides(const attest_tensor& tensor, const Shape& shape) {
  Strides strides{};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    strides[axis] = shape[axis] == 1 ? 0 : tensor.stride[axis];
  }
  return strides;
}

// That the farthest element lies within what may be read.
void check_reach(const attest_tensor& tensor, const Wanted& wanted) {
  std::uint64_t last = 0;
  bool overflows = false;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (wanted.shape[axis] == 1) continue;
    if (tensor.stride[axis] < 0) {
      throw InputError(wanted.where, fmt::format("the stride of axis {} is negative: {}", axis,
                                                 tensor.stride[axis]));
    }
    std::uint64_t far = 0;
    overflows = overflows ||
                __builtin_mul_overflow(static_cast<std::uint64_t>(wanted.shape[axis] - 1),
                                       static_cast<std::uint64_t>(tensor.stride[axis]), &far) ||
                __builtin_add_overflow(last, far, &last);
  }
  const std::uint64_t bits = bits_of(wanted.dtype), bytes = tensor.capacity_bytes;
  if (overflows || last >= bytes / bits * 8 + bytes % bits * 8 / bits) {
    throw InputError(wanted.where,
                     fmt::format("[{}] with strides [{}] reaches beyond its capacity of {} bytes",
                                 fmt::join(wanted.shape, ","), fmt::join(tensor.stride, ","),
                                 tensor.capacity_bytes));
  }
}

void check(const attest_tensor& tensor, const Wanted& wanted) {
  const auto wrong = [&](const std::string& what) { throw InputError(wanted.where, what); };
  if (!is_given(tensor)) {
    if (is_empty(wanted.shape)) return;
    wrong("is missing");
  }
  if (tensor.dtype != wanted.dtype) {
    wrong(fmt::format("has dtype {}, expected {}", name_of(tensor.dtype), name_of(wanted.dtype)));
  }
  if (!std::equal(wanted.shape.begin(), wanted.shape.end(), tensor.shape)) {
    wrong(fmt::format("has shape [{}], expected [{}]", fmt::join(tensor.shape, ","),
                      fmt::join(wanted.shape, ",")));
  }
  // A table of pages has as many entries as it is given with.
  if (std::any_of(wanted.shape.begin(), wanted.shape.end(), [](Index size) { return size < 0; })) {
    wrong(fmt::format("has shape [{}], expected no negative size", fmt::join(tensor.shape, ",")));
  }
  double elements = 1;
  for (const Index size : wanted.shape) elements *= static_cast<double>(size);
  if (elements > kMostElements) {
    wrong(fmt::format("of shape [{}] is too large to be judged", fmt::join(wanted.shape, ",")));
  }
  if (is_empty(wanted.shape)) return;
  if (!tensor.data) wrong("has no data");
  check_reach(tensor, wanted);
}

// Calls `visit` with the place of each element, in dense order.
template <class Visit>
void for_each_place(const attest_tensor& tensor, const Shape& shape, const Visit& visit) {
  if (is_empty(shape)) return;  // nothing was said of its strides
  const Strides stride = used_strides(tensor, shape);
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index s = 0; s < shape[2]; ++s) {
        const Index row = b * stride[0] + h * stride[1] + s * stride[2];
        for (Index d = 0; d < shape[3]; ++d) visit(row + d * stride[3]);
      }
    }
  }
}

// Whatever `read` makes of the bytes of each element; no alignment is asked for.
template <class Result, class Stored, class Read>
std::vector<Result> read_as(const attest_tensor& tensor, const Wanted& wanted, const Read& read) {
  std::vector<Result> all;
  all.reserve(static_cast<std::size_t>(element_count(wanted.shape)));
  const auto* bytes = static_cast<const std::byte*>(tensor.data);
  for_each_place(tensor, wanted.shape, [&](Index place) {
    Stored stored;
    std::memcpy(&stored, bytes + static_cast<std::size_t>(place) * sizeof(stored), sizeof(stored));
    all.push_back(read(stored));
  });
  return all;
}

template <class Result, class Read>
std::vector<Result> read_floats(const attest_tensor& tensor, const Wanted& wanted,
                                const Read& read) {
  check(tensor, wanted);
  switch (bits_of(wanted.dtype)) {
    case 64:
      return read_as<Result, std::uint64_t>(tensor, wanted, read);
    case 32:
      return read_as<Result, std::uint32_t>(tensor, wanted, read);
    case 8:
      return read_as<Result, std::uint8_t>(tensor, wanted, read);
    default:
      return read_as<Result, std::uint16_t>(tensor, wanted, read);
  }
}

}  // namespace

void copy_known(const void* given, std::size_t least, std::size_t most, void* copy,
                const std::string& where) {
  if (!given) throw InputError(where, "is NULL");
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof(size));  // each struct begins with it
  if (size < least) {
    throw InputError(where,
                     fmt::format("has a struct_size of {}, at least {} is expected", size, least));
  }
  std::memcpy(copy, given, std::min(size, most));
}

bool is_given(const attest_tensor& tensor) { return tensor.data || tensor.dtype != 0; }

Shape broadcast_shape(const attest_tensor& tensor, const Shape& whole, const std::string& where) {
  Shape shape = whole;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (tensor.shape[axis] == 1) shape[axis] = 1;
  }
  if (is_given(tensor) && !std::equal(shape.begin(), shape.end(), tensor.shape)) {
    throw InputError(where, fmt::format("has shape [{}], which does not broadcast to [{}]",
                                        fmt::join(tensor.shape, ","), fmt::join(whole, ",")));
  }
  return shape;
}

Values read_values(const attest_tensor& tensor, const Wanted& wanted) {
  const auto dtype = static_cast<DType>(wanted.dtype);
  return {wanted.shape, read_floats<double>(tensor, wanted, [dtype](auto stored) {
            return decode(dtype, stored);
          })};
}

std::vector<std::uint64_t> read_bits(const attest_tensor& tensor, const Wanted& wanted) {
  return read_floats<std::uint64_t>(tensor, wanted,
                                    [](auto stored) { return std::uint64_t(stored); });
}

std::vector<Index> read_integers(const attest_tensor& tensor, const Wanted& wanted) {
  check(tensor, wanted);
  const auto as_index = [](auto stored) { return Index(stored); };
  if (wanted.dtype == ATTEST_I32) return read_as<Index, std::int32_t>(tensor, wanted, as_index);
  return read_as<Index, std::int64_t>(tensor, wanted, as_index);
}

std::vector<std::uint8_t> read_booleans(const attest_tensor& tensor, const Wanted& wanted) {
  check(tensor, wanted);
  return read_as<std::uint8_t, std::uint8_t>(tensor, wanted, [&](std::uint8_t stored) {
    if (stored > 1) {
      throw InputError(wanted.where, fmt::format("holds {}, where 0 or 1 is expected", stored));
    }
    return stored;
  });
}

Keep read_keep(const attest_tensor& tensor, const Wanted& wanted) {
  check(tensor, wanted);
  Keep keep = {.shape = wanted.shape, .kept = {}};
  keep.kept.reserve(static_cast<std::size_t>(element_count(wanted.shape)));
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.data);
  for_each_place(tensor, wanted.shape,
                 [&](Index bit) { keep.kept.push_back(bytes[bit / 8] >> (bit % 8) & 1); });
  return keep;
}

}  // namespace attest
