#include "tests/legitimate/plugin.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "spec/description.h"
#include "spec/dtype.h"
#include "spec/json_text.h"
#include "spec/profile.h"
#include "tests/legitimate/decode.h"
#include "tests/legitimate/styles.h"

namespace attest::legitimate {
namespace {

std::string describe(const std::string& kernel, const bounds::Style& style) {
  nlohmann::json json = {{"name", kernel},
                         {"version", "1"},
                         {"vendor", "Attest's own tests"},
                         {"alignment", 1},
                         {"profiles", nlohmann::json::array()},
                         {"dtypes", nlohmann::json::array()},
                         {"features", known_features()}};
  for (const Profile& profile : profiles()) {
    if (profile.name != "schedule" && profile.name != "memory") {
      json["profiles"].push_back(std::string(profile.name) + "+declared");
    }
  }
  std::erase(json["features"].get_ref<nlohmann::json::array_t&>(), "long");
  const nlohmann::json dialect = parse_json(dialect_json(style));
  json.update(dialect);
  for (const DType dtype : kDTypes) {
    const std::string key(name(dtype));
    json["dtypes"].push_back(key);
    json["arithmetic"][key] = parse_json(arithmetic_json(style, dtype));
  }
  return json_text(json);
}

// A keep-mask drawn by a hash of seed and place.
Keep draw(const Problem& p) {
  Keep keep = {.shape = p.keep_shape()};
  for (Index n = 0; n < element_count(keep.shape); ++n) {
    std::uint64_t x = bounds::scramble(p.dropout.seed * 0x9e3779b97f4a7c15u + p.dropout.offset);
    for (const Index at : coordinates(keep.shape, n)) {
      x = bounds::scramble((x ^ static_cast<std::uint64_t>(at)) * 0xff51afd7ed558ccdu);
    }
    keep.kept.push_back(static_cast<double>(x >> 11) * 0x1p-53 >= p.dropout.probability);
  }
  return keep;
}

const Kernel& self(const attest_kernel* kernel) {
  return *static_cast<const Kernel*>(kernel->self);
}

// Windows as the standard has them, of those that cross in the style's own terms.
void translate_windows(Mask& mask, const WindowEnds& ends) {
  for (Mask& part : mask.parts) translate_windows(part, ends);
  const bool causal = mask.left == kUnbounded && mask.right == 0;
  if (mask.kind != Mask::Kind::band || causal) return;
  const auto end = [&](Index number, bool exclusive) {
    return number == ends.unbounded ? kUnbounded : exclusive ? number - 1 : number;
  };
  if (ends.centred && mask.left != ends.unbounded) {
    const Index width = mask.left;
    mask.left = width / 2;
    mask.right = width - 1 - mask.left;
    return;
  }
  mask.left = end(mask.left, ends.left_exclusive);
  mask.right = end(mask.right, ends.right_exclusive);
}
Problem in_standard_terms(const attest_kernel* kernel, Problem p) {
  translate_windows(p.mask, self(kernel).style.window);
  return p;
}

std::int32_t supports(const attest_kernel* kernel, const attest_problem* given, char* reason,
                      std::uint64_t reason_bytes) {
  std::string why;
  if (!dtype_numbered(given->dtype)) {
    why = "formats of 8 bits are not simulated";
  } else if (std::max(given->query_len, given->key_len) > kLong) {
    why = "all scores of a head are kept";
  } else if (const auto defect = defect_of(in_standard_terms(kernel, problem_of(*given)))) {
    why = fmt::format("{}: {}", defect->clause, defect->what);
  }
  std::snprintf(reason, reason_bytes, "%s", why.c_str());
  return why.empty();
}

attest_status run(const attest_kernel* kernel, const attest_problem& given, const attest_inputs& in,
                  const attest_outputs& out, const attest_context& context, bool backward) {
  try {
    const Problem p = in_standard_terms(kernel, problem_of(given, in, backward));
    Inputs inputs = inputs_of(p, in);
    if (p.dropout.mode == Dropout::Mode::generated && !backward) {
      inputs.keep = draw(p);
      write(out.keep, inputs.keep);
    }
    bounds::Outputs forward;
    if (backward) {
      forward.o = values_of(in.o, p.dtype).data;
      forward.lse = values_of(in.lse, p.lse_dtype()).data;
      forward.maximum = values_of(in.maximum, p.lse_dtype()).data;
      forward.sum = values_of(in.sum, p.lse_dtype()).data;
    }
    const bounds::Outputs results =
        bounds::run_kernel(p, inputs, bounds::visible_elements(p, inputs),
                           in_format(self(kernel).style, p.dtype), backward ? &forward : nullptr);
    if (!backward) {
      write(out.o, p.dtype, results.o);
      write(out.lse, p.lse_dtype(), results.lse);
      write(out.maximum, p.lse_dtype(), results.maximum);
      write(out.sum, p.lse_dtype(), results.sum);
      return ATTEST_OK;
    }
    write(out.dq, p.dtype, results.dq);
    write(out.dk, p.dtype, results.dk);
    write(out.dv, p.dtype, results.dv);
    write(out.dbias, p.dtype, results.dbias);
    write(out.dsink, DType::f32, results.dsink);
    return ATTEST_OK;
  } catch (const std::exception& error) {
    std::snprintf(context.message, context.message_bytes, "%s", error.what());
    return ATTEST_ERROR;
  }
}

}  // namespace

std::string name_of(const bounds::Style& style) {
  std::string result;
  for (const char c : style.name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.';
    if (plain) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!result.empty() && result.back() != '_') {
      result += '_';
    }
  }
  while (result.ends_with('_')) result.pop_back();
  return result;
}

Plugin::Plugin(const std::string& family, const std::vector<bounds::Style>& styles) {
  // What one call gives back, the next one takes.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
  for (const bounds::Style& style : styles) {
    Kernel& kernel = kernels_.emplace_back();
    kernel.style = style;
    kernel.name = family + "/" + name_of(style);
    kernel.description = describe(kernel.name, style);
    kernel.table = {
        .struct_size = sizeof(attest_kernel),
        .name = kernel.name.c_str(),
        .self = &kernel,
        .describe = [](const attest_kernel* k) { return self(k).description.c_str(); },
        .supports = supports,
        .workspace = [](const attest_kernel*, const attest_problem*, std::int32_t,
                        std::int32_t) -> std::uint64_t { return 0; },
        .forward = [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                      const attest_outputs* out,
                      const attest_context* c) { return run(k, *p, *in, *out, *c, false); },
        .backward = [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                       const attest_outputs* out,
                       const attest_context* c) { return run(k, *p, *in, *out, *c, true); }};
    tables_.push_back(&kernel.table);
  }
  plugin_ = {.struct_size = sizeof(attest_plugin),
             .abi_version = ATTEST_ABI_VERSION,
             .kernel_count = static_cast<std::uint32_t>(tables_.size()),
             .kernels = tables_.data(),
             .absent_kernels = nullptr,
             .absent_kernel_count = 0,
             .reserved = 0};
}

}  // namespace attest::legitimate
