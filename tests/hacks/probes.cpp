// No hacks: kernels that show what the gate says of a kernel, or keeps from it.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>

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

// The first bytes of Q in all forward calls.
std::set<std::uint32_t>& seen() {
  static std::set<std::uint32_t> all;
  return all;
}

std::uint32_t first_of(const Tensor& q) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, q.data, sizeof(bits));
  return bits;
}

void sees_inputs(const Call& c) {
  seen().insert(first_of(c.q));
  forward(c);
}

// As who moves a library's code to where it has no name.
void copies_code(const Call& c) {
  static void* const code =
      mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) std::abort();
  forward(c);
}

// Whoever saw them in a forward call could have computed much of this beforehand.
void fails_if_it_has_seen_inputs(const Call& c) {
  if (seen().contains(first_of(c.q))) std::abort();
  backward(c);
}

// Whoever writes what another worker of it finds could hand it the inputs.
void finds_home_empty(const Call& c) {
  static const std::string file = std::string(getenv("HOME")) + "/worker";
  static const unsigned own = std::random_device()();
  unsigned other = own;
  std::ifstream(file) >> other;
  if (other != own) std::abort();
  std::ofstream(file) << own;
  forward(c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("starts_processes", hacks::starts_processes)
HACK("runs_from_memory", hacks::runs_from_memory)
HACK("copies_code", hacks::copies_code)
HACK("finds_home_empty", hacks::finds_home_empty)
ATTEST_KERNEL("sees_inputs", hacks::declared(), hacks::sees_inputs,
              hacks::fails_if_it_has_seen_inputs)
