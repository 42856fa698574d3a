// A plug-in whose kernel is a GoogleMock: what the harness asks of it, and what it does, is up to
// the test.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <string>

#include "spec/attest_plugin.h"

namespace attest {

class MockPlugin {
 public:
  // The reason of a refusal; "ok" supports.
  MOCK_METHOD(std::string, supports, (const attest_problem&), ());
  MOCK_METHOD(attest_status, forward,
              (const attest_problem&, const attest_inputs&, const attest_outputs&,
               const attest_context&),
              ());
  MOCK_METHOD(attest_status, backward,
              (const attest_problem&, const attest_inputs&, const attest_outputs&,
               const attest_context&),
              ());

  std::string description = "{}";
  std::uint64_t workspace_bytes = 0;

  MockPlugin() {
    ON_CALL(*this, supports).WillByDefault(testing::Return("ok"));
    kernel_ = {
        .struct_size = sizeof(attest_kernel),
        .name = "mock",
        .self = this,
        .describe = [](const attest_kernel* k) { return self(k).description.c_str(); },
        .supports =
            [](const attest_kernel* k, const attest_problem* p, char* reason, std::uint64_t bytes) {
              const std::string text = self(k).supports(*p);
              std::snprintf(reason, bytes, "%s", text == "ok" ? "" : text.c_str());
              return std::int32_t(text == "ok");
            },
        .workspace = [](const attest_kernel* k, const attest_problem*, std::int32_t,
                        std::int32_t) { return self(k).workspace_bytes; },
        .forward = [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                      const attest_outputs* out,
                      const attest_context* c) { return self(k).forward(*p, *in, *out, *c); },
        .backward = [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                       const attest_outputs* out,
                       const attest_context* c) { return self(k).backward(*p, *in, *out, *c); }};
    kernels_ = {&kernel_};
    plugin_ = {.struct_size = sizeof(attest_plugin),
               .abi_version = ATTEST_ABI_VERSION,
               .kernel_count = 1,
               .kernels = kernels_.data(),
               .absent_kernels = nullptr,
               .absent_kernel_count = 0,
               .reserved = 0};
  }

  attest_plugin& plugin() { return plugin_; }
  attest_kernel& kernel() { return kernel_; }

 private:
  static MockPlugin& self(const attest_kernel* kernel) {
    return *static_cast<MockPlugin*>(kernel->self);
  }

  attest_kernel kernel_{};
  std::array<const attest_kernel*, 1> kernels_{};
  attest_plugin plugin_{};
};

}  // namespace attest
