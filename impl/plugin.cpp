#include "impl/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "impl/accept.h"

namespace attest::impl {
namespace {

// ---- The functions of the table ----------------------------------------------------------------

const Kernel& itself(const attest_kernel* kernel) {
  return *static_cast<const Kernel*>(kernel->self);
}

// How many threads are worth their start. It depends on nothing but the problem, so that the
// workspace asked for is the workspace used.
int workers_for(const attest_problem& p, std::int32_t threads) {
  constexpr double kWorthwhile = 1 << 20;  // multiply-adds of each: a quarter of a millisecond
  const double work = double(p.batch) * double(p.query_heads) * double(p.query_len) *
                      double(p.key_len) * double(p.head_dim + p.value_dim);
  return static_cast<int>(std::max(1.0, std::min<double>(threads, work / kWorthwhile)));
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

const char* describe(const attest_kernel* kernel) { return itself(kernel).description.c_str(); }

std::int32_t supports(const attest_kernel* kernel, const attest_problem* problem, char* reason,
                      std::uint64_t reason_bytes) {
  return guarded(reason, reason_bytes, [&] { accept(itself(kernel).code, problem); });
}

// Bytes for all workers; throws if they cannot be counted.
std::uint64_t workspace_for(const KernelCode& code, const Call& call, bool backward) {
  const std::uint64_t shared = code.shared_workspace ? code.shared_workspace(call, backward) : 0;
  std::uint64_t bytes;
  if (__builtin_mul_overflow(code.workspace(call, backward),
                             static_cast<std::uint64_t>(call.workers), &bytes) ||
      __builtin_add_overflow(bytes, shared, &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

std::uint64_t workspace(const attest_kernel* kernel, const attest_problem* problem,
                        std::int32_t backward, std::int32_t threads) {
  std::uint64_t bytes = UINT64_MAX;  // for a problem that is refused or beyond all memory
  guarded(nullptr, 0, [&] {
    const KernelCode& code = itself(kernel).code;
    Call call = accept(code, problem);
    call.target = code.target;
    call.context.threads = threads;
    call.workers = workers_for(call.problem, threads);
    bytes = workspace_for(code, call, backward != 0);
  });
  return bytes;
}

attest_status run(const attest_kernel* kernel, const attest_problem* problem,
                  const attest_inputs* inputs, const attest_outputs* outputs,
                  const attest_context* context, bool backward) {
  if (!context || context->struct_size < kContextSize) return ATTEST_ERROR;  // nobody to tell
  const bool done = guarded(context->message, context->message_bytes, [&] {
    const KernelCode& code = itself(kernel).code;
    Call call = accept(code, problem);
    call.target = code.target;
    call.context = read(context, kContextSize, "attest_context");
    call.workers = workers_for(call.problem, call.context.threads);
    accept_tensors(inputs, outputs, backward, call);
    const std::uint64_t needed = workspace_for(code, call, backward);
    if (needed > call.context.workspace_bytes || (needed > 0 && !call.context.workspace)) {
      throw std::runtime_error(fmt::format("the workspace has {} bytes instead of {}",
                                           call.context.workspace_bytes, needed));
    }
    (backward ? code.backward : code.forward)(call);
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

}  // namespace

Kernel::Kernel(const KernelCode& the_code)
    : code(the_code),
      description(description_of(code)),
      table{sizeof(attest_kernel),
            code.name.c_str(),
            this,
            &describe,
            &supports,
            &workspace,
            &forward,
            &backward} {}

Plugin::Plugin(const std::vector<KernelCode>& codes, std::vector<AbsentKernel> absent)
    : absent_(std::move(absent)) {
  for (const KernelCode& code : codes) tables_.push_back(&kernels_.emplace_back(code).table);
  for (const AbsentKernel& each : absent_) {
    absent_tables_.push_back({sizeof(attest_absent_kernel), each.name.c_str(), each.why.c_str()});
  }
  for (const attest_absent_kernel& each : absent_tables_) absent_list_.push_back(&each);
  plugin_ = {sizeof(attest_plugin),
             ATTEST_ABI_VERSION,
             static_cast<std::uint32_t>(tables_.size()),
             tables_.data(),
             absent_list_.data(),
             static_cast<std::uint32_t>(absent_list_.size()),
             0};
}

}  // namespace attest::impl
