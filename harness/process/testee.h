// Testees by name: what --testee takes, how each is started, what it says of itself.
//
//   fa2, naive            a bundled kernel; without one of that very name, all of its family
//   naive/textbook        another of its family
//   ./mine.so             all kernels of a plug-in
//   ./mine.so:fast        one of them
//   mine.py               all kernels of a Python file (python/), in records mine.py:NAME
//   mine.py:fast          one of them
//   exec:./mine --worker  a program that speaks the worker protocol
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/process/installation.h"
#include "harness/process/worker.h"
#include "spec/description.h"

namespace attest {

// Thrown by what was asked to end before it was done.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

struct Testee {
  std::string name;                  // unique in a run: the kernel's, or the spec if two share it
  std::string spec;                  // the --testee that names it alone
  std::string kernel;                // in its plug-in
  std::vector<std::string> command;  // of its worker
  std::string plugin = {};           // its path; empty for exec:
  // That it is made of: the library, or the files that a command names, and what its worker runs
  // code from that came with it, not with the system.
  std::vector<std::string> files = {};
  Isolation isolation = Isolation::none;
  uid_t user = kNobody;         // whom its workers are, if another one
  std::string unisolated = {};  // why there is none, if so
  Description description;
};

// Starts the testee of each spec and asks it to describe itself; the bundled kernels if there is no
// spec. Throws InputError for a spec that names nothing, a plug-in that cannot be loaded, and a
// description that is malformed or beyond the caps; Interrupted once `interrupted` says so.
std::vector<Testee> find_testees(const std::vector<std::string>& specs,
                                 const Installation& installation, const Limits& limits,
                                 const Surroundings& around,
                                 const std::function<bool()>& interrupted = {});

// The weakest isolation among testees.
Isolation weakest_isolation(const std::vector<Testee>& testees);

WorkerOptions worker_options(const Testee& testee, const Limits& limits,
                             const Surroundings& around);

// The files of testees and of the installation, which no testee may change while others depend on
// them.
std::vector<std::string> files_to_keep(const Installation& installation,
                                       const std::vector<std::string>& specs);

}  // namespace attest
