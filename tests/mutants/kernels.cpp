#include "tests/mutants/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/dtype.h"
#include "spec/feature.h"
#include "tests/mutants/call.h"

namespace attest::mutants {
namespace {

const Mutant& mutant_of(const attest_kernel* kernel) {
  return *static_cast<const Mutant*>(kernel->self);
}
FaultId fault_of(const attest_kernel* kernel) { return FaultId(*mutant_of(kernel).fault); }

// ---- What a kernel declares ---------------------------------------------------------------------

std::string arithmetic(Base base, const std::string& dtype) {
  const bool textbook = base == Base::textbook;
  const std::string narrow = textbook ? "f32" : dtype;
  return fmt::format(
      R"("{}": {{"products": {{"default": {{"accumulator": "f32", "truncates": false}}}},
          "softmax": "f32", "exp_ulp": 1.25, "tanh_ulp": 3, "p": "{}", "p_normalised": "{}",
          "ds": "{}", "ds_from": "p", "ds_scaled": "after_rounding", "kv_splits": {},
          "rescales_output": {}, "key_block": {}, "subnormal_inputs": "kept",
          "subnormal_outputs": "kept", "output_rounding": "nearest", "deterministic": true,
          "thread_invariant": true, "batch_invariant": true, "form_invariant": {}}})",
      dtype, narrow, textbook ? "first" : "last", narrow, base == Base::split ? 16 : 1,
      base == Base::fa1, base == Base::split ? 0 : kTile, textbook);
}

// All but f64.
std::vector<std::string> all_formats() {
  std::vector<std::string> formats;
  for (const DType dtype : kDTypes) {
    if (dtype != DType::f64) formats.emplace_back(name(dtype));
  }
  return formats;
}

std::string all_features() {
  std::vector<std::string> names;
  for (const Feature& feature : features()) {
    if (feature.key == kOfFeatures) {
      names.push_back(fmt::format("\"{}\"", feature.name));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What a fault declares that its kernel says otherwise than the standard, and its kernel doesn't
// do.
std::string dialect(std::string_view fault, std::string_view features) {
  struct Declared {
    std::string_view fault, key, feature, value;
  };
  constexpr std::string_view kApart = R"({"as": "maximum_and_sum"})";
  constexpr Declared kDeclared[] = {
      {"inf_declared_zero_returned", "empty_rows", "lse", R"({"lse": "inf"})"},
      {"ones_declared_zero_returned", "empty_rows", "", R"({"o": 1})"},
      {"base_2_declared_natural_returned", "lse", "lse", R"({"base": 2})"},
      {"base_2_read_as_natural", "lse", "lse", R"({"base": 2})"},
      {"sum_misses_last_key", "lse", "lse", kApart},
      {"maximum_alone", "lse", "lse", kApart},
      {"maximum_in_base_2", "lse", "lse", kApart},
      {"sum_not_read", "lse", "lse", kApart},
      {"exclusive_window_read_as_inclusive", "window", "window",
       R"({"left": "exclusive", "right": "exclusive"})"},
      {"unlimited_window_read_as_none", "window", "window", R"({"unbounded": 0})"}};
  for (const Declared& each : kDeclared) {
    const bool has = each.feature.empty() ||
                     features.find(fmt::format("\"{}\"", each.feature)) != std::string_view::npos;
    if (each.fault == fault && has) return fmt::format("\"{}\": {},", each.key, each.value);
  }
  return "";
}

std::string description_in(const Host& host, const Mutant& mutant) {
  std::string formats;
  for (const std::string& dtype : all_formats()) {
    if (std::string(host.dtypes).find(fmt::format("\"{}\"", dtype)) == std::string::npos) continue;
    formats += (formats.empty() ? "" : ", ") + arithmetic(mutant.fault->base, dtype);
  }
  return fmt::format(
      R"({{"name": "{}", "version": "1", "vendor": "Attest's own tests", "profiles": [{}],
          "dtypes": [{}], "alignment": 4, "features": [{}], "limits": {},
          {} "arithmetic": {{{}}}}})",
      mutant.name, host.profiles, host.dtypes, host.features, host.limits,
      dialect(mutant.fault->name, host.features), formats);
}

std::string description_of(const Mutant& mutant) {
  if (mutant.host) return description_in(*mutant.host, mutant);
  const Base base = mutant.fault->base;
  const std::string_view fault = mutant.fault->name;
  // The tiled kernels report neither blocks nor memory.
  const std::string promises =
      base != Base::textbook ? ""
                             : fmt::format(
                                   R"("schedule": {{"masks_partial_only": true, "imbalance": 1.1}},
                   "memory": {{"growth": "linear",
                               "own": {{"fixed": {}, "per_query_channel": 36,
                                        "per_key_channel": 36}}}},)",
                                   fault == "grows" || fault == "grows_wide" ? 1 << 30 : 0);
  std::vector<std::string> arithmetics;
  for (const std::string& dtype : all_formats()) arithmetics.push_back(arithmetic(base, dtype));
  return fmt::format(
      R"({{"name": "{}", "version": "1", "vendor": "Attest's own tests",
          "profiles": ["forward-core", "training-core", "training-full", "masks", "sparse-masks",
                       "scores", "dropout", "dropout-generated", "varlen", "packed", "paged",
                       "layouts", "device"{}],
          "dtypes": ["{}"], "alignment": 4, "keep_quantum": 0.0001, "threads": true,
          "features": [{}], "limits": {{"pairs": {{"max": 268435456}}}},
          {} {} "arithmetic": {{{}}}}})",
      mutant.name, promises.empty() ? "" : R"(, "schedule", "memory")",
      fmt::join(all_formats(), R"(", ")"), all_features(), promises, dialect(fault, all_features()),
      fmt::join(arithmetics, ", "));
}

const char* describe(const attest_kernel* kernel) {
  auto& mutant = *static_cast<Mutant*>(kernel->self);
  if (mutant.description.empty()) mutant.description = description_of(mutant);
  return mutant.description.c_str();
}

std::int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  const FaultId fault = fault_of(kernel);
  const auto refuse = [&](const char* why) {
    std::snprintf(reason, reason_bytes, "%s", why);
    return 0;
  };
  if (problem->dtype == ATTEST_F64) return refuse("no f64");
  const Host* host = mutant_of(kernel).host;
  if (host && !host->takes(*problem)) return refuse(host->about);
  if (fault == "refuses" && problem->head_dim > 1) return refuse("not in the mood");
  if (fault == "refuses_empty_batch" && problem->batch == 0) return refuse("an empty batch");
  return fault != "refuses_silently";
}

std::uint64_t workspace(const attest_kernel* kernel, const attest_problem*, std::int32_t,
                        std::int32_t) {
  return fault_of(kernel) == "asks_for_more" ? 4096 : 0;
}

// ---- Calls --------------------------------------------------------------------------------------

// What is left of others in O: of a call beside it, of when it was captured, of the call before.
void misbehave_on_a_device(const Call& call, const attest_context& context,
                           const attest_tensor& o) {
  static Index rows_before = 0;  // of a worker, which makes one call at a time
  const Index rows = o.shape[2];
  const bool shared = call.has("scratch_of_all_streams") && context.mode == ATTEST_CALL_TWO_STREAMS;
  const bool baked = call.has("inputs_of_the_capture") && context.mode == ATTEST_CALL_GRAPH;
  const bool kept = call.has("grid_of_the_call_before") && rows > 1 && rows_before * 2 >= rows &&
                    (rows_before - 1) * 2 < rows && rows_before < rows;
  rows_before = rows;
  using Sizes = std::array<std::int64_t, 4>;
  static std::map<Sizes, Sizes> plans;
  const auto sizes = [](const std::int64_t* of) { return Sizes{of[0], of[1], of[2], of[3]}; };
  const bool planned =
      call.has("plan_without_strides") &&
      plans.emplace(sizes(o.shape), sizes(o.stride)).first->second != sizes(o.stride);
  if (!shared && !baked && !kept && !planned) return;
  const View view{o};
  for (Index b = 0; b < o.shape[0]; ++b) {
    for (Index h = 0; h < o.shape[1]; ++h) {
      for (Index i = kept ? (rows + 1) / 2 : 0; i < rows; ++i) {
        for (Index d = 0; d < o.shape[3]; ++d) {
          view.store(b, h, i, d, kept || planned ? 0 : kNan);
        }
      }
    }
  }
}

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  const FaultId fault = fault_of(kernel);
  const Told told(fault, *problem, *inputs, *outputs);
  const Call call(fault, told.problem, told.inputs, context->threads, backward);
  // A host that returns no LSE computes it all the same.
  attest_outputs returned = told.outputs;
  std::vector<float> lse;
  if (!returned.lse.data && !backward) {
    const attest_tensor& o = returned.o;
    returned.lse = {.data = nullptr,
                    .dtype = ATTEST_F32,
                    .reserved = 0,
                    .shape = {o.shape[0], o.shape[1], o.shape[2], 1},
                    .stride = {o.shape[1] * o.shape[2], o.shape[2], 1, 1},
                    .capacity_bytes = 0};
    lse.resize(at(elements(returned.lse)) + 1);
    returned.lse.data = lse.data();
    returned.lse.capacity_bytes = lse.size() * sizeof(float);
  }
  if (call.has("bad_status")) {
    std::snprintf(context->message, context->message_bytes, "the flux capacitor is empty");
    return ATTEST_ERROR;
  }
  misbehave(call, returned);
  const std::vector<char> scores = scores_in_secret(call);
  const bool textbook = fault.base() == Base::textbook;
  if (textbook) report_blocks(call, *context);
  if (call.has("default_stream") && context->mode == ATTEST_CALL_STREAM) return ATTEST_OK;
  if (backward) {
    (textbook ? textbook_backward : tiled_backward)(call, returned);
  } else {
    (textbook ? textbook_forward : tiled_forward)(call, returned);
    misbehave_on_a_device(call, *context, returned.o);
  }
  return ATTEST_OK;
}

attest_status forward(const attest_kernel* kernel, const attest_problem* problem,
                      const attest_inputs* inputs, const attest_outputs* outputs,
                      const attest_context* context) {
  return run(kernel, problem, inputs, outputs, context, false);
}

attest_status backward(const attest_kernel* kernel, const attest_problem* problem,
                       const attest_inputs* inputs, const attest_outputs* outputs,
                       const attest_context* context) {
  return run(kernel, problem, inputs, outputs, context, true);
}

}  // namespace

Kernels::Kernels(std::span<const Host> hosts) {
  const auto add = [&](const Host* host) {
    for (const Fault& fault : kFaults) {
      mutants_.push_back({.fault = &fault,
                          .host = host,
                          .name = fmt::format("{}/{}", host ? host->name : "mutant", fault.name)});
    }
  };
  if (hosts.empty()) add(nullptr);
  for (const Host& host : hosts) add(&host);
  for (Mutant& mutant : mutants_) {
    kernels_.push_back({.struct_size = sizeof(attest_kernel),
                        .name = mutant.name.c_str(),
                        .self = &mutant,
                        .describe = describe,
                        .supports = supports,
                        .workspace = workspace,
                        .forward = forward,
                        .backward = backward});
  }
  for (const attest_kernel& kernel : kernels_) pointers_.push_back(&kernel);
  plugin_ = {.struct_size = sizeof(attest_plugin),
             .abi_version = ATTEST_ABI_VERSION,
             .kernel_count = static_cast<std::uint32_t>(pointers_.size()),
             .kernels = pointers_.data(),
             .absent_kernels = nullptr,
             .absent_kernel_count = 0,
             .reserved = 0};
}

}  // namespace attest::mutants
