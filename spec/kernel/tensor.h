// A tensor of a call: typed views by strides, and dense copies for kernels that want these.
//
//   const auto q = c.q.view<float>();
//   float x = q(b, h, i, d);                                        // wherever it lies (LAYOUT-1)
//
//   auto k = attest::gather<float>(c.k);                      // BHSD, converted from any format
//   auto o = attest::dense<float>(c.o, attest::Order::bshd);  // zeros of that shape, in BSHD
//   my_kernel(k.data(), o.data());
//   attest::scatter(o, c.o);                                        // rounded to the format of O
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../attest_plugin.h"
#include "formats.h"

// What a kernel of CUDA or HIP may call, too.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define ATTEST_ON_DEVICE __host__ __device__
#else
#define ATTEST_ON_DEVICE
#endif

namespace attest {

// Where a query or a key lies: on the axes of batch and position of its tensor.
struct Place {
  std::int64_t batch, position;
};

// Elements by their position, whatever the strides. T is the type that they have in memory.
template <class T>
class View {
 public:
  explicit View(const attest_tensor& tensor) : data_(static_cast<T*>(tensor.data)) {
    for (int axis = 0; axis < 4; ++axis) stride_[axis] = tensor.stride[axis];
  }
  // Whether the tensor is there.
  ATTEST_ON_DEVICE explicit operator bool() const { return data_ != nullptr; }

  ATTEST_ON_DEVICE T& operator()(std::int64_t b, std::int64_t h, std::int64_t s,
                                 std::int64_t d) const {
    return data_[b * stride_[0] + h * stride_[1] + s * stride_[2] + d * stride_[3]];
  }
  ATTEST_ON_DEVICE T& operator()(Place at, std::int64_t h, std::int64_t d) const {
    return (*this)(at.batch, h, at.position, d);
  }

 private:
  T* data_;
  std::int64_t stride_[4];
};

namespace detail {

inline std::size_t bytes_of(attest_dtype dtype) {
  switch (dtype) {
    case ATTEST_F64:
    case ATTEST_I64:
      return 8;
    case ATTEST_F32:
    case ATTEST_I32:
      return 4;
    case ATTEST_F16:
    case ATTEST_BF16:
      return 2;
    case ATTEST_FP8_E4M3:
    case ATTEST_FP8_E5M2:
    case ATTEST_INT8:
    case ATTEST_U8:
      return 1;
    default:
      return 0;
  }
}

// Whether elements of a format are read as T; of types that are not ours, whether they fit.
template <class T>
bool holds(attest_dtype dtype) {
  if (std::is_same_v<T, double>) return dtype == ATTEST_F64;
  if (std::is_same_v<T, float>) return dtype == ATTEST_F32;
  if (std::is_same_v<T, f16>) return dtype == ATTEST_F16;
  if (std::is_same_v<T, bf16>) return dtype == ATTEST_BF16;
  if (std::is_same_v<T, e4m3>) return dtype == ATTEST_FP8_E4M3;
  if (std::is_same_v<T, e5m2>) return dtype == ATTEST_FP8_E5M2;
  if (std::is_same_v<T, std::int8_t>) return dtype == ATTEST_INT8;
  return sizeof(T) == bytes_of(dtype);
}

}  // namespace detail

// As it crossed, but that the stride of an axis of size 1 is 0, so that all can be used blindly: a
// table that broadcasts is read at any position.
struct Tensor : attest_tensor {
  Tensor() : attest_tensor{} {}
  Tensor(const attest_tensor& tensor) : attest_tensor(tensor) {
    for (int axis = 0; axis < 4; ++axis) {
      if (shape[axis] == 1) stride[axis] = 0;
    }
  }
  explicit operator bool() const { return data != nullptr; }

  // Throws if the elements are of another type.
  template <class T>
  View<T> view() const {
    if (data && !detail::holds<T>(dtype)) {
      throw std::logic_error("a tensor of format " + std::to_string(dtype) + " is viewed as " +
                             std::to_string(8 * sizeof(T)) + " bits of another");
    }
    return View<T>(*this);
  }
  // An element of a keep-mask.
  bool bit(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
    return static_cast<const std::uint8_t*>(data)[n / 8] >> (n % 8) & 1;
  }
};

// Calls visit(T{}) with the type of elements of `dtype`: double, float, f16, bf16, e4m3, e5m2 or
// std::int8_t.
template <class Visit>
auto with_element_type(attest_dtype dtype, Visit visit) {
  switch (dtype) {
    case ATTEST_F64:
      return visit(double{});
    case ATTEST_F32:
      return visit(float{});
    case ATTEST_F16:
      return visit(f16{});
    case ATTEST_BF16:
      return visit(bf16{});
    case ATTEST_FP8_E4M3:
      return visit(e4m3{});
    case ATTEST_FP8_E5M2:
      return visit(e5m2{});
    case ATTEST_INT8:
      return visit(std::int8_t{});
    default:
      throw std::logic_error("format " + std::to_string(dtype) + " is none of numbers");
  }
}

enum class Order { bhsd, bshd };

// Numbers side by side, in one of two orders.
template <class T>
class Dense {
 public:
  Dense(const attest_tensor& shape_of, Order order) : tensor_(shape_of) {
    std::int64_t stride = 1;
    for (const int axis : {3, order == Order::bhsd ? 2 : 1, order == Order::bhsd ? 1 : 2, 0}) {
      tensor_.stride[axis] = stride;
      stride *= tensor_.shape[axis];
    }
    if (tensor_.data) elements_.resize(static_cast<std::size_t>(stride));
  }

  // Null if the tensor is not there.
  T* data() { return elements_.data(); }
  const T* data() const { return elements_.data(); }
  std::int64_t size() const { return static_cast<std::int64_t>(elements_.size()); }
  T& operator()(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    return elements_[static_cast<std::size_t>(at(b, h, s, d))];
  }
  const T& operator()(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return elements_[static_cast<std::size_t>(at(b, h, s, d))];
  }

 private:
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    const std::int64_t* by = tensor_.stride;
    return b * by[0] + h * by[1] + s * by[2] + d * by[3];
  }

  attest_tensor tensor_;  // the shape, and strides of its own
  std::vector<T> elements_;
};

namespace detail {

// Visits all positions of a tensor that is there.
template <class Visit>
void for_each(const Tensor& t, Visit visit) {
  if (!t) return;
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t h = 0; h < t.shape[1]; ++h)
      for (std::int64_t s = 0; s < t.shape[2]; ++s)
        for (std::int64_t d = 0; d < t.shape[3]; ++d) visit(b, h, s, d);
}

// The type that a tensor is read as on its way to or from numbers of type T: that of its format
// where T is float or double, and T itself, bit by bit, where it is another.
template <class T, class Visit>
void with_memory_type(const Tensor& t, Visit visit) {
  if constexpr (std::is_floating_point_v<T>) {
    with_element_type(t.dtype, visit);
  } else {
    visit(T{});
  }
}

}  // namespace detail

template <class T>
Dense<T> dense(const Tensor& shape_of, Order order = Order::bhsd) {
  return Dense<T>(shape_of, order);
}

template <class T>
Dense<T> gather(const Tensor& from, Order order = Order::bhsd) {
  Dense<T> to(from, order);
  if (!from) return to;
  detail::with_memory_type<T>(from, [&](auto element) {
    const auto view = from.view<decltype(element)>();
    detail::for_each(from, [&](auto b, auto h, auto s, auto d) {
      to(b, h, s, d) = static_cast<T>(view(b, h, s, d));
    });
  });
  return to;
}

// Q, K or V as it is meant: each number times its scale, where it is stored in 8 bits (FORMAT-5 to
// FORMAT-8), of which 16 channels of int8, or 32 of others, may have one of their own.
//   auto k = attest::gather<float>(c.k, c.k_scale);
template <class T>
Dense<T> gather(const Tensor& from, const Tensor& scales, Order order = Order::bhsd) {
  Dense<T> to = gather<T>(from, order);
  if (!scales) return to;
  const auto scale = scales.view<float>();
  const std::int64_t block = from.dtype == ATTEST_INT8 ? 16 : 32;
  const bool in_blocks = scales.shape[3] > 1;
  detail::for_each(from, [&](auto b, auto h, auto s, auto d) {
    to(b, h, s, d) *= scale(b, h, s, in_blocks ? d / block : 0);
  });
  return to;
}

// Does nothing if the tensor is not there.
template <class T>
void scatter(const Dense<T>& from, const Tensor& to) {
  if (!to) return;
  detail::with_memory_type<T>(to, [&](auto element) {
    using Element = decltype(element);
    const auto view = to.view<Element>();
    detail::for_each(to, [&](auto b, auto h, auto s, auto d) {
      view(b, h, s, d) = static_cast<Element>(from(b, h, s, d));
    });
  });
}

}  // namespace attest
