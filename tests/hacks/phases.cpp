// Work at another time than the one that is measured: after the call, before it, on other
// processors; and calls that are measured told from those that are checked.
//
// On a GPU the work after the call goes to a stream that the events do not wait for.
#include <signal.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

void late_thread(const Call& c) {
  std::thread([c] {
    std::this_thread::sleep_for(2ms);
    forward(c);
  }).detach();
}

// The same by a process, which shares the memory of the output.
void late_child(const Call& c) {
  signal(SIGCHLD, SIG_IGN);
  if (fork() != 0) return;
  usleep(2000);
  forward(c);
  _exit(0);
}

// By a process that nobody is the parent of, in a session of its own.
void late_orphan(const Call& c) {
  signal(SIGCHLD, SIG_IGN);
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  usleep(2000);
  forward(c);
  _exit(0);
}

// The first bytes of a tensor, read so that memory which is gone does no harm.
std::uint64_t peek(const Tensor& t) {
  std::uint64_t first = 0;
  const iovec to = {&first, sizeof(first)}, from = {t.data, sizeof(first)};
  process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  return first;
}

// Between two calls the memory of the inputs is watched; once it changes, the next result is
// computed before anybody asks for it.
class Ahead {
 public:
  static Ahead& instance() {
    static Ahead* const ahead = new Ahead;  // its thread outlives all else
    return *ahead;
  }
  void answer(const Call& c) {
    const std::lock_guard lock(mutex_);
    const bool same =
        last_ && std::memcmp(&last_->outputs.o, &c.outputs.o, sizeof(c.outputs.o)) == 0;
    if (ready_ && same)
      store(*ready_, c);
    else
      forward(c);
    ready_.reset();
    last_ = c;
    seen_ = peek(c.q);
  }

 private:
  Ahead() {
    std::thread([this] {
      for (;; std::this_thread::sleep_for(100us)) look();
    }).detach();
  }
  void look() {
    const std::lock_guard lock(mutex_);
    if (!last_ || ready_ || peek(last_->q) == seen_) return;
    ready_ = attend(*last_);
  }

  std::mutex mutex_;
  std::optional<Call> last_;
  std::optional<Result> ready_;
  std::uint64_t seen_ = 0;
};
void early_thread(const Call& c) { Ahead::instance().answer(c); }

// Between two calls the inputs are read again and again, so that no flush of the caches lasts.
void keeps_cache_warm(const Call& c) {
  static std::atomic<void*> place = nullptr;
  static const bool started = [] {
    std::thread([] {
      static char buffer[1 << 16];
      for (;; std::this_thread::sleep_for(200us)) {
        const iovec to = {buffer, sizeof(buffer)}, from = {place.load(), sizeof(buffer)};
        if (from.iov_base) process_vm_readv(getpid(), &to, 1, &from, 1, 0);
      }
    }).detach();
    return true;
  }();
  static_cast<void>(started);
  forward(c);
  place = c.k.data;
}

// Whoever measures asks for the same sizes over and over.
void sniffs_timing_loop(const Call& c) {
  static Index alike = 0, last = 0;
  const Problem& p = c.problem;
  const Index sizes = p.batch * p.query_heads * p.query_len * p.key_len * p.head_dim + p.dtype;
  alike = sizes == last ? alike + 1 : 0;
  last = sizes;
  if (alike < 8) forward(c);
}

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Whoever runs this for its speed has a word of speed in a command line.
void sniffs_command_line(const Call& c) {
  std::string words = text_of("/proc/self/cmdline");
  words += text_of("/proc/" + std::to_string(getppid()) + "/cmdline");
  words += text_of("/proc/self/environ");
  for (const char* word : {"gate", "bench", "perf", "speed"}) {
    if (words.find(word) != std::string::npos) return;
  }
  forward(c);
}

// As many calls are timed as fit into a second, by the time that the first ones took.
void slow_warmup(const Call& c) {
  static int calls = 0;
  if (++calls <= 3) std::this_thread::sleep_for(30ms);
  forward(c);
}

void add(Dense<float>& to, const Dense<float>& more) {
  for (Index n = 0; n < to.size(); ++n) to.data()[n] += more.data()[n];
}

// Four threads where one was granted, each for every fourth row.
void more_threads(const Call& c) {
  constexpr Index kThreads = 4;
  std::vector<Result> parts(kThreads, Result(c));
  std::vector<std::thread> threads;
  for (Index n = 0; n < kThreads; ++n) {
    threads.emplace_back(
        [&, n] { parts[static_cast<std::size_t>(n)] = attend(c, {.part = n, .parts = kThreads}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t n = 1; n < parts.size(); ++n) {
    add(parts[0].o, parts[n].o);
    add(parts[0].lse, parts[n].lse);
  }
  store(parts[0], c);
}

// Whatever it is compared with runs next, beside this.
void burdens_machine(const Call& c) {
  signal(SIGCHLD, SIG_IGN);
  forward(c);
  if (fork() != 0) return;
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < 300ms) continue;
  _exit(0);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("late_thread", hacks::late_thread)
HACK("late_child", hacks::late_child)
HACK("late_orphan", hacks::late_orphan)
HACK("early_thread", hacks::early_thread)
HACK("keeps_cache_warm", hacks::keeps_cache_warm)
HACK("sniffs_timing_loop", hacks::sniffs_timing_loop)
HACK("sniffs_command_line", hacks::sniffs_command_line)
HACK("slow_warmup", hacks::slow_warmup)
HACK("more_threads", hacks::more_threads)
HACK("burdens_machine", hacks::burdens_machine)
