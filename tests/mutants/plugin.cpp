// The plug-in `mutants.so`: a kernel "mutant/NAME" for every fault of the catalogue, and the
// catalogue itself as JSON, for `attest selfcheck`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "spec/feature.h"
#include "tests/mutants/call.h"

namespace attest::mutants {
namespace {

FaultId fault_of(const attest_kernel* kernel) {
  return FaultId(*static_cast<const Fault*>(kernel->self));
}

// ---- What a kernel declares ---------------------------------------------------------------------

std::string arithmetic(Base base, const char* dtype) {
  const bool textbook = base == Base::textbook;
  return fmt::format(
      R"("{}": {{"products": {{"default": {{"accumulator": "f32", "truncates": false}}}},
          "softmax": "f32", "exp_ulp": 1.25, "tanh_ulp": 3, "p": "{}", "p_normalised": "{}",
          "ds": "{}", "ds_from": "p", "ds_scaled": "after_rounding", "kv_splits": {},
          "rescales_output": {}, "key_block": {}, "subnormal_inputs": "kept",
          "subnormal_outputs": "kept", "output_rounding": "nearest", "deterministic": true,
          "thread_invariant": true, "batch_invariant": true}})",
      dtype, textbook ? "f32" : dtype, textbook ? "first" : "last", textbook ? "f32" : dtype,
      base == Base::split ? 16 : 1, base == Base::fa1, base == Base::split ? 0 : kTile);
}

// All features but "long": they hold a row of scores, or all of them.
std::string known_but_long() {
  std::vector<std::string> names;
  for (const Feature& feature : features()) {
    if (feature.key == kOfFeatures && feature.name != "long") {
      names.push_back(fmt::format("\"{}\"", feature.name));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const char* describe(const attest_kernel* kernel) {
  static std::vector<std::string> texts(kFaults.size());
  const auto index =
      static_cast<std::size_t>(static_cast<const Fault*>(kernel->self) - kFaults.data());
  const Base base = kFaults[index].base;
  // The tiled kernels report neither blocks nor memory.
  const std::string promises =
      base != Base::textbook
          ? ""
          : fmt::format(
                R"("schedule": {{"masks_partial_only": true, "imbalance": 1.1}},
                   "memory": {{"growth": "linear",
                               "own": {{"fixed": {}, "per_query_channel": 36,
                                        "per_key_channel": 36}}}},)",
                fault_of(kernel) == "grows" || fault_of(kernel) == "grows_wide" ? 1 << 30 : 0);
  texts[index] = fmt::format(
      R"({{"name": "{}", "version": "1", "vendor": "Attest's own tests",
          "profiles": ["forward-core", "training-core", "training-full", "masks", "sparse-masks",
                       "scores", "dropout", "dropout-generated", "varlen", "packed", "paged",
                       "layouts"{}],
          "dtypes": ["f32", "f16", "bf16"], "alignment": 4, "keep_quantum": 0.0001, "threads": true,
          "features": [{}],
          {} "arithmetic": {{{}, {}, {}}}}})",
      kernel->name, promises.empty() ? "" : R"(, "schedule", "memory")", known_but_long(), promises,
      arithmetic(base, "f32"), arithmetic(base, "f16"), arithmetic(base, "bf16"));
  return texts[index].c_str();
}

std::int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  const FaultId fault = fault_of(kernel);
  const auto refuse = [&](const char* why) {
    std::snprintf(reason, reason_bytes, "%s", why);
    return 0;
  };
  if (problem->dtype == ATTEST_F64) return refuse("no f64");
  if (fault == "refuses" && problem->head_dim > 1) return refuse("not in the mood");
  if (fault == "refuses_empty_batch" && problem->batch == 0) return refuse("an empty batch");
  return fault != "refuses_silently";
}

std::uint64_t workspace(const attest_kernel* kernel, const attest_problem*, std::int32_t,
                        std::int32_t) {
  return fault_of(kernel) == "asks_for_more" ? 4096 : 0;
}

// ---- Calls --------------------------------------------------------------------------------------

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  const FaultId fault = fault_of(kernel);
  const Told told(fault, *problem, *inputs, *outputs);
  const Call call(fault, told.problem, told.inputs, context->threads, backward);
  if (call.has("bad_status")) {
    std::snprintf(context->message, context->message_bytes, "the flux capacitor is empty");
    return ATTEST_ERROR;
  }
  misbehave(call, told.outputs);
  const std::vector<char> scores = scores_in_secret(call);
  const bool textbook = fault.base() == Base::textbook;
  if (textbook) report_blocks(call, *context);
  if (backward) {
    (textbook ? textbook_backward : tiled_backward)(call, told.outputs);
  } else {
    (textbook ? textbook_forward : tiled_forward)(call, told.outputs);
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

struct Table {
  std::vector<std::string> names;
  std::vector<attest_kernel> kernels;
  std::vector<const attest_kernel*> pointers;
  attest_plugin plugin{};

  Table() {
    for (const Fault& fault : kFaults) names.push_back(std::string("mutant/") + fault.name);
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      kernels.push_back({.struct_size = sizeof(attest_kernel),
                         .name = names[i].c_str(),
                         .self = const_cast<Fault*>(&kFaults[i]),
                         .describe = describe,
                         .supports = supports,
                         .workspace = workspace,
                         .forward = forward,
                         .backward = backward});
    }
    for (const attest_kernel& kernel : kernels) pointers.push_back(&kernel);
    plugin = {.struct_size = sizeof(attest_plugin),
              .abi_version = ATTEST_ABI_VERSION,
              .kernel_count = static_cast<std::uint32_t>(pointers.size()),
              .kernels = pointers.data(),
              .absent_kernels = nullptr,
              .absent_kernel_count = 0,
              .reserved = 0};
  }
};

// ---- The catalogue as JSON ----------------------------------------------------------------------

// Texts stand in JSON as they are.
constexpr bool needs_no_escape(std::string_view text) {
  return text.find_first_of("\"\\\n") == std::string_view::npos;
}
static_assert(std::all_of(kFaults.begin(), kFaults.end(), [](const Fault& f) {
  return needs_no_escape(f.about) && needs_no_escape(f.id) && needs_no_escape(f.reference);
}));
static_assert(std::all_of(kInexpressible.begin(), kInexpressible.end(), [](const Inexpressible& i) {
  return needs_no_escape(i.reference) && needs_no_escape(i.why);
}));
static_assert(std::all_of(kEquivalent.begin(), kEquivalent.end(), [](const Equivalent& e) {
  return needs_no_escape(e.name) && needs_no_escape(e.why);
}));

// "MASK-3 EMPTY-1" as a list.
std::string words(std::string_view text) {
  std::string list;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

std::string catalogue() {
  std::string mutants, controls, inexpressible, equivalent;
  const auto add = [](std::string& list, const std::string& entry) {
    list += (list.empty() ? "" : ",\n") + entry;
  };
  for (const Fault& f : kFaults) {
    const std::string_view kind = f.kind;
    if (kind == "control") add(controls, fmt::format("\"mutant/{}\"", f.name));
    if (kind == "control" || kind == "harmless") continue;
    add(mutants,
        fmt::format(R"({{"name": "mutant/{}", "id": "{}", "class": "{}",
 "reference": "{}", "about": "{}", "clauses": [{}], "dtypes": [{}]}})",
                    f.name, f.id, f.kind, f.reference, f.about, words(f.clauses), words(f.dtypes)));
  }
  for (const Inexpressible& i : kInexpressible) {
    const std::string why = fmt::format("{} ({})", i.why, i.reference);
    add(inexpressible, fmt::format(R"({{"id": "{}", "why": "{}"}})", i.id, why));
  }
  for (const Equivalent& e : kEquivalent) {
    add(equivalent, fmt::format(R"({{"name": "{}", "why": "{}"}})", e.name, e.why));
  }
  return fmt::format(
      R"({{"mutants": [{}], "inexpressible": [{}], "equivalent": [{}], "controls": [{}]}})",
      mutants, inexpressible, equivalent, controls);
}

}  // namespace
}  // namespace attest::mutants

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const attest::mutants::Table table;
  return &table.plugin;
}

// {"mutants": [{"name", "id", "class", "reference", "about", "clauses", "dtypes"}],
//  "inexpressible": [{"id", "why"}], "equivalent": [{"name", "why"}], "controls":
//  [name]}
extern "C" ATTEST_EXPORT const char* attest_mutants(void);
extern "C" const char* attest_mutants(void) {
  static const std::string text = attest::mutants::catalogue();
  return text.c_str();
}
