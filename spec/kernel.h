// A kernel of C++17 as a plug-in: what it declares, and a function or two.
//
//   #include <attest/kernel.h>
//
//   static void forward(const attest::Call& c) {
//     const auto q = c.q.view<float>(), o = c.o.view<float>();   // q(b, h, i, d), by strides
//     ... c.problem.causal(), c.problem.key_len_of(b), c.problem.sees(b, h, i, j) ...
//   }
//   ATTEST_KERNEL("mine", attest::declare().dtypes({"f32"}).features({"causal", "lse"})
//                             .limit("head_dim", {64, 128}).arithmetic("exact-f32"),
//                 forward)                                       // , backward
//
// is all of a shared library that `attest run --testee ./mine.so` judges; there is nothing to link
// with. A library may have several. What a kernel throws becomes the message of the verdict. All
// memory belongs to the host, and is there until the call returns (attest_plugin.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attest_plugin.h"
#include "kernel/declaration.h"
#include "kernel/problem.h"
#include "kernel/tensor.h"

namespace attest {

// One call. A tensor that is not there is false: `if (c.lse)`.
struct Call {
  Problem problem;
  attest_inputs inputs;    // as the host has them; the same tensors are
  attest_outputs outputs;  // members of their own, below
  attest_context context;
  bool backward;  // which of the passes this is
  Tensor q, k, v, bias, alibi_slopes, sink, keep;
  Tensor q_scale, k_scale, v_scale;  // of what is stored in 8 bits: see gather()
  Tensor o, lse, maximum, sum;  // to be written; of a backward call what the forward call returned
  Tensor d_o, d_lse;            // of a backward call
  Tensor dq, dk, dv, dbias, dsink;  // likewise, to be written
  std::int32_t threads;             // how many the kernel may use
  void* workspace;                  // of as many bytes as the declaration says

  Call(const attest_problem* the_problem, const attest_inputs* in, const attest_outputs* out,
       const attest_context* the_context, bool is_backward)
      : problem(the_problem),
        inputs(detail::read(in)),
        outputs(detail::read(out)),
        context(detail::read(the_context)),
        backward(is_backward) {
    q = inputs.q, k = inputs.k, v = inputs.v;
    q_scale = inputs.q_scale, k_scale = inputs.k_scale, v_scale = inputs.v_scale;
    bias = inputs.bias, alibi_slopes = inputs.alibi_slopes, sink = inputs.sink;
    keep = outputs.keep.data ? outputs.keep : inputs.keep;  // drawn by the kernel, or given
    o = backward ? inputs.o : outputs.o;
    lse = backward ? inputs.lse : outputs.lse;
    maximum = backward ? inputs.maximum : outputs.maximum;
    sum = backward ? inputs.sum : outputs.sum;
    d_o = inputs.d_o, d_lse = inputs.d_lse;
    dq = outputs.dq, dk = outputs.dk, dv = outputs.dv;
    dbias = outputs.dbias, dsink = outputs.dsink;
    threads = context.threads, workspace = context.workspace;
  }

  // Reports a block that a worker has computed, for kernels that declare a schedule.
  void report(attest_block block) const {
    block.struct_size = sizeof(block);
    if (context.trace) context.trace(context.trace_context, &block);
  }
};

using Pass = std::function<void(const Call&)>;

// Thrown by a pass that ends with another status than an error, and with just these words.
struct Failure : std::runtime_error {
  Failure(attest_status the_status, const std::string& what)
      : std::runtime_error(what), status(the_status) {}
  attest_status status;
};

// What the table of a plug-in points to. One for each ATTEST_KERNEL, as long as the library lives.
class Kernel {
 public:
  Kernel(std::string name, const Declaration& declaration, Pass forward, Pass backward = {})
      : name_(std::move(name)),
        description_(declaration.text(name_)),
        workspace_(declaration.workspace()),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        table_{sizeof(table_), name_.c_str(), this,        describe,
               supports,       bytes,         run_forward, backward_ ? run_backward : nullptr} {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const attest_kernel* table() const { return &table_; }

 private:
  static const Kernel& of(const attest_kernel* kernel) {
    return *static_cast<const Kernel*>(kernel->self);
  }
  static const char* describe(const attest_kernel* kernel) {
    return of(kernel).description_.c_str();
  }
  // Whoever asks has read the declaration, and asks for nothing else (CALL-1).
  static std::int32_t supports(const attest_kernel*, const attest_problem*, char*, std::uint64_t) {
    return 1;
  }
  static std::uint64_t bytes(const attest_kernel* kernel, const attest_problem* problem,
                             std::int32_t backward, std::int32_t threads) {
    const Declaration::Workspace& workspace = of(kernel).workspace_;
    if (!workspace) return 0;
    try {
      return workspace(Problem(problem), backward != 0, threads);
    } catch (...) {
      return UINT64_MAX;  // which no host has: it refuses the call
    }
  }
  static attest_status run_forward(const attest_kernel* kernel, const attest_problem* problem,
                                   const attest_inputs* inputs, const attest_outputs* outputs,
                                   const attest_context* context) {
    return run(of(kernel).forward_, problem, inputs, outputs, context, false);
  }
  static attest_status run_backward(const attest_kernel* kernel, const attest_problem* problem,
                                    const attest_inputs* inputs, const attest_outputs* outputs,
                                    const attest_context* context) {
    return run(of(kernel).backward_, problem, inputs, outputs, context, true);
  }

  // No exception crosses: its words do.
  static attest_status run(const Pass& pass, const attest_problem* problem,
                           const attest_inputs* inputs, const attest_outputs* outputs,
                           const attest_context* context, bool backward) {
    std::string what;
    attest_status status = ATTEST_ERROR;
    try {
      pass(Call(problem, inputs, outputs, context, backward));
      return ATTEST_OK;
    } catch (const Failure& failure) {
      what = failure.what();
      status = failure.status;
    } catch (const std::exception& error) {
      what = std::string("the kernel threw: ") + error.what();
    } catch (...) {
      what = "the kernel threw: what is no std::exception";
    }
    if (context->message_bytes > 0) {
      const std::size_t size = std::min<std::size_t>(what.size(), context->message_bytes - 1);
      std::memcpy(context->message, what.data(), size);
      context->message[size] = '\0';
    }
    return status;
  }

  std::string name_, description_;
  Declaration::Workspace workspace_;
  Pass forward_, backward_;
  attest_kernel table_;
};

namespace detail {

// Hidden, so that two libraries in one process have one each.
[[gnu::visibility("hidden")]] inline std::vector<const attest_kernel*>& kernels() {
  static std::vector<const attest_kernel*> all;
  return all;
}
[[gnu::visibility("hidden")]] inline const attest_plugin* plugin() {
  static attest_plugin plugin{};
  plugin.struct_size = sizeof(plugin);
  plugin.abi_version = ATTEST_ABI_VERSION;
  plugin.kernel_count = static_cast<std::uint32_t>(kernels().size());
  plugin.kernels = kernels().data();
  return &plugin;
}

struct Registered {
  Kernel kernel;
  template <class... Arguments>
  explicit Registered(Arguments&&... arguments) : kernel(std::forward<Arguments>(arguments)...) {
    kernels().push_back(kernel.table());
  }
};

}  // namespace detail

}  // namespace attest

// In every file that has a kernel, but the same; there only if it has one.
extern "C" ATTEST_EXPORT inline const attest_plugin* attest_plugin_get() {
  return attest::detail::plugin();
}

#define ATTEST_JOINED_(a, b) a##b
#define ATTEST_JOINED(a, b) ATTEST_JOINED_(a, b)

// ATTEST_KERNEL(name, declaration, forward[, backward]), once for each kernel, outside of
// functions. A pass is whatever can be called with a Call.
#define ATTEST_KERNEL(name, ...)                                                                  \
  static const ::attest::detail::Registered ATTEST_JOINED(attest_kernel_, __LINE__){name,         \
                                                                                    __VA_ARGS__}; \
  __attribute__((used)) static const attest_plugin_get_function ATTEST_JOINED(                    \
      attest_plugin_of_, __LINE__) = &attest_plugin_get;
