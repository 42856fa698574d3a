#include "impl/plugin.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attest::impl {
namespace {

// ---- Reading what a host hands over ------------------------------------------------------------

// A struct as its maker knew it: fields that this plug-in doesn't know are ignored, fields that the
// host didn't know are 0. `needed` is the size without which a struct says too little.
template <class T>
T read(const T* given, std::size_t needed, const char* what) {
  if (!given || given->struct_size < needed) {
    throw std::runtime_error(
        fmt::format("{} is {} bytes long, which is shorter than the {} of ABI version {}", what,
                    given ? given->struct_size : 0, needed, ATTEST_ABI_VERSION));
  }
  T copy = {};
  std::memcpy(&copy, given, std::min(given->struct_size, sizeof(T)));
  return copy;
}

// Up to where each struct went when version 1 of the ABI was published.
constexpr std::size_t kProblemSize = offsetof(attest_problem, dropout_offset) + 8;
constexpr std::size_t kMaskSize = offsetof(attest_mask, table2) + sizeof(attest_tensor);
constexpr std::size_t kInputsSize = offsetof(attest_inputs, d_lse) + sizeof(attest_tensor);
constexpr std::size_t kOutputsSize = offsetof(attest_outputs, dsink) + sizeof(attest_tensor);
constexpr std::size_t kContextSize = offsetof(attest_context, trace_context) + sizeof(void*);

std::vector<attest_mask> read_mask(const attest_problem& problem) {
  std::vector<attest_mask> nodes;
  const auto* bytes = reinterpret_cast<const char*>(problem.mask);
  for (std::int64_t n = 0; n < problem.mask_count; ++n) {
    nodes.push_back(read(reinterpret_cast<const attest_mask*>(bytes), kMaskSize, "attest_mask"));
    bytes += problem.mask->struct_size;
  }
  return nodes;
}

// ---- Refusals ----------------------------------------------------------------------------------

bool given(const attest_tensor& tensor) { return tensor.data || tensor.dtype != 0; }

struct Refusal {
  const char* reason;
  bool (*applies)(const attest_problem& problem);
};

// What the kernels do not do, and what no kernel can.
constexpr Refusal kRefusals[] = {
    {"the dtype is none of f64, f32, f16 and bf16",
     [](const attest_problem& p) { return p.dtype < ATTEST_F64 || p.dtype > ATTEST_BF16; }},
    {"softcap is not supported", [](const attest_problem& p) { return p.softcap != 0; }},
    {"bias is not supported", [](const attest_problem& p) { return p.has_bias != 0; }},
    {"ALiBi is not supported", [](const attest_problem& p) { return p.has_alibi != 0; }},
    {"sinks are not supported", [](const attest_problem& p) { return p.has_sink != 0; }},
    {"the gradient through LSE is not supported",
     [](const attest_problem& p) { return p.has_dlse != 0; }},
    {"dropout is not supported",
     [](const attest_problem& p) { return p.dropout != ATTEST_DROPOUT_NONE; }},
    {"packed sequences are not supported",
     [](const attest_problem& p) { return given(p.cu_query_lens) || given(p.cu_key_lens); }},
    {"paged keys are not supported",
     [](const attest_problem& p) { return p.page_size != 0 || given(p.page_table); }},
    {"a size is negative",
     [](const attest_problem& p) {
       return std::min({p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim,
                        p.value_dim, p.mask_count}) < 0;
     }},
    {"the key heads do not divide the query heads",
     [](const attest_problem& p) {
       return p.key_heads == 0 ? p.query_heads != 0 : p.query_heads % p.key_heads != 0;
     }},
    {"the mask is missing", [](const attest_problem& p) { return p.mask_count > 0 && !p.mask; }},
};

const char* refusal(const attest_mask& node, std::int64_t index) {
  const auto is_child = [index](std::int64_t child) { return child >= 0 && child < index; };
  switch (node.kind) {
    case ATTEST_MASK_FULL:
    case ATTEST_MASK_DENSE:
      return nullptr;
    case ATTEST_MASK_BAND:
      return node.left < 0 || node.right < 0 ? "a band's width is negative" : nullptr;
    case ATTEST_MASK_ALL_OF:
    case ATTEST_MASK_ANY_OF:
      return is_child(node.first) && is_child(node.second)
                 ? nullptr
                 : "a mask's children do not stand before their parent";
    case ATTEST_MASK_PREFIX:
      return "prefix masks are not supported";
    case ATTEST_MASK_SEGMENTS:
      return "segment masks are not supported";
    case ATTEST_MASK_BLOCK_SPARSE:
      return "block-sparse masks are not supported";
    case ATTEST_MASK_DILATED:
      return "dilated masks are not supported";
    default:
      return "this kind of mask is not known";
  }
}

// The problem and its mask, read and found to be one that the kernels can run; throws the reason
// otherwise. Looks at no data.
Call accept(const attest_problem* problem) {
  Call call;
  call.problem = read(problem, kProblemSize, "attest_problem");
  for (const Refusal& refused : kRefusals) {
    if (refused.applies(call.problem)) throw std::runtime_error(refused.reason);
  }
  call.mask = read_mask(call.problem);
  for (std::size_t n = 0; n < call.mask.size(); ++n) {
    const char* reason = refusal(call.mask[n], static_cast<std::int64_t>(n));
    if (reason) throw std::runtime_error(reason);
  }
  return call;
}

// ---- Checking a call ---------------------------------------------------------------------------

std::uint64_t size_of(attest_dtype dtype) {
  switch (dtype) {
    case ATTEST_F64:
    case ATTEST_I64:
      return 8;
    case ATTEST_F32:
      return 4;
    case ATTEST_U8:
      return 1;
    default:
      return 2;
  }
}

struct Expected {
  const char* name;
  attest_dtype dtype;
  std::int64_t shape[4];
};

// Throws if a tensor is not what it must be; whether it is there is the caller's question.
void check(const attest_tensor& tensor, const Expected& expected) {
  if (tensor.dtype != expected.dtype) {
    throw std::runtime_error(
        fmt::format("{} has dtype {} instead of {}", expected.name, tensor.dtype, expected.dtype));
  }
  const std::int64_t* shape = expected.shape;
  if (!std::equal(shape, shape + 4, tensor.shape)) {
    throw std::runtime_error(fmt::format(
        "{} has the shape [{},{},{},{}] instead of [{},{},{},{}]", expected.name, tensor.shape[0],
        tensor.shape[1], tensor.shape[2], tensor.shape[3], shape[0], shape[1], shape[2], shape[3]));
  }
  if (std::any_of(shape, shape + 4, [](std::int64_t size) { return size == 0; })) return;
  if (!tensor.data) throw std::runtime_error(fmt::format("{} is missing", expected.name));
  std::uint64_t last = 0;  // the farthest element; strides may not count backwards
  for (int axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 1) continue;
    if (tensor.stride[axis] < 0) {
      throw std::runtime_error(fmt::format("{} has a negative stride", expected.name));
    }
    last += static_cast<std::uint64_t>((shape[axis] - 1) * tensor.stride[axis]);
  }
  if (last >= tensor.capacity_bytes / size_of(expected.dtype)) {
    throw std::runtime_error(fmt::format("{} reaches beyond its capacity of {} bytes",
                                         expected.name, tensor.capacity_bytes));
  }
}

// The lengths of a batch, from an optional tensor.
std::int64_t length_of(const attest_tensor& lens, std::int64_t batch, std::int64_t whole) {
  if (!lens.data) return whole;
  std::int64_t length;
  std::memcpy(&length, static_cast<const char*>(lens.data) + 8 * batch * UsedStrides(lens).axes[0],
              sizeof length);
  if (length < 0 || length > whole) {
    throw std::runtime_error(fmt::format("the length {} is not within 0..{}", length, whole));
  }
  return length;
}

void check_mask(const Call& call) {
  const attest_problem& p = call.problem;
  const std::int64_t whole[4] = {p.batch, p.query_heads, p.query_len, p.key_len};
  for (const attest_mask& node : call.mask) {
    if (node.kind != ATTEST_MASK_DENSE) continue;
    Expected expected = {"the mask's table", ATTEST_U8, {}};
    for (int axis = 0; axis < 4; ++axis) {
      expected.shape[axis] = node.table.shape[axis] == 1 ? 1 : whole[axis];
    }
    check(node.table, expected);
  }
}

void read_lengths(Call& call) {
  const attest_problem& p = call.problem;
  if (p.query_lens.data) check(p.query_lens, {"query_lens", ATTEST_I64, {p.batch, 1, 1, 1}});
  if (p.key_lens.data) check(p.key_lens, {"key_lens", ATTEST_I64, {p.batch, 1, 1, 1}});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    call.lengths.push_back(
        {length_of(p.query_lens, b, p.query_len), length_of(p.key_lens, b, p.key_len)});
  }
}

void check_tensors(const Call& call, bool backward) {
  const attest_problem& p = call.problem;
  const attest_dtype wide = p.dtype == ATTEST_F64 ? ATTEST_F64 : ATTEST_F32;
  const auto check_q = [&](const attest_tensor& tensor, const char* name) {
    check(tensor, {name, p.dtype, {p.batch, p.query_heads, p.query_len, p.head_dim}});
  };
  const auto check_k = [&](const attest_tensor& tensor, const char* name) {
    check(tensor, {name, p.dtype, {p.batch, p.key_heads, p.key_len, p.head_dim}});
  };
  const auto check_v = [&](const attest_tensor& tensor, const char* name) {
    check(tensor, {name, p.dtype, {p.batch, p.key_heads, p.key_len, p.value_dim}});
  };
  const auto check_o = [&](const attest_tensor& tensor, const char* name) {
    check(tensor, {name, p.dtype, {p.batch, p.query_heads, p.query_len, p.value_dim}});
  };
  const auto check_lse = [&](const attest_tensor& tensor) {
    check(tensor, {"lse", wide, {p.batch, p.query_heads, p.query_len, 1}});
  };
  check_q(call.inputs.q, "q");
  check_k(call.inputs.k, "k");
  check_v(call.inputs.v, "v");
  if (backward) {
    check_o(call.inputs.o, "o");
    check_o(call.inputs.d_o, "d_o");
    check_lse(call.inputs.lse);
    if (call.outputs.dq.data) check_q(call.outputs.dq, "dq");
    if (call.outputs.dk.data) check_k(call.outputs.dk, "dk");
    if (call.outputs.dv.data) check_v(call.outputs.dv, "dv");
  } else {
    check_o(call.outputs.o, "o");
    check_lse(call.outputs.lse);
  }
}

// ---- The functions of the table ----------------------------------------------------------------

const Plugin& plugin_of(const attest_kernel* kernel) {
  return *static_cast<const Plugin*>(kernel->self);
}

// How many threads are worth their start. It depends on nothing but the problem, so that the
// workspace asked for is the workspace used.
int workers_for(const attest_problem& p, std::int32_t threads) {
  constexpr double kWorthwhile = 1 << 22;  // multiply-adds: about a millisecond
  const double work = double(p.batch) * double(p.query_heads) * double(p.query_len) *
                      double(p.key_len) * double(p.head_dim + p.value_dim);
  return work < kWorthwhile ? 1 : std::max(1, static_cast<int>(threads));
}

void say(const char* text, char* message, std::uint64_t bytes) {
  if (!message || bytes == 0) return;
  const std::uint64_t length = std::min<std::uint64_t>(std::strlen(text), bytes - 1);
  std::memcpy(message, text, length);
  message[length] = 0;
}

// Runs `work`; whatever it throws ends here, and its words go to the host.
template <class Work>
bool guarded(char* message, std::uint64_t bytes, Work work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    say(error.what(), message, bytes);
  } catch (...) {
    say("an unknown exception", message, bytes);
  }
  return false;
}

const char* describe(const attest_kernel* kernel) {
  return plugin_of(kernel).description().c_str();
}

std::int32_t supports(const attest_kernel*, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  return guarded(reason, reason_bytes, [&] { accept(problem); });
}

// Bytes for all workers; throws if they cannot be counted.
std::uint64_t workspace_for(const Plugin& plugin, const Call& call, bool backward, int workers) {
  std::uint64_t bytes;
  if (__builtin_mul_overflow(plugin.code().workspace(call, backward),
                             static_cast<std::uint64_t>(workers), &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

std::uint64_t workspace(const attest_kernel* kernel, const attest_problem* problem,
                        std::int32_t backward, std::int32_t threads) {
  std::uint64_t bytes = UINT64_MAX;  // for a problem that is refused or beyond all memory
  guarded(nullptr, 0, [&] {
    const Call call = accept(problem);
    bytes =
        workspace_for(plugin_of(kernel), call, backward != 0, workers_for(call.problem, threads));
  });
  return bytes;
}

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  if (!context || context->struct_size < kContextSize) return ATTEST_ERROR;  // nobody to tell
  const bool done = guarded(context->message, context->message_bytes, [&] {
    const Plugin& plugin = plugin_of(kernel);
    Call call = accept(problem);
    call.inputs = read(inputs, kInputsSize, "attest_inputs");
    call.outputs = read(outputs, kOutputsSize, "attest_outputs");
    call.context = read(context, kContextSize, "attest_context");
    call.workers = workers_for(call.problem, call.context.threads);
    check_tensors(call, backward);
    check_mask(call);
    read_lengths(call);
    const std::uint64_t needed = workspace_for(plugin, call, backward, call.workers);
    if (needed > call.context.workspace_bytes || (needed > 0 && !call.context.workspace)) {
      throw std::runtime_error(fmt::format("the workspace has {} bytes instead of {}",
                                           call.context.workspace_bytes, needed));
    }
    (backward ? plugin.code().backward : plugin.code().forward)(call);
  });
  return done ? ATTEST_OK : ATTEST_ERROR;
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

std::string description_of(const KernelCode& code) {
  const std::vector<std::string> dtypes = {"f64", "f32", "f16", "bf16"};
  nlohmann::ordered_json arithmetic;
  for (const std::string& dtype : dtypes) arithmetic[dtype] = code.arithmetic(dtype);
  const nlohmann::ordered_json description = {
      {"name", code.name},
      {"version", "0.1.0"},
      {"vendor", "The Attest authors"},
      {"profiles", {"forward-core", "training-core", "masks", "varlen", "layouts", "double"}},
      {"dtypes", dtypes},
      {"features",
       {"backward", "lse", "causal", "window", "dense-mask", "mask-and", "mask-or", "lengths",
        "gqa", "value-dim", "strides", "expanded", "transposed", "zero-sizes"}},
      {"alignment", 8},
      {"arithmetic", arithmetic},
  };
  return description.dump();
}

}  // namespace

Plugin::Plugin(const KernelCode& code)
    : code_(code),
      description_(description_of(code)),
      kernel_{sizeof(attest_kernel), code.name,      this, &describe, &supports, &workspace,
              &impl::forward,        &impl::backward},
      kernels_{&kernel_},
      plugin_{sizeof(attest_plugin), ATTEST_ABI_VERSION, 1, kernels_} {}

}  // namespace attest::impl
