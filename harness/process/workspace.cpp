#include "harness/process/workspace.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "spec/json_reader.h"

namespace attest {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr int kFill = 0xff;
constexpr std::size_t kMostKept = std::size_t(16) << 20, kLittle = std::size_t(2) << 20;
constexpr std::size_t kLargePage = std::size_t(2) << 20;  // whose end is the end of those kept

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Addresses that nobody can touch, so many and a page before and behind them; null if the system
// refuses.
std::byte* reserve(std::size_t bytes) {
  void* const base = mmap(nullptr, bytes + 2 * page_bytes(), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

void give_back(std::byte* reserved, std::size_t bytes) {
  if (reserved) munmap(reserved, bytes + 2 * page_bytes());
}

// Of the calls of one thread, a workspace being at their end.
class Kept {
 public:
  Kept() {
    if (!reserved_) return;
    const auto address = reinterpret_cast<std::uintptr_t>(reserved_);
    end_ = reserved_ + (kLargePage - address % kLargePage) + kMostKept;
    madvise(end_ - kMostKept, kMostKept, MADV_HUGEPAGE);
  }
  ~Kept() { give_back(reserved_, kMostKept + kLargePage); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  std::byte* end() const { return end_; }  // null if the system refused
  void give_back_most() const {
    if (end_) madvise(end_ - kMostKept, kMostKept - kLittle, MADV_DONTNEED);
  }

 private:
  std::byte* const reserved_ = reserve(kMostKept + kLargePage);
  std::byte* end_ = nullptr;
};

struct AllKept {
  std::array<Kept, 3> areas;
  std::size_t next = 0;
};

AllKept& kept() {
  static thread_local AllKept all;
  return all;
}

}  // namespace

Workspace::Workspace(std::size_t bytes, From from) : bytes_(bytes) {
  if (bytes == 0) return;
  constexpr std::size_t kMost = std::size_t(1) << 46;  // of an address space; no sum overflows
  if (bytes <= kMost) {
    const std::size_t page = page_bytes();
    whole_ = (bytes + page - 1) / page * page;
    if (from == From::fresh || !open_kept()) open_fresh();
  }
  if (!first_) throw InputError("", fmt::format("a workspace of {} bytes cannot be had", bytes));
  data_ = first_ + (whole_ - bytes) / kAlignment * kAlignment;
  std::memset(first_, kFill, whole_);
}

bool Workspace::open_kept() {
  AllKept& all = kept();
  std::byte* const end = all.areas[all.next++ % all.areas.size()].end();
  // A call may have taken the pages away.
  if (!end || whole_ > kMostKept || mprotect(end - whole_, whole_, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  first_ = end - whole_;
  return true;
}

void Workspace::open_fresh() {
  reserved_ = reserve(whole_);
  if (!reserved_) return;
  std::byte* const first = reserved_ + page_bytes();
  if (mprotect(first, whole_, PROT_READ | PROT_WRITE) != 0) {
    give_back(std::exchange(reserved_, nullptr), whole_);
    return;
  }
  first_ = first;
  // All of its pages at once, and large ones. Where the system has no such thing, filling does it.
  madvise(first_, whole_, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  madvise(first_, whole_, MADV_POPULATE_WRITE);
#endif
}

Workspace::~Workspace() {
  if (reserved_) {
    give_back(reserved_, whole_);
  } else if (first_) {
    mprotect(first_, whole_, PROT_NONE);
  }
}

std::string Workspace::damage() const {
  const auto written = [](std::byte b) { return b != std::byte(kFill); };
  const std::byte *end = data_ + bytes_, *last = first_ + whole_;
  const std::byte* before = std::find_if(first_, data_, written);
  if (before != data_) {
    return fmt::format("wrote {} bytes before the start of its workspace", data_ - before);
  }
  const std::byte* after = std::find_if(end, last, written);
  if (after == last) return "";
  return fmt::format("wrote {} bytes behind the end of its workspace", after - end + 1);
}

void Workspace::give_back_most() {
  for (const Kept& area : kept().areas) area.give_back_most();
}

}  // namespace attest
