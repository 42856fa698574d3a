// A kernel that is right, and does to its surroundings what the scale of its problem says: 1 + n/64
// for the n-th of kDeeds. What should be impossible is tried, and garbage returned if it was not.
#include "tests/harness/plugins/hostile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "tests/harness/plain_kernel.h"

namespace {

using attest::hostile::Deed;

// All that is hidden from a testee, or not its own. Whether any of it gave way.
bool breaks_in() {
  bool open = false;
  for (const char* path : {"/proc/1/mem", "/proc/1/environ"}) open |= ::open(path, O_RDWR) >= 0;
  open |= getppid() != 0 && ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr) == 0;
  return open;
}

bool resizes_shared_memory() {
  bool done = false;
  for (const char* name : {"ATTEST_INPUT_FD", "ATTEST_OUTPUT_FD"}) {
    const int fd = std::atoi(std::getenv(name));
    done |= ftruncate(fd, 0) == 0 || ftruncate(fd, off_t(1) << 40) == 0;
  }
  return done;
}

void overwrite(const attest_tensor& input) {
  const auto page = reinterpret_cast<std::uintptr_t>(input.data) & ~std::uintptr_t(4095);
  mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE);
  auto* first = static_cast<volatile std::uint8_t*>(input.data);
  *first = static_cast<std::uint8_t>(*first + 1);
}

// Lets what faulted go on.
void put_a_page(int, siginfo_t* info, void*) {
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~std::uintptr_t(4095);
  mmap(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// What comes before the work; whether something gave way that must not.
bool misbehave(Deed deed, const attest_inputs& in) {
  switch (deed) {
    case Deed::segfault:
      *static_cast<volatile int*>(nullptr) = 1;
      break;
    case Deed::kills_itself:
      std::raise(SIGKILL);
      break;
    case Deed::kills_all:
      kill(-1, SIGKILL);
      std::raise(SIGKILL);
      break;
    case Deed::stops_itself:
      std::raise(SIGSTOP);
      break;
    case Deed::exits:
      std::exit(0);
    case Deed::aborts:
      std::abort();
    case Deed::hangs:
      for (;;) pause();
    case Deed::dawdles:
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      break;
    case Deed::overwrites_input:
      overwrite(in.q);
      break;
    case Deed::resizes_memory:
      return resizes_shared_memory();
    case Deed::breaks_in:
      return breaks_in();
    case Deed::floods:
      for (int i = 0; i < 1024; ++i) std::fprintf(stderr, "%s\n", std::string(1023, 'x').c_str());
      break;
    case Deed::leaves_child:
      if (fork() == 0) {
        close(attest::hostile::kReplyFd);  // or hanging up would become a matter of time
        for (;;) pause();
      }
      break;
    case Deed::forks:  // and holds on to them
      for (int i = 0; i < 200; ++i) {
        if (fork() == 0) {
          for (;;) pause();
        }
      }
      for (;;) pause();
    case Deed::uses_up_descriptors:
      while (dup(STDERR_FILENO) >= 0) continue;
      break;
    case Deed::hoards:  // and holds on to it
      mmap(nullptr, std::size_t(96) << 20, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      for (;;) pause();
    case Deed::babbles: {
      const char text[] = "\5\0\0\0hello";
      if (write(attest::hostile::kReplyFd, text, sizeof text - 1) < 0) return true;
      break;
    }
    case Deed::hangs_up:
      close(attest::hostile::kReplyFd);
      break;
    default:
      break;
  }
  return false;
}

// What is done to the results.
void spoil(Deed deed, const attest_problem& p, const attest_outputs& out, const attest_inputs& in) {
  using attest::plain::element;
  float& last =
      element<float>(out.o, p.batch - 1, p.query_heads - 1, p.query_len - 1, p.value_dim - 1);
  switch (deed) {
    case Deed::writes_behind:
      (&last)[1] = 1;
      break;
    case Deed::writes_before:
      (&element<float>(out.o, 0, 0, 0, 0))[-1] = 1;
      break;
    case Deed::writes_elsewhere:
      element<float>(out.lse, 0, 0, 0, 0) = 1e6f;
      break;
    case Deed::reads_behind: {
      const auto* end = static_cast<const volatile char*>(in.v.data) + in.v.capacity_bytes;
      static_cast<void>(*end);
      break;
    }
    case Deed::opens_guard: {
      struct sigaction action {};
      action.sa_sigaction = put_a_page;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGSEGV, &action, nullptr);
      return spoil(Deed::reads_behind, p, out, in);
    }
    case Deed::closes_guard_again: {
      constexpr std::uintptr_t kMargin = 512, kPage = 4096;  // of canaries; of memory
      const auto end = reinterpret_cast<std::uintptr_t>(in.v.data) + in.v.capacity_bytes;
      auto* guard = reinterpret_cast<volatile char*>((end + kMargin + kPage - 1) / kPage * kPage);
      mprotect(const_cast<char*>(guard), kPage, PROT_READ);
      static_cast<void>(*guard);
      mprotect(const_cast<char*>(guard), kPage, PROT_NONE);
      break;
    }
    case Deed::writes_late:  // for as long as it may
      if (fork() == 0) {
        close(attest::hostile::kReplyFd);
        for (;;) {
          usleep(1000);
          last = 1e6f;
        }
      }
      break;
    case Deed::returns_nan:
      last = std::numeric_limits<float>::quiet_NaN();
      break;
    default:
      break;
  }
}

attest_status forward(const attest_kernel*, const attest_problem* p, const attest_inputs* in,
                      const attest_outputs* out, const attest_context* context) {
  const Deed deed = attest::hostile::deed_of(p->scale);
  const bool gave_way = misbehave(deed, *in);
  if (deed == Deed::writes_nothing) return ATTEST_OK;
  if (deed == Deed::fails) return ATTEST_ERROR;
  const attest_status status = attest::plain::forward(*p, *in, *out, *context);
  spoil(gave_way ? Deed::returns_nan : deed, *p, *out, *in);
  return status;
}

}  // namespace

extern "C" ATTEST_EXPORT const attest_plugin* attest_plugin_get(void) {
  static const attest_kernel kernel = {
      .struct_size = sizeof(attest_kernel),
      .name = "hostile",
      .self = nullptr,
      .describe =
          [](const attest_kernel*) {
            return "{\"name\": \"hostile\", \"version\": \"1\", \"vendor\": \"test\","
                   "\"profiles\": [], \"dtypes\": [\"f32\"], \"features\": [\"lse\"],"
                   "\"alignment\": 4}";
          },
      .supports = [](const attest_kernel*, const attest_problem*, char*,
                     std::uint64_t) { return std::int32_t(1); },
      .workspace = [](const attest_kernel*, const attest_problem*, std::int32_t,
                      std::int32_t) { return std::uint64_t(0); },
      .forward = forward,
      .backward = nullptr};
  static const attest_kernel* const kernels[] = {&kernel};
  static const attest_plugin plugin = {.struct_size = sizeof(attest_plugin),
                                       .abi_version = ATTEST_ABI_VERSION,
                                       .kernel_count = 1,
                                       .kernels = kernels,
                                       .absent_kernels = nullptr,
                                       .absent_kernel_count = 0,
                                       .reserved = 0};
  return &plugin;
}
