#include "impl/kernel_code.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace attest::impl {
namespace {

std::string wide_format(const std::string& dtype) { return dtype == "f64" ? "f64" : "f32"; }

constexpr const char* kAllFeatures[] = {"backward",
                                        "lse",
                                        "causal",
                                        "window",
                                        "dense-mask",
                                        "prefix",
                                        "segments",
                                        "block-sparse",
                                        "dilated",
                                        "mask-and",
                                        "mask-or",
                                        "lengths",
                                        "packed",
                                        "paged",
                                        "gqa",
                                        "value-dim",
                                        "strides",
                                        "expanded",
                                        "transposed",
                                        "zero-sizes",
                                        "any-scale",
                                        "softcap",
                                        "bias",
                                        "dbias",
                                        "alibi",
                                        "sink",
                                        "dlse",
                                        "dropout",
                                        "dropout-generated",
                                        "long",
                                        "new-shapes"};
constexpr const char* kStoredFeatures[] = {
    "stored-qkv", "stored-qk",       "stored-kv",          "e4m3", "e5m2", "int8", "mxfp8",
    "bfp8",       "scales-of-heads", "scales-of-positions"};

}  // namespace

ArithmeticDeclaration unrounded_arithmetic(const std::string& dtype) {
  const std::string wide = wide_format(dtype);
  return {
      {"softmax", wide},
      {"exp_ulp", 1},
      {"tanh_ulp", 2},
      {"p", wide},
      {"ds", wide},
      {"ds_scaled", "after_rounding"},
      {"ds_from", "p"},
      {"kv_splits", 1},
      {"rescales_output", false},
      {"subnormal_inputs", "kept"},
      {"subnormal_outputs", "kept"},
      {"output_rounding", "nearest"},
      {"deterministic", true},
  };
}

std::string description_of(const KernelCode& code) {
  nlohmann::ordered_json arithmetic;
  for (const std::string& dtype : code.dtypes) {
    const std::string wide = wide_format(dtype);
    auto& declared = arithmetic[dtype];
    declared["products"]["default"] = {{"accumulator", wide}, {"truncates", false}};
    for (const auto& [key, value] : code.arithmetic(dtype)) {
      std::visit([&, &name = key](const auto& v) { declared[name] = v; }, value);
    }
  }
  nlohmann::ordered_json description = {
      {"name", code.name},
      {"version", "0.1.0"},
      {"vendor", "The Attest authors"},
      {"profiles",
       {"forward-core", "training-core", "training-full", "masks", "sparse-masks", "scores",
        "dropout", "dropout-generated", "varlen", "packed", "paged", "layouts"}},
      {"dtypes", code.dtypes},
      {"features", std::vector<std::string>(std::begin(kAllFeatures), std::end(kAllFeatures))},
      {"keep_quantum", 0x1p-32},
      {"alignment", 8},
      {"threads", true},
      {"arithmetic", arithmetic},
  };
  if (std::count(code.dtypes.begin(), code.dtypes.end(), "f64") > 0) {
    description["profiles"].push_back("double");
  }
  if (code.takes_stored) {
    for (const char* const feature : kStoredFeatures) description["features"].push_back(feature);
    description["profiles"].push_back("stored");
    description["profiles"].push_back("stored-int8");
    description["profiles"].push_back("stored-bfp8");
    description["profiles"].push_back("stored-mxfp8");
  }
  const bool is_invariant = std::all_of(arithmetic.begin(), arithmetic.end(), [](const auto& of) {
    return of.value("form_invariant", false);
  });
  if (is_invariant) description["profiles"].push_back("invariant");
  if (code.longest) description["limits"]["pairs"]["max"] = *code.longest * *code.longest;
  if (code.schedule) {
    const ScheduleDeclaration declared = code.schedule();
    auto& schedule = description["schedule"];
    schedule["masks_partial_only"] = declared.masks_partial_only;
    if (declared.imbalance) schedule["imbalance"] = *declared.imbalance;
    description["profiles"].push_back("schedule");
  }
  if (code.memory) {
    const MemoryDeclaration declared = code.memory();
    description["memory"] = {{"growth", declared.growth}, {"workspace", declared.workspace}};
    description["profiles"].push_back("memory");
  }
  return description.dump();
}

}  // namespace attest::impl
