#include "harness/process/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace attest {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void make_large(int fd, std::size_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return;
  fail(errno == EFBIG ? "shared memory for tensors, to which the limit on files (ulimit -f) applies"
                      : "shared memory for tensors");
}

std::byte* mapped(int fd, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    fail(fmt::format("{} MiB of addresses for tensors and what lies between them", bytes >> 20));
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

SharedMemory::SharedMemory(const char* name, std::size_t bytes, Access access)
    : fd_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create"), bytes_(bytes) {
  make_large(fd_.get(), bytes);
  base_ = mapped(fd_.get(), bytes);
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#ifdef F_SEAL_FUTURE_WRITE
  // Our mapping stays writable, and no other ever is.
  if (access == Access::written_here) seals |= F_SEAL_FUTURE_WRITE;
#endif
  if (fcntl(fd_.get(), F_ADD_SEALS, seals) != 0) {
    munmap(base_, bytes);
    fail("sealing shared memory");
  }
}

SharedMemory::~SharedMemory() { munmap(base_, bytes_); }

std::size_t SharedMemory::used() const {
  constexpr std::size_t kBlock = 512;  // stat(3)
  struct stat status = {};
  if (fstat(fd_.get(), &status) != 0) fail("shared memory for tensors");
  return static_cast<std::size_t>(status.st_blocks) * kBlock;
}

}  // namespace attest
