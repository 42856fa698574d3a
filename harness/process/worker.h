// A testee in a process of its own (SPEC.md, chapter "Worker").
//
// The process is started with exec, with nothing open but the four descriptors of wire.h and pipes
// for what it prints, as another user where the system allows it. It is stopped, with everything it
// started, when it dies, hangs, uses too much memory or breaks the protocol; the next request then
// starts a fresh one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/arena.h"
#include "harness/process/call_time.h"
#include "harness/process/executor.h"
#include "harness/process/measurement.h"
#include "harness/process/processes.h"
#include "harness/process/sandbox.h"
#include "harness/process/surroundings.h"

namespace attest {

// Descriptors that an executor holds on to, and how many more it needs while it starts a worker,
// which so many do at a time.
inline constexpr std::size_t kDescriptorsOfAWorker = 6, kDescriptorsOfAStart = 14;
inline constexpr std::ptrdiff_t kStartsAtOnce = 4;

struct Limits {
  // Of the busiest thread, and idle (call_time.h): until the first reply, which includes loading
  // the testee, and for each later reply.
  double start_seconds = 60;
  double call_seconds = 60;
  // Of the worker and all that it starts: private memory, and shared memory but for the arena.
  std::size_t memory_bytes = std::size_t(8) << 30;
  std::size_t processes = 4096;  // the worker among them
};

struct WorkerOptions {
  std::vector<std::string> command;  // program and arguments
  Limits limits = {};
  Isolation isolation = Isolation::none;
  uid_t user = kNobody;  // if it is to be another one
  int number = 0;        // of several with that command, each of which has a home of its own
  Surroundings around = {};
  // Whether a call takes all memory that it uses, whenever that was taken: of plug-ins, beside
  // which attest-worker has next to none. What a program uses is told apart by how it grows
  // (memory.h).
  bool counts_old_memory = false;
  std::function<bool()> interrupted = {};  // asked while waiting; once true, the call is given up
  // Whether it computes only while a request is out: it is stopped, with all that it started, as
  // soon as its reply has come, until the next request. Replies then say how long that took.
  bool still_between_requests = false;
};

class WorkerExecutor : public Executor {
 public:
  explicit WorkerExecutor(WorkerOptions options);
  ~WorkerExecutor() override;

  Reply execute(nlohmann::json request) override;
  // The memory of the worker's processes and of all that the call starts, as the system counts it
  // from outside, all pages of the tensors taken to be touched; and what each thread computes.
  Reply measure(nlohmann::json request) override;
  void renew() override { stop(); }
  // Asks for one more reply: whatever comes before it is one too many. What a case left running
  // ends here, and the worker with it.
  Reply settle() override;
  Arena& arena(std::size_t bytes) override;
  // The worker's processes, once it has answered.
  std::vector<pid_t> family() const;
  // Of a worker that is still between requests: whether a call left processes behind.
  bool has_left_processes() const { return has_left_processes_; }
  // Likewise: false if it may have computed between requests, which the system does not tell.
  bool is_stillness_told() const;
  // Likewise, of calls that it was told of beforehand: in how many another process computed that it
  // started.
  std::size_t calls_with_children() const { return calls_with_children_; }

 private:
  struct Process;
  void start();
  void stop();
  Reply ended(Reply::Kind kind, const std::string& message);
  Reply broke_off();
  // Takes what has arrived of a reply: what it comes to once it is whole, or can be none.
  std::optional<Reply> receive(const std::string& nonce);
  Reply understand(const std::string& text, const std::string& nonce);
  // Whether the processes took more than they may, by now.
  std::optional<Reply> look(CallTime& time, CallTime::Clock::time_point now);
  bool leaves_processes() const;

  WorkerOptions options_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Process> process_;
  std::optional<Measurement> measured_;  // while a call is
  std::optional<ProcessorTime> taken_;   // by a call, where requests are timed
  CallTime::Clock::time_point replied_;  // when the last reply was whole
  bool has_left_processes_ = false;
  std::size_t calls_with_children_ = 0;
};

// Denies other processes of this user the harness's memory. Call once, before testees start.
void harden_this_process();

}  // namespace attest
