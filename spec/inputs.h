// The numbers of a problem: what a testee reads. Each is exactly representable in the format of its
// tensor (problem.dtype, unless said otherwise), so that testee and reference start from the same
// values (SPEC.md, chapter "Formats"). What is stored with scales stands here as it is meant: the
// number that is stored times its scale, exactly.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "spec/assert.h"
#include "spec/mask.h"
#include "spec/problem.h"
#include "spec/tensor.h"
#include "spec/tensor_name.h"

namespace attest {

// Which elements of P dropout keeps: 0 or 1, in dense order of the problem's keep_shape().
struct Keep {
  Shape shape = {};
  std::vector<std::uint8_t> kept = {};
  friend bool operator==(const Keep&, const Keep&) = default;

  bool at(const Position& p) const {
    return kept[static_cast<std::size_t>(dense_index(shape, p.batch, p.head, p.query, p.key))] != 0;
  }
};

// What a problem does not have is empty.
struct Inputs {
  Values q, k, v;
  Values bias = {};    // problem.bias_shape; finite or -inf, which hides the key (MASK-14)
  Values slopes = {};  // problem.slopes_shape; f32
  Values sink = {};    // problem.sink_shape(); f32
  Keep keep = {};      // dropout; in the generated mode, what the testee returned
  Values d_o = {};     // the gradient with respect to O: of a backward pass
  Values d_lse = {};   // the gradient with respect to LSE; of the format of LSE
  Values q_scale = {}, k_scale = {}, v_scale = {};  // of what is stored; f32

  // Of a tensor of kInputValues.
  const Values& operator[](TensorName tensor) const {
    switch (tensor) {
      case TensorName::q:
        return q;
      case TensorName::k:
        return k;
      case TensorName::v:
        return v;
      case TensorName::bias:
        return bias;
      case TensorName::slopes:
        return slopes;
      case TensorName::sink:
        return sink;
      case TensorName::d_o:
        return d_o;
      case TensorName::q_scale:
        return q_scale;
      case TensorName::k_scale:
        return k_scale;
      case TensorName::v_scale:
        return v_scale;
      default:
        ATTEST_ASSERT(tensor == TensorName::d_lse);
        return d_lse;
    }
  }
};
inline constexpr std::array kInputValues = {
    TensorName::q,       TensorName::k,       TensorName::v,      TensorName::bias,
    TensorName::slopes,  TensorName::sink,    TensorName::d_o,    TensorName::d_lse,
    TensorName::q_scale, TensorName::k_scale, TensorName::v_scale};

// Calls visit(number, the scale that it has) for all numbers, in dense order.
template <class Scales, class Visit>
void for_each_with_scale(Values& numbers, Scales& scales, const Visit& visit) {
  const Index block = channels_of_scale(numbers.shape[kChannel], scales.shape[kChannel]);
  for (std::size_t n = 0; n < numbers.data.size(); ++n) {
    const auto [b, h, s, d] = coordinates(numbers.shape, static_cast<Index>(n));
    const Index scale = broadcast_index(scales.shape, b, h, s, d / block);
    visit(numbers.data[n], scales.data[static_cast<std::size_t>(scale)]);
  }
}

// Numbers as they are meant, of those that are stored, each times the scale that it has; and back,
// exactly. What is meant by one with a scale of NaN nobody knows: it is stored as 1.
Values scaled(const Values& stored, const Values& scales);
Values unscaled(const Values& meant, const Values& scales);

// Whether the query sees the key, a bias of -inf hiding it too (MASK-14).
inline bool sees(const Problem& problem, const Inputs& inputs, const Position& at) {
  if (!visible(problem, at)) return false;
  return !problem.bias_shape ||
         !std::isinf(inputs.bias.data[broadcast_index(*problem.bias_shape, at)]);
}

}  // namespace attest
