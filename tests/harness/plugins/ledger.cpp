// Kernels that report their blocks and declare their memory, each with a fault of its own:
// causal attention in blocks of 16 x 16, whose rows of blocks are dealt to the workers in turn.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/plain_kernel.h"
#include "tests/harness/plugins/table.h"

namespace {

constexpr std::int64_t kSide = 16;
constexpr std::size_t kBytesPerPair = 24;

enum class Fault {
  none,
  misses,      // a block of the forward pass
  misses_dq,   // one of the second pass of the backward call
  doubles,     // a block
  visits,      // a block that is wholly masked
  lies,        // calls a full block masked
  imbalanced,  // one worker reports all
  hoards,      // takes memory for each pair that it doesn't declare
  grows,       // declares more than enough, and calls that linear
  delegates,   // as hoards, in a process of its own
  keeps,       // uses memory that it took when it was loaded
  files,       // as hoards, in a file in memory that it does not map
};

struct Kernel {
  const char* name;
  Fault fault;
  std::string description;
};

std::string describe(const std::string& name, Fault fault) {
  const std::string own = fault == Fault::grows ? "\"own\": {\"fixed\": 1e9}," : "";
  return "{\"name\": \"" + name +
         "\", \"version\": \"1\", \"vendor\": \"test\", \"profiles\": [], \"dtypes\": [\"f32\"],"
         "\"features\": [\"lse\", \"causal\", \"backward\"], \"alignment\": 4,"
         "\"schedule\": {\"masks_partial_only\": true, \"imbalance\": 1.4},"
         "\"memory\": {\"growth\": \"linear\"," +
         own + "\"workspace\": {\"per_query\": 4}}}";
}

Kernel make(const char* name, Fault fault) { return {name, fault, describe(name, fault)}; }

std::array<Kernel, 12> g_kernels = {make("ledger/none", Fault::none),
                                    make("ledger/misses", Fault::misses),
                                    make("ledger/misses_dq", Fault::misses_dq),
                                    make("ledger/doubles", Fault::doubles),
                                    make("ledger/visits", Fault::visits),
                                    make("ledger/lies", Fault::lies),
                                    make("ledger/imbalanced", Fault::imbalanced),
                                    make("ledger/hoards", Fault::hoards),
                                    make("ledger/grows", Fault::grows),
                                    make("ledger/delegates", Fault::delegates),
                                    make("ledger/keeps", Fault::keeps),
                                    make("ledger/files", Fault::files)};

std::vector<char> g_kept(std::size_t(32) << 20, 1);

const Kernel& self(const attest_kernel* kernel) {
  return *static_cast<const Kernel*>(kernel->self);
}

void report_row(const attest_problem& p, const attest_context& context, Fault fault, int pass,
                std::int64_t worker, std::int64_t h, std::int64_t row) {
  const auto end = [&](std::int64_t block) { return std::min((block + 1) * kSide, p.query_len); };
  const bool faulty = h == 1 && row == 2 && pass != 1;
  const std::int64_t last = faulty && fault == Fault::visits ? row + 1 : row;
  for (std::int64_t column = 0; column <= last; ++column) {
    const bool here = faulty && column == 1;
    if (here && fault == Fault::misses && pass == 0) continue;
    if (here && fault == Fault::misses_dq && pass == 2) continue;
    const attest_block block = {.struct_size = sizeof(attest_block),
                                .worker = fault == Fault::imbalanced ? 0 : worker,
                                .batch = 0,
                                .head = h,
                                .query_begin = row * kSide,
                                .query_end = end(row),
                                .key_begin = column * kSide,
                                .key_end = end(column),
                                .masked = column >= row || (here && fault == Fault::lies),
                                .backward = pass};
    context.trace(context.trace_context, &block);
    if (here && fault == Fault::doubles) context.trace(context.trace_context, &block);
  }
}

void report(const attest_problem& p, const attest_context& context, Fault fault, bool backward) {
  if (!context.trace) return;
  const std::int64_t rows = (p.query_len + kSide - 1) / kSide;
  std::vector<std::thread> workers;
  for (std::int64_t worker = 0; worker < context.threads; ++worker) {
    workers.emplace_back([&, worker] {
      for (std::int64_t task = worker; task < rows * p.query_heads; task += context.threads) {
        for (const int pass : backward ? std::vector{1, 2} : std::vector{0}) {
          report_row(p, context, fault, pass, worker, task / rows, task % rows);
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

void take_memory(const attest_problem& p, Fault fault) {
  if (fault == Fault::keeps) std::memset(g_kept.data(), 2, g_kept.size());
  if (fault == Fault::delegates) {
    const pid_t child = fork();
    if (child == 0) {
      take_memory(p, Fault::hoards);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  if (fault == Fault::files) {
    const int file = memfd_create("scratch", 0);
    const std::vector<char> scratch(
        static_cast<std::size_t>(p.batch * p.query_heads * p.query_len) * kBytesPerPair, 1);
    for (std::int64_t j = 0; j < p.key_len; ++j) {
      if (write(file, scratch.data(), scratch.size()) < 0) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // as if it worked on it
    close(file);
  }
  if (fault != Fault::hoards && fault != Fault::grows) return;
  const auto pairs = static_cast<std::size_t>(p.batch * p.query_heads * p.query_len * p.key_len);
  auto* hoard = static_cast<char*>(std::malloc(pairs * kBytesPerPair));
  std::memset(hoard, 1, pairs * kBytesPerPair);
  volatile char kept = hoard[pairs];  // or the compiler leaves all of it out
  static_cast<void>(kept);
  std::free(hoard);
}

attest_kernel table_entry(Kernel& kernel) {
  return {.struct_size = sizeof(attest_kernel),
          .name = kernel.name,
          .self = &kernel,
          .describe = [](const attest_kernel* k) { return self(k).description.c_str(); },
          .supports = [](const attest_kernel*, const attest_problem*, char*,
                         std::uint64_t) { return std::int32_t(1); },
          .workspace =
              [](const attest_kernel*, const attest_problem* p, std::int32_t, std::int32_t) {
                return 4 * static_cast<std::uint64_t>(p->batch * p->query_heads * p->query_len);
              },
          .forward =
              [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                 const attest_outputs* out, const attest_context* context) {
                take_memory(*p, self(k).fault);
                report(*p, *context, self(k).fault, false);
                return attest::plain::forward(*p, *in, *out, *context);
              },
          .backward =
              [](const attest_kernel* k, const attest_problem* p, const attest_inputs* in,
                 const attest_outputs* out, const attest_context* context) {
                report(*p, *context, self(k).fault, true);
                return attest::plain::backward(*p, *in, *out, *context);
              }};
}

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  return attest::plugin_of(g_kernels, table_entry);
}
