// The oracle in tests of GoogleTest: a matcher on top of attest_judge.h, in C++17.
//
//   const attest_tensor q = attest::tensor_of(q_data, {B, Hq, Sq, D}), k = ..., v = ..., o = ...;
//   attest_problem problem = attest::problem_of(q, k, v);
//   const attest_mask causal = attest::causal(attest::Corner::bottom_right);
//   problem.mask = &causal, problem.mask_count = 1;
//   EXPECT_THAT(o, attest::MatchesAttention(problem, q, k, v, "gpu-16bit"));
//
// LSE, and gradients:
//
//   EXPECT_THAT(attest::outputs_of(o, lse), MatchesAttention(problem, q, k, v, "gpu-16bit"));
//   EXPECT_THAT(attest::gradients_of(dq, dk, dv),
//               MatchesAttention(problem, attest::inputs_of(q, k, v, d_o), "gpu-16bit"));
//
// It explains with the worst element, the clause, and what was meant. Link with libattest.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "attest_judge.h"

// What a failed expectation prints of a tensor: its shape, not its bytes.
inline void PrintTo(const attest_tensor& tensor, std::ostream* os) {
  *os << "a tensor [" << tensor.shape[0] << "," << tensor.shape[1] << "," << tensor.shape[2] << ","
      << tensor.shape[3] << "]";
}

// Of all outputs that are there.
inline void PrintTo(const attest_outputs& outputs, std::ostream* os) {
  const std::array<std::pair<const char*, const attest_tensor*>, 7> all = {
      {{"O", &outputs.o},
       {"LSE", &outputs.lse},
       {"dQ", &outputs.dq},
       {"dK", &outputs.dk},
       {"dV", &outputs.dv},
       {"dBias", &outputs.dbias},
       {"dSink", &outputs.dsink}}};
  const char* between = "";
  for (const auto& [name, tensor] : all) {
    if (!tensor->data) continue;
    *os << between << name << ", ";
    PrintTo(*tensor, os);
    between = "; ";
  }
}

namespace attest {

// Numbers in memory, dense in the order batch, head, position, channel; of 16 bits with ATTEST_F16
// or ATTEST_BF16. Other layouts: change its strides and capacity.
inline attest_tensor tensor_of(const void* data, attest_dtype dtype,
                               const std::array<std::int64_t, 4>& shape) {
  attest_tensor tensor{};
  tensor.data = const_cast<void*>(data);  // which attest_judge only reads
  tensor.dtype = dtype;
  std::int64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    tensor.shape[axis] = shape[static_cast<std::size_t>(axis)];
    tensor.stride[axis] = stride;
    stride *= tensor.shape[axis];
  }
  const int bytes = dtype == ATTEST_F64 ? 8 : dtype == ATTEST_F32 ? 4 : 2;
  tensor.capacity_bytes = static_cast<std::uint64_t>(stride * bytes);
  return tensor;
}
inline attest_tensor tensor_of(const float* data, const std::array<std::int64_t, 4>& shape) {
  return tensor_of(data, ATTEST_F32, shape);
}
inline attest_tensor tensor_of(const double* data, const std::array<std::int64_t, 4>& shape) {
  return tensor_of(data, ATTEST_F64, shape);
}

// Sizes and format of these; the scale is 1/sqrt(D), the mask full. What else there is, is to be
// set.
inline attest_problem problem_of(const attest_tensor& q, const attest_tensor& k,
                                 const attest_tensor& v) {
  attest_problem problem{};
  problem.struct_size = sizeof(problem);
  problem.dtype = q.dtype;
  problem.batch = q.shape[0];
  problem.query_heads = q.shape[1];
  problem.key_heads = k.shape[1];
  problem.query_len = q.shape[2];
  problem.key_len = k.shape[2];
  problem.head_dim = q.shape[3];
  problem.value_dim = v.shape[3];
  problem.scale = q.shape[3] > 0 ? 1 / std::sqrt(static_cast<double>(q.shape[3])) : 1;
  return problem;
}

// What is read; of the backward pass, the loss too. What else there is, is to be set: bias, slopes,
// sinks, a keep-mask.
inline attest_inputs inputs_of(const attest_tensor& q, const attest_tensor& k,
                               const attest_tensor& v, const attest_tensor& d_o = {}) {
  attest_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.q = q;
  inputs.k = k;
  inputs.v = v;
  inputs.d_o = d_o;
  return inputs;
}

// LSE has the shape [B, Hq, Sq, 1].
inline attest_outputs outputs_of(const attest_tensor& o, const attest_tensor& lse = {}) {
  attest_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.o = o;
  outputs.lse = lse;
  return outputs;
}
inline attest_outputs gradients_of(const attest_tensor& dq, const attest_tensor& dk,
                                   const attest_tensor& dv) {
  attest_outputs outputs = outputs_of({});
  outputs.dq = dq;
  outputs.dk = dk;
  outputs.dv = dv;
  return outputs;
}

// Where the diagonal of a causal mask lies: from the first query and key on, or to the last ones.
enum class Corner { top_left, bottom_right };

inline attest_mask causal(Corner corner) {
  attest_mask mask{};
  mask.struct_size = sizeof(mask);
  mask.kind = ATTEST_MASK_BAND;
  mask.anchored_bottom_right = corner == Corner::bottom_right;
  mask.left = ATTEST_UNBOUNDED;
  return mask;
}

// Of a tensor that shall be O, or of outputs, whichever are there. What `problem` and the inputs
// point to must outlive it.
class AttentionMatcher {
 public:
  using is_gtest_matcher = void;

  AttentionMatcher(const attest_problem& problem, const attest_inputs& inputs,
                   std::string arithmetic)
      : problem_(problem), inputs_(inputs), arithmetic_(std::move(arithmetic)) {}

  bool MatchAndExplain(const attest_tensor& o, std::ostream* os) const {
    return MatchAndExplain(outputs_of(o), os);
  }
  bool MatchAndExplain(const attest_outputs& outputs, std::ostream* os) const {
    attest_problem problem = problem_;
    const std::array gradients = {outputs.dq.data, outputs.dk.data, outputs.dv.data,
                                  outputs.dbias.data, outputs.dsink.data};
    for (const void* gradient : gradients) problem.backward |= gradient != nullptr;
    attest_judge_options options{};
    options.struct_size = sizeof(options);
    options.arithmetic = arithmetic_.c_str();
    char* text = nullptr;
    const bool judged = attest_judge(&problem, &inputs_, &outputs, &options, &text) == ATTEST_OK;
    const std::string verdict = text ? text : "";
    attest_judge_free(text);
    if (os) judged ? explain(verdict, *os) : refuse(verdict, *os);
    // Once, and behind Not() too: what was not judged is neither.
    if (!os && (!judged || text_at(verdict, "outcome") == "INCONCLUSIVE")) {
      std::ostringstream why;
      judged ? explain(verdict, why) : refuse(verdict, why);
      ADD_FAILURE() << why.str();
    }
    return judged && verdict.find("\"passed\":true") != std::string::npos;
  }
  void DescribeTo(std::ostream* os) const { *os << "is attention, computed in " << arithmetic_; }
  void DescribeNegationTo(std::ostream* os) const { *os << "is not attention"; }

 private:
  // The text at a key of the verdict; its keys are unique.
  static std::string text_at(const std::string& verdict, std::string_view key) {
    std::string text;
    const std::string opening = "\"" + std::string(key) + "\":\"";
    const std::size_t at = verdict.find(opening);
    if (at == std::string::npos) return text;
    for (std::size_t i = at + opening.size(); i < verdict.size() && verdict[i] != '"'; ++i) {
      i += verdict[i] == '\\';
      text += verdict[i];
    }
    return text;
  }

  static void explain(const std::string& verdict, std::ostream& os) {
    const std::string clause = text_at(verdict, "blamed"), meant = text_at(verdict, "did_you_mean");
    const std::string message = text_at(verdict, "message"), part = text_at(verdict, "sampled");
    os << text_at(verdict, "outcome");
    if (!message.empty()) os << ": " << message;
    if (!clause.empty()) os << "\n  clause        " << clause << ": " << text_at(verdict, "title");
    if (!meant.empty()) os << "\n  did you mean  " << meant;
    if (!part.empty()) os << "\n  compared      " << part;
    os << "\n  problem       " << text_at(verdict, "problem");
  }
  static void refuse(const std::string& error, std::ostream& os) {
    os << "cannot be judged: " << text_at(error, "where") << ": " << text_at(error, "what");
  }

  attest_problem problem_;
  attest_inputs inputs_;
  std::string arithmetic_;
};

inline AttentionMatcher MatchesAttention(const attest_problem& problem, const attest_inputs& inputs,
                                         std::string arithmetic) {
  return AttentionMatcher(problem, inputs, std::move(arithmetic));
}
inline AttentionMatcher MatchesAttention(const attest_problem& problem, const attest_tensor& q,
                                         const attest_tensor& k, const attest_tensor& v,
                                         std::string arithmetic) {
  return AttentionMatcher(problem, inputs_of(q, k, v), std::move(arithmetic));
}

}  // namespace attest
