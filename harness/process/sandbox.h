// Where the process of a worker runs: apart from the harness, its record and other testees, as far
// as the system allows (SPEC.md, chapter "Worker", Isolation).
//
// A program of its own, attest-sandbox, makes the sandbox and starts the worker in it. A copy of
// the harness would carry the harness's memory along, which takes time and would count as the
// worker's.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attest {

inline constexpr uid_t kNobody = 65534;

// A user, and group, for the workers of that command alone, while this program runs: one that has
// no name here, so that nothing is its own. As there are few such numbers, two programs may have
// the same ones. nobody where there is none. Always the same for the same command.
uid_t user_for(const std::vector<std::string>& command);

// From the strongest to none.
enum class Isolation {
  other_user,  // such a user, in process and mount namespaces of its own: sees no other process,
               // nor the record
  user_namespace,  // the same user, in such namespaces
  user_only,       // such a user, where the system gives no namespaces
  none,            // only accidental faults are contained
};

// Each by the name that --require-isolation takes.
inline constexpr std::array<std::pair<Isolation, std::string_view>, 4> kIsolations = {{
    {Isolation::other_user, "other-user"},
    {Isolation::user_namespace, "namespaces"},
    {Isolation::user_only, "user"},
    {Isolation::none, "none"},
}};

constexpr std::string_view name_of(Isolation isolation) {
  for (const auto& [value, text] : kIsolations) {
    if (value == isolation) return text;
  }
  return "?";
}

constexpr bool has_other_user(Isolation isolation) {
  return isolation == Isolation::other_user || isolation == Isolation::user_only;
}
constexpr bool has_namespaces(Isolation isolation) {
  return isolation == Isolation::other_user || isolation == Isolation::user_namespace;
}

struct Sandbox {
  std::vector<std::string> command;  // program and arguments
  Isolation isolation = Isolation::none;
  uid_t user = kNobody;                        // the other one, if it is to be another
  std::vector<std::string> read_only = {};     // files and folders, not to be moved away either
  std::vector<std::string> hidden_files = {};  // that are empty in it
  std::string shared_memory = {};  // how a /dev/shm of its own is mounted; empty: the system's
  std::string shared_pages = {};   // that shmget may give; empty: as many as the system has
  std::string home = {};           // beside which there are none, in namespaces; empty: none
  bool network = true;             // that of the system; else none but itself, where it can be
  bool keeps_nothing = false;      // in namespaces, nothing but its home can be written to
  std::string open_files = {};     // the soft limit on descriptors; empty: as the harness has it
};

// A sandbox as attest-sandbox reads it, from a descriptor: what is an argument, a worker can read.
std::string to_words(const Sandbox& sandbox);
Sandbox sandbox_from_words(std::string_view words);

// Descriptors of attest-sandbox: those that the worker gets from 0 on, the sandbox's words, and
// where the number of the process to wait for goes.
inline constexpr int kWordsFd = 7, kBornFd = 8;
using WorkerDescriptors = std::array<int, 7>;

// Its own exit codes, beside those of the worker.
inline constexpr int kSandboxFailed = 125, kNoSuchProgram = 127;

// Starts a worker with those descriptors and `variables` (NAME=VALUE). Returns the process whose
// end is the worker's, and that of all it started. Throws std::system_error if there is no process
// to be had.
pid_t start_worker(const Sandbox& sandbox, const WorkerDescriptors& descriptors,
                   const std::vector<std::string>& variables);

// The strongest isolation that the system allows here to that user, such that `files`, which a
// worker must read, can be read under it, and folders among them entered. Tried with a program of
// the system, so that no testee has a say in it.
Isolation strongest_isolation(const std::vector<std::string>& files, uid_t user = kNobody);

// Whether it keeps the system's network from a worker that is not to have it: some systems give
// namespaces, but none of networks.
bool keeps_network(Isolation isolation);

// How this isolation is called in records.
std::string describe(Isolation isolation);

// Lets this process have as many descriptors open as the system lets it; its workers keep the limit
// that it had.
void raise_open_files();

}  // namespace attest
