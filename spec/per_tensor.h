// Something for each tensor that a testee returns: by its name where all are alike, as a member
// where one is meant.
//
//   PerTensor<Expected> expected;
//   expected.backward.dq        expected[TensorName::dq]
#pragma once

#include "spec/assert.h"
#include "spec/tensor_name.h"

namespace attest {

template <class T>
struct PerForward {
  T o;
  T lse;

  T& operator[](TensorName tensor) { return of(*this, tensor); }
  const T& operator[](TensorName tensor) const { return of(*this, tensor); }

 private:
  template <class Self>
  static auto& of(Self& self, TensorName tensor) {
    if (tensor == TensorName::o) return self.o;
    ATTEST_ASSERT(tensor == TensorName::lse);
    return self.lse;
  }
};

template <class T>
struct PerGradient {
  T dq;
  T dk;
  T dv;
  T dbias = {};  // so it stays without a bias
  T dsink = {};  // or without sinks

  T& operator[](TensorName tensor) { return of(*this, tensor); }
  const T& operator[](TensorName tensor) const { return of(*this, tensor); }

 private:
  template <class Self>
  static auto& of(Self& self, TensorName tensor) {
    if (tensor == TensorName::dq) return self.dq;
    if (tensor == TensorName::dk) return self.dk;
    if (tensor == TensorName::dv) return self.dv;
    if (tensor == TensorName::dbias) return self.dbias;
    ATTEST_ASSERT(tensor == TensorName::dsink);
    return self.dsink;
  }
};

template <class T>
struct PerTensor {
  PerForward<T> forward;
  PerGradient<T> backward;

  T& operator[](TensorName tensor) {
    return is_gradient(tensor) ? backward[tensor] : forward[tensor];
  }
  const T& operator[](TensorName tensor) const {
    return is_gradient(tensor) ? backward[tensor] : forward[tensor];
  }
};

}  // namespace attest
