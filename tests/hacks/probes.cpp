// No hacks: kernels that show what the gate says of a kernel, or keeps from it.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

// A short one in each call, which is waited for.
void starts_processes(const Call& c) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  forward(c);
}

// Of a page that is never called.
void runs_from_memory(const Call& c) {
  static const bool mapped = [] {
    const int fd = memfd_create("code", 0);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return ftruncate(fd, static_cast<off_t>(page)) == 0 &&
           mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
  }();
  if (!mapped) std::abort();
  forward(c);
}

bool has_seen_inputs = false;

void sees_inputs(const Call& c) {
  has_seen_inputs = true;
  forward(c);
}

// Whoever saw them in a forward call could have computed much of this beforehand.
void fails_if_it_has_seen_inputs(const Call& c) {
  if (has_seen_inputs) std::abort();
  backward(c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("starts_processes", hacks::starts_processes)
HACK("runs_from_memory", hacks::runs_from_memory)
ATTEST_KERNEL("sees_inputs", hacks::declared(), hacks::sees_inputs,
              hacks::fails_if_it_has_seen_inputs)
