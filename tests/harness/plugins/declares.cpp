// Right kernels, in f32, that declare what not everybody may: "declares/lag" a maximum that lags,
// beyond the default column; "declares/beyond_caps" what nobody may, in words.
#include <array>
#include <cstdio>
#include <string>

#include "tests/harness/plain_kernel.h"
#include "tests/harness/plugins/table.h"

namespace {

struct Kernel {
  const char* name;
  std::string description;
};

Kernel make(const char* name, const std::string& declaration) {
  return {name, std::string("{\"name\": \"") + name +
                    "\", \"version\": \"1\", \"vendor\": \"test\","
                    "\"profiles\": [\"forward-core\"], \"dtypes\": [\"f32\"], \"alignment\": 4,"
                    "\"features\": [\"lse\", \"causal\", \"gqa\", \"value-dim\", \"strides\","
                    "\"zero-sizes\", \"any-scale\"]," +
                    declaration + "}"};
}

std::array<Kernel, 2> g_kernels = {
    make("declares/lag", R"("arithmetic": {"f32": {"max_lag": 5.5}})"),
    make("declares/beyond_caps", R"("beyond_caps": {"f32": "keeps scores in f16"})")};

attest_kernel table_entry(Kernel& kernel) {
  return {.struct_size = sizeof(attest_kernel),
          .name = kernel.name,
          .self = &kernel,
          .describe =
              [](const attest_kernel* k) {
                return static_cast<const Kernel*>(k->self)->description.c_str();
              },
          .supports =
              [](const attest_kernel*, const attest_problem* p, char* reason, std::uint64_t bytes) {
                const bool takes = p->dtype == ATTEST_F32 && p->backward == 0;
                if (!takes) std::snprintf(reason, bytes, "f32 forward alone");
                return std::int32_t(takes);
              },
          .workspace = [](const attest_kernel*, const attest_problem*, std::int32_t,
                          std::int32_t) { return std::uint64_t(0); },
          .forward =
              [](const attest_kernel*, const attest_problem* p, const attest_inputs* in,
                 const attest_outputs* out, const attest_context* context) {
                return attest::plain::forward(*p, *in, *out, *context);
              },
          .backward = nullptr};
}

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  return attest::plugin_of(g_kernels, table_entry);
}
