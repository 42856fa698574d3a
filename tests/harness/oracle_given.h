// A problem as a caller of attest_judge holds it, with outputs that are exact until a test changes
// them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "reference/working.h"
#include "spec/attest_judge.h"
#include "spec/json_text.h"
#include "tests/impl/host.h"

namespace attest {

class OracleCall {
 public:
  OracleCall(const Problem& p, const Inputs& in)
      : host(p),
        q_(p.stored.q ? p.stored.q->dtype : p.dtype, p.q_shape(), p.layouts.q),
        k_(p.stored.k ? p.stored.k->dtype : p.dtype, p.k_shape(), p.layouts.k),
        v_(p.stored.v ? p.stored.v->dtype : p.dtype, p.v_shape(), p.layouts.v),
        d_o_(p.dtype, p.o_shape(), p.layouts.d_o),
        d_lse_(p.lse_dtype(), p.lse_shape()),
        bias_(p.dtype, p.bias_shape.value_or(kOne), p.layouts.bias),
        slopes_(DType::f32, p.slopes_shape.value_or(kOne)),
        sink_(DType::f32, p.sink_shape()),
        q_scale_(DType::f32, p.stored.q ? in.q_scale.shape : kOne),
        k_scale_(DType::f32, p.stored.k ? in.k_scale.shape : kOne),
        v_scale_(DType::f32, p.stored.v ? in.v_scale.shape : kOne),
        keep_(in.keep.kept.empty() ? Shape{} : p.keep_shape()),
        o(p.dtype, p.o_shape(), p.layouts.o),
        lse(p.lse_dtype(), p.lse_shape()),
        dq(p.dtype, p.q_shape(), p.layouts.dq),
        dk(p.dtype, p.k_shape(), p.layouts.dk),
        dv(p.dtype, p.v_shape(), p.layouts.dv),
        dbias(p.dtype, p.bias_shape.value_or(kOne)),
        dsink(DType::f32, p.sink_shape()) {
    put(q_, p.stored.q ? unscaled(in.q, in.q_scale) : in.q, inputs.q);
    put(k_, p.stored.k ? unscaled(in.k, in.k_scale) : in.k, inputs.k);
    put(v_, p.stored.v ? unscaled(in.v, in.v_scale) : in.v, inputs.v);
    if (p.stored.q) put(q_scale_, in.q_scale, inputs.q_scale);
    if (p.stored.k) put(k_scale_, in.k_scale, inputs.k_scale);
    if (p.stored.v) put(v_scale_, in.v_scale, inputs.v_scale);
    if (p.bias_shape) put(bias_, in.bias, inputs.bias);
    if (p.slopes_shape) put(slopes_, in.slopes, inputs.alibi_slopes);
    if (p.sink) put(sink_, in.sink, inputs.sink);
    if (!in.keep.kept.empty()) {
      keep_.set(in.keep);
      inputs.keep = keep_.tensor();
    }
    const Arithmetic arithmetic = loosest(p.dtype);
    put_exact(p, expect_forward(p, in, arithmetic));
    if (!p.backward) return;
    put(d_o_, in.d_o, inputs.d_o);
    if (p.d_lse) put(d_lse_, in.d_lse, inputs.d_lse);
    put_exact(p, expect_backward(p, in, arithmetic));
  }

  // The verdict, or the error, of attest_judge.
  nlohmann::json judge() const {
    char* text = nullptr;
    const attest_status status = attest_judge(host.get(), &inputs, &outputs, &options, &text);
    if (!text) return {{"error", "there is no text"}};
    nlohmann::json verdict = parse_json(text);
    attest_judge_free(text);
    if (verdict.contains("error") != (status != ATTEST_OK)) return {{"error", "and a verdict"}};
    return verdict;
  }

  // "inputs.q: has shape ..."; empty if there is a verdict.
  std::string error() const {
    const nlohmann::json verdict = judge();
    if (!verdict.contains("error")) return "";
    const auto& error = verdict["error"];
    return error["where"].get<std::string>() + ": " + error["what"].get<std::string>();
  }

  HostProblem host;
  attest_inputs inputs = sized<attest_inputs>();
  attest_outputs outputs = sized<attest_outputs>();
  attest_judge_options options = {sizeof(attest_judge_options), "anything", 1, 0, 0};

 private:
  static constexpr Shape kOne = {1, 1, 1, 1};
  HostTensor q_, k_, v_, d_o_, d_lse_, bias_, slopes_, sink_, q_scale_, k_scale_, v_scale_;
  HostKeep keep_;

 public:
  HostTensor o, lse, dq, dk, dv, dbias, dsink;

 private:
  template <class Struct>
  static Struct sized() {
    Struct made{};
    made.struct_size = sizeof(Struct);
    return made;
  }

  static void put(HostTensor& memory, const Values& values, attest_tensor& tensor) {
    memory.set(values);
    tensor = memory.tensor();
  }
  // What is unspecified stays as it is: NaN.
  static void put(HostTensor& memory, const Shape& shape, const Expected& expected,
                  attest_tensor& tensor) {
    put(memory, {shape, expected.value}, tensor);
  }

  void put_exact(const Problem& p, const ForwardExpected& expected) {
    put(o, p.o_shape(), expected.o, outputs.o);
    put(lse, p.lse_shape(), expected.lse, outputs.lse);
  }
  void put_exact(const Problem& p, const BackwardExpected& expected) {
    put(dq, p.q_shape(), expected.dq, outputs.dq);
    put(dk, p.k_shape(), expected.dk, outputs.dk);
    put(dv, p.v_shape(), expected.dv, outputs.dv);
    if (p.bias_shape) put(dbias, *p.bias_shape, expected.dbias, outputs.dbias);
    if (p.sink) put(dsink, p.sink_shape(), expected.dsink, outputs.dsink);
  }
};

}  // namespace attest
