// A testee in a process of its own (SPEC.md, chapter "Worker").
//
// The process is started with exec, with nothing open but the four descriptors of wire.h and pipes
// for what it prints, as another user where the system allows it. It is stopped, with everything it
// started, when it dies, hangs, uses too much memory or breaks the protocol; the next request then
// starts a fresh one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/arena.h"
#include "harness/executor.h"

namespace attest {

enum class Isolation {
  other_user,      // runs as nobody: cannot touch the harness or its files
  user_namespace,  // same user, but in a namespace that hides the out folder
  none,            // same user: only accidental faults are contained
};

struct Limits {
  double start_seconds = 60;  // until the first reply, which includes loading the testee
  double call_seconds = 60;   // for each later reply
  std::size_t memory_bytes = std::size_t(8) << 30;  // private memory of the worker
};

struct WorkerOptions {
  std::vector<std::string> command;  // program and arguments
  Limits limits = {};
  Isolation isolation = Isolation::none;
  std::string hidden_folder = {};  // user_namespace: what the worker must not see
};

class WorkerExecutor : public Executor {
 public:
  explicit WorkerExecutor(WorkerOptions options);
  ~WorkerExecutor() override;

  Reply execute(nlohmann::json request) override;
  Arena& arena(std::size_t bytes) override;

 private:
  struct Process;
  void start();
  void stop();
  Reply ended(Reply::Kind kind, const std::string& message);

  WorkerOptions options_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Process> process_;
};

// How this isolation is called in records.
std::string describe(Isolation isolation);

// The strongest isolation that works here for that command: the one under which a request for its
// description gets a reply. Isolation::none also if nothing does.
Isolation strongest_isolation(const WorkerOptions& options);

// Denies other processes of this user the harness's memory. Call once, before testees start.
void harden_this_process();

}  // namespace attest
