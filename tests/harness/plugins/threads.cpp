// Kernels that start threads for each head and wait for them: full attention, without lengths.
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/plain_kernel.h"
#include "tests/harness/plugins/table.h"

namespace {

struct Kernel {
  const char* name;
  int threads;  // for each head; 0: as many as the call may use
  std::string description;
};

Kernel make(const char* name, int threads) {
  return {name, threads,
          std::string("{\"name\": \"") + name +
              "\", \"version\": \"1\", \"vendor\": \"test\", \"profiles\": [], \"dtypes\": "
              "[\"f32\"], \"features\": [\"lse\"], \"alignment\": 4, \"threads\": true}"};
}

std::array<Kernel, 2> g_kernels = {make("threads/fork_join", 0), make("threads/short_lived", 64)};

const Kernel& self(const attest_kernel* kernel) {
  return *static_cast<const Kernel*>(kernel->self);
}

attest_tensor from(attest_tensor tensor, std::int64_t head, std::int64_t row) {
  tensor.data = static_cast<float*>(tensor.data) + head * tensor.stride[1] + row * tensor.stride[2];
  return tensor;
}

// Those rows of a head, as a problem of their own.
void attend(const attest_problem& p, const attest_inputs& in, const attest_outputs& out,
            const attest_context& context, std::int64_t head, std::int64_t first,
            std::int64_t end) {
  const std::int64_t group = head / (p.query_heads / p.key_heads);
  attest_problem part = p;
  part.query_heads = part.key_heads = 1;
  part.query_len = end - first;
  attest_inputs part_in = in;
  part_in.q = from(in.q, head, first);
  part_in.k = from(in.k, group, 0);
  part_in.v = from(in.v, group, 0);
  attest_outputs part_out = out;
  part_out.o = from(out.o, head, first);
  part_out.lse = from(out.lse, head, first);
  attest::plain::forward(part, part_in, part_out, context);
}

attest_status forward(const attest_kernel* kernel, const attest_problem* p, const attest_inputs* in,
                      const attest_outputs* out, const attest_context* context) {
  const int chosen = self(kernel).threads;
  const std::int64_t count = chosen > 0 ? chosen : context->threads;
  for (std::int64_t head = 0; head < p->query_heads; ++head) {
    std::vector<std::thread> threads;
    for (std::int64_t n = 0; n < count; ++n) {
      threads.emplace_back([=] {
        attend(*p, *in, *out, *context, head, p->query_len * n / count,
               p->query_len * (n + 1) / count);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return ATTEST_OK;
}

attest_kernel table_entry(Kernel& kernel) {
  return {.struct_size = sizeof(attest_kernel),
          .name = kernel.name,
          .self = &kernel,
          .describe = [](const attest_kernel* k) { return self(k).description.c_str(); },
          .supports = [](const attest_kernel*, const attest_problem* p, char* reason,
                         std::uint64_t size) -> std::int32_t {
            const bool takes = p->batch == 1 && p->mask_count == 1 &&
                               p->mask[0].kind == ATTEST_MASK_FULL && !p->query_lens.data &&
                               !p->key_lens.data && !p->cu_query_lens.data;
            if (!takes) std::snprintf(reason, size, "full attention of one batch element alone");
            return takes;
          },
          .workspace = [](const attest_kernel*, const attest_problem*, std::int32_t,
                          std::int32_t) { return std::uint64_t(0); },
          .forward = forward,
          .backward = nullptr};
}

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  return attest::plugin_of(g_kernels, table_entry);
}
