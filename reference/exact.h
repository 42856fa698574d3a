// The exact reference: O, LSE and the gradients, computed as SPEC.md writes them down, in whichever
// number type is asked for. It is meant to be read; `working` is the fast one, and is held to this.
//
// "Exact" is a matter of the type: the formula is exact and each operation rounds once in T. With
// Digits100 what is left is below 1e-90 of every sum, so any other result can be judged by it, and
// inputs may be moved by 1e-33 to see what the outputs do.
//
// Clauses: SHAPE-2, LAYOUT-5, HEAD-1 and 2, SCORE-1 to 4, SOFTMAX-1 and 2, MASK-1 to 14, HIDE-1 to
// 3, EMPTY-1 to 4, LSE-1, SINK-1 and 2, DROP-1 and 2, GRAD-1 to 6, PAGE-1 and 2.
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <utility>
#include <vector>

#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::exact {

// 113 binary digits, as IEEE 754 binary128, and 100 decimal digits. Both without expression
// templates, so that an expression of T is a T.
using Quad = boost::multiprecision::cpp_bin_float_quad;
using Digits100 = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<100>,
                                                boost::multiprecision::et_off>;

// A tensor in dense order, all of it zero to begin with.
template <typename T>
struct Tensor {
  Shape shape = {};
  std::vector<T> data = {};

  Tensor() = default;
  explicit Tensor(const Shape& size)
      : shape(size), data(static_cast<std::size_t>(element_count(size)), T(0)) {}

  T& at(Index b, Index h, Index s, Index d) {
    return data[static_cast<std::size_t>(dense_index(shape, b, h, s, d))];
  }
  const T& at(Index b, Index h, Index s, Index d) const {
    return data[static_cast<std::size_t>(dense_index(shape, b, h, s, d))];
  }
};

// As attest::Inputs: what a problem does not have may be empty, and is not looked at.
template <typename T>
struct Inputs {
  Tensor<T> q, k, v;
  Tensor<T> bias = {}, slopes = {}, sink = {};
  Keep keep = {};
  Tensor<T> d_o = {}, d_lse = {};  // backward only
};

template <typename T>
struct Outputs {
  Tensor<T> o;    // problem.o_shape()
  Tensor<T> lse;  // problem.lse_shape(); -inf for a row that sees neither key nor sink
};

template <typename T>
struct Gradients {
  Tensor<T> dq, dk, dv;              // of the shapes of Q, K and V
  Tensor<T> dbias = {}, dsink = {};  // of those of bias and sink; empty if there is none
};

// The same numbers in T, which holds every double.
template <typename T>
Inputs<T> inputs_as(const attest::Inputs& inputs);

// `problem` must be well formed, and `inputs` of its shapes. Only what is visible is read, so that
// keys that nobody sees, and rows that see none, may hold NaN.
template <typename T>
Outputs<T> forward(const Problem& problem, const Inputs<T>& inputs);

// The gradient of the sum of dO * O, and of dLSE * LSE if problem.d_lse. Takes no O or LSE: it
// makes its own. Not of paged problems (PAGE-1).
template <typename T>
Gradients<T> backward(const Problem& problem, const Inputs<T>& inputs);

// The same with the O and LSE that a forward pass has returned, be it of another problem of the
// same shapes: P = exp(S - LSE), as kernels make it anew. NaN and Inf where that LSE is -inf and
// the row sees a key.
template <typename T>
Gradients<T> backward(const Problem& problem, const Inputs<T>& inputs, const Outputs<T>& given);

}  // namespace attest::exact
