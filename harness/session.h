// What the commands share that start testees and keep a record: the testees, where they run, the
// record's file and its reports, and the request to end.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/executor.h"
#include "harness/options.h"
#include "harness/run.h"
#include "harness/testee.h"
#include "spec/record.h"

namespace attest {

// With the cases that the options name.
Installation installation_for(const Options& options);

// The cases that the options select, all shards of them.
std::vector<Case> selected_cases(const Options& options, const Installation& installation);

// What testees find around them, where `files` are not for them.
Surroundings surroundings_for(const Options& options, const Installation& installation,
                              const std::vector<std::string>& files = {});

// Those that the options name. Throws InputError if one would run with less isolation than the
// options ask for.
std::vector<Testee> testees_for(const Options& options, const Installation& installation,
                                const Surroundings& around);

// Makes the folder of a record where it isn't yet. Throws InputError if it can't, or if nothing can
// be written there.
void make_out_folder(const std::filesystem::path& folder);
[[noreturn]] void cannot_write_into(const std::filesystem::path& folder, const std::string& why);

// From then on SIGINT and SIGTERM ask the command to end in order, and a second one at once.
void stop_on_signals();
bool interrupted();

class Session {
 public:
  // Finds the testees and begins the record. `options` must outlive the session; `more_files` of
  // the record's folder are not for testees either. Throws InputError.
  Session(const Options& options, const Installation& installation, const std::string& tier,
          const std::vector<std::string>& more_files = {});

  const std::vector<Testee>& testees() const { return testees_; }
  const Header& header() const { return header_; }
  std::ostream& results() { return results_; }
  RunOptions run_options() const;
  std::unique_ptr<Executor> start(const Testee& testee) const;

  // Ends the record's file and writes the reports. Throws InputError if it can't.
  void publish(const Record& record);

  // The same, and tells it on the terminal; the exit code.
  int finish(const Record& record);

 private:
  const Options& options_;
  std::filesystem::path file_;
  std::pair<dev_t, ino_t> folder_;
  Surroundings around_;
  std::vector<Testee> testees_;
  std::ofstream results_;
  Header header_;
};

}  // namespace attest
