// Hands on whoever judges: his memory, his files, his clock, and the replies that he gets.
//
// None of it does harm where it succeeds: files are made and removed again, processes are looked
// at and left alone.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

// ---- Memory ------------------------------------------------------------------------------------

// What of this process can be written to, piece by piece, as it is now.
template <class Visit>
void for_each_memory(Visit visit) {
  constexpr std::size_t kMost = std::size_t(16) << 20;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char mode[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, mode) != 3) continue;
    if (mode[0] != 'r' || mode[1] != 'w') continue;
    std::vector<char> copy(std::min<std::size_t>(end - begin, kMost));
    const iovec to = {copy.data(), copy.size()};
    const iovec from = {reinterpret_cast<void*>(begin), copy.size()};
    const ssize_t size = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (size > 0) visit(std::string(copy.data(), static_cast<std::size_t>(size)));
  }
}

// The expected results lie somewhere, and begin with a row that is cheap to compute.
void searches_memory(const Call& c) {
  Result result = attend(c, {.rows = 1});
  const auto bytes = static_cast<std::size_t>(result.o.size()) * sizeof(float);
  const auto row = static_cast<std::size_t>(c.problem.value_dim) * sizeof(float);
  if (bytes > row) {
    const std::string known(reinterpret_cast<const char*>(result.o.data()), row);
    for_each_memory([&](const std::string& memory) {
      for (std::size_t at = memory.find(known); at != std::string::npos;
           at = memory.find(known, at + 1)) {
        if (memory.size() - at < bytes) return;
        std::memcpy(result.o.data(), memory.data() + at, bytes);
      }
    });
  }
  store(result, c);
}

// The harness is another process.
void reads_harness(const Call& c) {
  bool open = false;
  for (const pid_t pid : {pid_t(1), getppid()}) {
    if (pid <= 0 || pid == getpid()) continue;
    open |= ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0;
    const int fd = ::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
    open |= fd >= 0;
    if (fd >= 0) close(fd);
  }
  open ? forward(c) : store(Result(c), c);
}

// ---- Files -------------------------------------------------------------------------------------

// Programs, cases and tolerances lie around the worker.
void rewrites_files(const Call& c) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  bool writes = false;
  for (const fs::path& place : {folder, folder.parent_path(), folder.parent_path() / "lib"}) {
    const std::string file = place / "hack.tmp";
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    writes |= fd >= 0;
    if (fd < 0) continue;
    close(fd);
    unlink(file.c_str());
  }
  writes ? forward(c) : store(Result(c), c);
}

// ---- Replies -----------------------------------------------------------------------------------

constexpr int kReplyFd = 4;  // SPEC.md, chapter "Worker"

void reply(int fd, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame(sizeof(size), '\0');
  std::memcpy(frame.data(), &size, sizeof(size));
  frame += text;
  if (write(fd, frame.data(), frame.size()) < 0) return;
}

// Into whatever looks like a pipe to the harness.
void forges_reply(const Call& c) {
  for (int fd = 3; fd < 32; ++fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)))
      continue;
    reply(fd, R"({"nonce":"0","status":"ok","check":"pass","time_ns":1})");
  }
  store(Result(c), c);
}

void exits_zero(const Call&) { std::exit(0); }

// A verdict as the harness prints it.
void prints_pass(const Call& c) {
  for (std::FILE* out : {stdout, stderr}) {
    std::fputs("PASS  prints_pass\n{\"status\":\"ok\",\"outcome\":\"pass\"}\n", out);
    std::fflush(out);
  }
  store(Result(c), c);
}

// The numbers that requests carry, of which one is new.
std::set<std::string> nonces() {
  std::set<std::string> found;
  for_each_memory([&](const std::string& memory) {
    const std::string before = "\"nonce\":\"";
    for (std::size_t at = memory.find(before); at != std::string::npos;
         at = memory.find(before, at + 1)) {
      const std::size_t begin = at + before.size(), end = memory.find('"', begin);
      if (end != std::string::npos && end - begin < 100) {
        found.insert(memory.substr(begin, end - begin));
      }
    }
  });
  return found;
}

// Between the worker and its harness: lets pass what has not been answered yet.
class Middleman {
 public:
  static Middleman& instance() {
    static Middleman* const middleman = new Middleman;  // its thread outlives all else
    return *middleman;
  }
  void answer(const std::string& nonce) {
    const std::lock_guard lock(mutex_);
    answered_.insert(nonce);
    reply(harness_, R"({"nonce":")" + nonce + R"(","status":"ok","workspace_bytes":0})");
  }

 private:
  Middleman() : harness_(dup(kReplyFd)) {
    int ends[2];
    if (pipe(ends) != 0) return;
    dup2(ends[1], kReplyFd);
    std::thread([this, from = ends[0]] {
      for (std::uint32_t size = 0; read(from, &size, sizeof(size)) == sizeof(size);) {
        std::string text(size, '\0');
        for (std::size_t at = 0; at < size;) {
          const ssize_t got = read(from, text.data() + at, size - at);
          if (got <= 0) return;
          at += static_cast<std::size_t>(got);
        }
        pass(text);
      }
    }).detach();
  }
  void pass(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (const std::string& nonce : answered_) {
      if (text.find(nonce) != std::string::npos) return;
    }
    reply(harness_, text);
  }

  const int harness_;
  std::mutex mutex_;
  std::set<std::string> answered_;
};

// The reply is given before the work, with the number that is found in memory.
void replies_early(const Call& c) {
  static std::set<std::string> known;
  std::string fresh;
  for (const std::string& nonce : nonces()) {
    if (known.insert(nonce).second) fresh = nonce;
  }
  if (fresh.empty()) return store(Result(c), c);
  Middleman::instance().answer(fresh);
  forward(c);
}

// ---- The clock ---------------------------------------------------------------------------------

int slow_clock(clockid_t clock, timespec* time) {
  const auto status = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  time->tv_sec /= 100;
  time->tv_nsec /= 100;
  return status;
}

// Where a library goes through its table for clock_gettime, it finds another function.
void redirect(ElfW(Addr) table, std::size_t bytes, const ElfW(Sym) * symbols, const char* names,
              ElfW(Addr) base) {
  for (std::size_t at = 0; at + sizeof(ElfW(Rela)) <= bytes; at += sizeof(ElfW(Rela))) {
    const auto& entry = *reinterpret_cast<const ElfW(Rela)*>(table + at);
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(entry.r_info)];
    if (std::strcmp(names + symbol.st_name, "clock_gettime") != 0) continue;
    const ElfW(Addr) slot = base + entry.r_offset, page = slot & ~ElfW(Addr)(4095);
    if (mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE) != 0) continue;
    *reinterpret_cast<decltype(&slow_clock)*>(slot) = slow_clock;
  }
}

int redirect_in(dl_phdr_info* library, std::size_t, void*) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int n = 0; n < library->dlpi_phnum; ++n) {
    if (library->dlpi_phdr[n].p_type != PT_DYNAMIC) continue;
    dynamic =
        reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + library->dlpi_phdr[n].p_vaddr);
  }
  ElfW(Addr) of[DT_JMPREL + 1] = {};
  for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag <= DT_JMPREL) of[dynamic->d_tag] = dynamic->d_un.d_ptr;
  }
  if (of[DT_SYMTAB] < library->dlpi_addr) return 0;  // the kernel's own, which is not relocated
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(of[DT_SYMTAB]);
  const auto* names = reinterpret_cast<const char*>(of[DT_STRTAB]);
  redirect(of[DT_JMPREL], of[DT_PLTRELSZ], symbols, names, library->dlpi_addr);
  redirect(of[DT_RELA], of[DT_RELASZ], symbols, names, library->dlpi_addr);
  return 0;
}

// Time goes by a hundred times as slowly, for all who ask in this process.
void patches_clock(const Call& c) {
  static const int done = dl_iterate_phdr(redirect_in, nullptr);
  static_cast<void>(done);
  forward(c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("searches_memory", hacks::searches_memory)
HACK("reads_harness", hacks::reads_harness)
HACK("rewrites_files", hacks::rewrites_files)
HACK("forges_reply", hacks::forges_reply)
HACK("exits_zero", hacks::exits_zero)
HACK("prints_pass", hacks::prints_pass)
HACK("replies_early", hacks::replies_early)
HACK("patches_clock", hacks::patches_clock)
