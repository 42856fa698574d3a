// What the tensors of a problem are called: in the code, between programs and on paper.
//
//   TensorName::d_lse    wire_name "d_lse"    name "dLSE"
//
// The former stands in requests, in the layouts of case files and on dumped inputs; the latter, as
// SPEC.md writes it, in records, messages and reports, and on dumped results.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace attest {

enum class TensorName {
  // What a testee reads. A keep-mask that it draws itself, it returns first.
  q,
  k,
  v,
  bias,
  slopes,
  sink,
  keep,
  d_o,
  d_lse,
  // What it returns and is judged by. The backward pass reads O and LSE too.
  o,
  lse,
  dq,
  dk,
  dv,
  dbias,
  dsink,
  // What it may return, and read again, in place of LSE: m and l of LSE = m + log l.
  maximum,
  sum,
  // What it reads of Q, K and V that are stored in fewer bits.
  q_scale,
  k_scale,
  v_scale,
};

std::string wire_name(TensorName tensor);
std::string_view name(TensorName tensor);
std::optional<TensorName> tensor_named(std::string_view name);  // as records have it

// What is returned, in the order in which every page tells it.
inline constexpr std::array kReturnedTensors = {
    TensorName::o,  TensorName::lse,   TensorName::dq,   TensorName::dk,
    TensorName::dv, TensorName::dbias, TensorName::dsink};
inline constexpr std::array kGradients = {TensorName::dq, TensorName::dk, TensorName::dv,
                                          TensorName::dbias, TensorName::dsink};
// Of these, what has a row for each query, and for each key.
inline constexpr std::array kQueryTensors = {TensorName::o, TensorName::lse, TensorName::dq};
inline constexpr std::array kKeyTensors = {TensorName::dk, TensorName::dv};

template <class Names>
constexpr bool is_among(TensorName tensor, const Names& names) {
  for (const TensorName candidate : names) {
    if (candidate == tensor) return true;
  }
  return false;
}
constexpr bool is_gradient(TensorName tensor) { return is_among(tensor, kGradients); }
constexpr bool is_of_queries(TensorName tensor) {
  return is_among(tensor, kQueryTensors) || tensor == TensorName::maximum ||
         tensor == TensorName::sum;
}
constexpr bool is_of_keys(TensorName tensor) { return is_among(tensor, kKeyTensors); }

}  // namespace attest
