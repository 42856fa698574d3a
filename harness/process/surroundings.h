// What a testee finds around it, in whatever isolation the system gives (SPEC.md, chapter "Worker",
// Isolation): which variables, which home, which files it cannot see or change.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/process/sandbox.h"
#include "harness/process/variables.h"

namespace attest {

// Homes of testees: empty folders, one for each command, that last as long as this.
class Homes {
 public:
  explicit Homes(bool keep) : keep_(keep) {}  // them, when this ends
  Homes(const Homes&) = delete;
  Homes& operator=(const Homes&) = delete;
  ~Homes();

  // That of a command's workers. Throws std::filesystem::filesystem_error, std::system_error.
  std::filesystem::path of(const std::vector<std::string>& command, Isolation isolation,
                           uid_t user = kNobody);
  const std::filesystem::path& folder() const { return folder_; }  // empty if there is none yet

 private:
  bool keep_;
  std::mutex mutex_;
  std::filesystem::path folder_;
  std::map<std::vector<std::string>, std::filesystem::path> homes_;
};

struct Surroundings {
  std::vector<std::string> variables = passed_variables();
  std::vector<std::string> devices = {};       // of which each job has one; empty: all see all
  std::shared_ptr<Homes> homes = nullptr;      // null: that of the harness
  std::vector<std::string> hidden_files = {};  // empty to testees in namespaces
  std::vector<std::string> read_only = {};     // files and folders that these cannot change
  bool network = false;                        // whether these have that of the system
  // Whether they can write to nothing but their home, so that no file outlives a run, nor is seen
  // by another testee.
  bool keeps_nothing = false;
  // A program that starts workers and looks into them, with its arguments; empty: none.
  std::vector<std::string> sanitizer = {};
};

// Its words, the first as a path. Throws InputError if there is no such program.
std::vector<std::string> sanitizer_called(const std::string& command);

// Adds files that are not for testees: hidden, and their folders read-only, but for those that are
// everybody's, as /tmp is: a testee may need them.
void hide(Surroundings& surroundings, const std::vector<std::string>& files);

}  // namespace attest
