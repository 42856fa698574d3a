// What a kernel may get wrong that is tried on few heads alone: "far_keys/lost" loses all keys from
// number 4096 on where there are 32 query heads, as when a split is counted in a grid that is full
// then; "far_keys/none" is the same kernel without that. In f32, forward.
#include <array>
#include <cstdio>
#include <string>

#include "tests/harness/plain_kernel.h"
#include "tests/harness/plugins/table.h"

namespace {

constexpr std::int64_t kHeads = 32, kKeys = 4096;

struct Kernel {
  const char* name;
  bool loses;
  std::string description;
};

Kernel make(const char* name, bool loses) {
  return {
      name, loses,
      std::string("{\"name\": \"") + name +
          "\", \"version\": \"1\", \"vendor\": \"test\", \"profiles\": [\"forward-core\"],"
          "\"dtypes\": [\"f32\"], \"alignment\": 4, \"features\": [\"lse\", \"causal\", \"gqa\","
          "\"value-dim\", \"strides\", \"zero-sizes\", \"any-scale\"], \"arithmetic\": {}}"};
}

std::array<Kernel, 2> g_kernels = {make("far_keys/none", false), make("far_keys/lost", true)};

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
              [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                 const attest_outputs* out, const attest_context* context) {
                attest_problem seen = *p;
                const bool loses = static_cast<const Kernel*>(k->self)->loses;
                if (loses && p->query_heads == kHeads && p->key_len > kKeys) seen.key_len = kKeys;
                return attest::plain::forward(seen, *in, *out, *context);
              },
          .backward = nullptr};
}

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  return attest::plugin_of(g_kernels, table_entry);
}
