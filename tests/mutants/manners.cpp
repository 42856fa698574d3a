// What a kernel does to its surroundings beside its work, and the blocks that it reports.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "tests/mutants/call.h"

namespace attest::mutants {
namespace {

void touch(const void* address) {
  static_cast<void>(*static_cast<const volatile std::uint8_t*>(address));
}

void read_beyond(const attest_tensor& t) {
  if (t.data) touch(static_cast<const std::byte*>(t.data) + t.capacity_bytes);
}

// One element after the last.
void write_beyond(const attest_tensor& t) {
  const Index* n = t.shape;
  if (!t.data || elements(t) == 0) return;
  std::byte* const last = View{t}.at(n[0] - 1, n[1] - 1, n[2] - 1, n[3] - 1);
  last[format_of(static_cast<DType>(t.dtype)).bytes] = std::byte{0};
}

// The rows that the last tile has beyond the last row.
void write_rest_of_tile(const attest_tensor& t) {
  const Index* n = t.shape;
  if (!t.data || elements(t) == 0) return;
  for (Index row = n[2]; row % kTile != 0; ++row) {
    for (Index d = 0; d < n[3]; ++d) View{t}.store(n[0] - 1, n[1] - 1, row, d, 0);
  }
}

// Nothing added to the row before the first: x + 0 is another x where subnormal numbers count as 0.
void add_0_to_row_before(const attest_tensor& t) {
  for (Index d = 0; t.data && d < t.shape[3]; ++d) {
    const float x = View{t}.load(0, 0, -1, d);
    const bool subnormal = x != 0 && std::abs(x) < smallest_normal(static_cast<DType>(t.dtype));
    View{t}.store(0, 0, -1, d, subnormal ? 0 : x);
  }
}

void remap(const attest_tensor& t) {
  const int fd = std::atoi(std::getenv("ATTEST_INPUT_FD"));
  void* base = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {  // as it should be; then by force
    const auto page = reinterpret_cast<std::uintptr_t>(t.data) & ~std::uintptr_t(4095);
    mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE);
    base = t.data;
  }
  *static_cast<volatile std::uint8_t*>(base) = 1;
}

bool has_unused_entry(const Call& call) {
  const attest_problem& p = call.problem();
  return call.paged() && p.batch > 0 &&
         p.page_table.shape[1] * p.page_size >= call.key_len(0) + p.page_size;
}

void read_outside(const Call& call, const attest_outputs& out) {
  const attest_problem& p = call.problem();
  const attest_inputs& in = call.inputs();
  const bool ragged = p.query_len % kTile != 0;
  if (call.has("reads_past_end")) read_beyond(in.v);
  if (call.has("key_tiles_past_end") && call.causal() && ragged) read_beyond(in.k);
  if (call.has("reads_128_channels") && p.head_dim < 128) read_beyond(in.q);
  if (call.has("heads_as_rows_reads_on") && p.query_len == 1 && p.key_heads == 1) {
    read_beyond(in.q);
  }
  if (call.has("sinks_rounded_up") && p.has_sink && p.query_heads % 8 != 0) read_beyond(in.sink);
  if (call.has("starts_past_end") && p.cu_query_lens.data) read_beyond(p.cu_query_lens);
  if (call.has("page_of_minus_1") && has_unused_entry(call) && in.k.data) {
    touch(static_cast<const std::byte*>(in.k.data) - 1);
  }
  if (call.has("writes_past_end")) write_beyond(out.o);
  if (call.has("stores_whole_tile") && ragged && !call.packed()) write_rest_of_tile(out.o);
  if (call.has("lse_stores_whole_tile") && ragged) write_rest_of_tile(out.lse);
  if (call.has("writes_before_start") && out.o.data) {
    static_cast<std::byte*>(out.o.data)[-1] = std::byte{0};
  }
  for (Index b = 0; call.has("zeros_of_a_whole_tile") && b < p.batch; ++b) {
    if (call.key_len(b) == 0) write_rest_of_tile(out.o);
  }
}

// Keeps a processor busy for so many of its seconds.
void compute_for(double seconds) {
  const auto spent = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  while (spent() < seconds) continue;
}

Index seen_pairs(const Call& call, const attest_block& block) {
  Index seen = 0;
  for (Index i = block.query_begin; i < block.query_end; ++i) {
    for (Index j = block.key_begin; j < block.key_end; ++j) {
      seen += call.sees(block.batch, block.head, i, j);
    }
  }
  return seen;
}

}  // namespace

void misbehave(const Call& call, const attest_outputs& out) {
  const attest_problem& p = call.problem();
  const attest_inputs& in = call.inputs();
  if (call.has("crash")) *static_cast<volatile int*>(nullptr) = 1;
  if (call.has("abort")) std::abort();
  if (call.has("exit_zero")) std::exit(0);
  if (call.has("divides_by_keys") && p.key_len == 0) std::raise(SIGFPE);
  const bool window = call.band() && call.band()->left != ATTEST_UNBOUNDED;
  if (call.has("crashes_outside_of_the_keys") && window && p.key_len > 0 && p.query_len > 0 &&
      call.sees_nothing(*call.band())) {
    std::abort();
  }
  while (call.has("hang") || (call.has("waits_for_page_of_minus_1") && has_unused_entry(call))) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (!call.backward()) read_outside(call, out);
  if (call.backward() && call.has("dq_stores_whole_tile") && p.query_len % kTile != 0) {
    write_rest_of_tile(out.dq);
  }
  if (call.backward() && call.has("sentinel_row_of_dk")) add_0_to_row_before(out.dk);
  if (call.has("writes_input")) *static_cast<volatile std::uint8_t*>(in.k.data) = 1;
  if (call.has("remaps_input")) remap(in.k);
  if (call.has("flood")) {
    const std::string line(1023, 'x');
    for (int i = 0; i < 4096; ++i) std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (call.has("hoards")) {
    for (;;) {
      constexpr std::size_t kChunk = std::size_t(16) << 20;
      std::memset(std::malloc(kChunk), 1, kChunk);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (call.has("threads_of_its_own")) {
    std::vector<std::thread> others;
    for (int i = 0; i < 4; ++i) others.emplace_back(compute_for, 0.25);
    for (std::thread& other : others) other.join();
  }
  if (call.has("leaves_child") && fork() == 0) {
    for (;;) pause();
  }
}

std::vector<char> scores_in_secret(const Call& call) {
  const attest_problem& p = call.problem();
  const bool keeps =
      call.has("keeps_scores") || call.has("grows") || (call.has("grows_wide") && p.head_dim > 256);
  return std::vector<char>(keeps ? at(p.batch * p.query_heads * p.query_len * p.key_len) : 0);
}

// The blocks of a call, dealt to the workers in turn: squares, where the mask leaves anything of
// them. The faults of a schedule are those of the first block that they can befall.
void report_blocks(const Call& call, const attest_context& context) {
  if (!context.trace) return;
  const attest_problem& p = call.problem();
  Index count = 0;
  const Index busy = call.has("imbalanced")     ? 1
                     : call.has("idle_workers") ? std::min<Index>(call.threads(), 3)
                                                : call.threads();
  bool done = false;  // the fault
  const auto report = [&](Index b, Index h, Index i, Index j) {
    attest_block block = {.struct_size = sizeof(attest_block),
                          .worker = count % busy,
                          .batch = b,
                          .head = h,
                          .query_begin = i,
                          .query_end = std::min(i + kTile, call.query_len(b)),
                          .key_begin = j,
                          .key_end = std::min(j + kTile, call.key_len(b)),
                          .masked = 0,
                          .backward = call.backward()};
    const Index seen = seen_pairs(call, block);
    const bool empty = seen == 0;
    block.masked = seen < (block.query_end - block.query_begin) * (block.key_end - block.key_begin);
    const bool befalls =
        !done &&
        ((call.has("misses_block") && h == p.query_heads - 1 && !empty) ||
         (call.has("doubles_block") && !empty) || (call.has("visits_masked_block") && empty) ||
         (call.has("masks_full_block") && !block.masked) ||
         (call.has("leaves_block_unmasked") && block.masked && !empty) ||
         (call.has("misses_backward_block") && call.backward() && !empty));
    done = done || befalls;
    if (befalls && call.fault().name().starts_with("misses")) return;
    if (befalls && !call.has("doubles_block")) block.masked = !block.masked;
    if (empty && !befalls) return;
    context.trace(context.trace_context, &block);
    if (befalls && call.has("doubles_block")) context.trace(context.trace_context, &block);
    ++count;
  };
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < call.query_len(b); i += kTile) {
        for (Index j = 0; j < call.key_len(b); j += kTile) report(b, h, i, j);
      }
    }
  }
}

}  // namespace attest::mutants
