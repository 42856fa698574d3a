// What the commands share that start testees and keep a record: the testees, where they run, the
// record's file and its reports, and the request to end.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cases/case.h"
#include "harness/command/option_groups.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"
#include "harness/run/audit.h"
#include "harness/run/record_file.h"
#include "harness/run/run.h"
#include "spec/record.h"

namespace attest {

// With the cases that the options name, and mutants of another folder if one is given.
Installation installation_for(const CaseOptions& options,
                              const std::filesystem::path& test_plugins = {});

// The cases that the options select, all shards of them: of a folder, a file, or the shapes that
// they name, of which notes are printed.
struct SelectedCases {
  std::vector<Case> cases = {};
  Index complete = 0;  // cases of the tier, or of the standard one if it is larger, selected or not
};
SelectedCases selected_cases(const CaseOptions& options, const Installation& installation);

// The case of that id, as find_case() finds it among all that the options say.
Case case_named(const std::string& id, const CaseOptions& options,
                const Installation& installation);

// The shapes that the options name, so that they are found from any folder: presets, and files by
// their paths.
std::vector<std::string> shapes_as_named(const CaseOptions& options,
                                         const Installation& installation);

// What testees find around them, where `files` are not for them.
Surroundings surroundings_for(const TesteeOptions& options, const Installation& installation,
                              const std::vector<std::string>& files = {});

// Those that the options name, mutants by their names among them. Throws InputError if one would
// run with less isolation than the options ask for.
std::vector<Testee> testees_for(const TesteeOptions& options, const Installation& installation,
                                const Surroundings& around);

// What this program can hold records to.
Suite suite_of(const Installation& installation);

// SHA-256 of the files that testees are made of, by path.
using FileSums = std::map<std::string, std::string>;
FileSums sums_of(const Testee& testee, FileSums& known);

// From then on SIGINT and SIGTERM ask the command to end in order, and a second one at once.
void stop_on_signals();
bool interrupted();

// What is to be recorded.
struct Plan {
  Header header;         // but for the testees, and what they run in
  RunOptions ends = {};  // when the rest is NOT_RUN
  // Of the record's folder, that are not for testees either.
  std::vector<std::string> more_files = {};
  // Whose outputs are judged, those of the header's folder of vectors, in place of testees that are
  // found and started.
  std::optional<Testee> outputs = {};
};

// That of a run on so many of the cases that there are (SelectedCases).
Plan plan_for(const CaseOptions& options, const Installation& installation, Index complete,
              std::size_t selected);

// Makes the reports of the record in a folder, and tells what it comes to: the exit code. What
// failed is written into the file `known` if one is named.
int report_on(const std::filesystem::path& record_folder, const std::filesystem::path& known = {});

class Session {
 public:
  // Finds the testees and begins the record. Throws InputError.
  Session(const TesteeOptions& testees, const RecordingOptions& recording,
          const Installation& installation, const Plan& plan);

  const std::vector<Testee>& testees() const { return testees_; }
  const Header& header() const { return header_; }
  std::ostream& results() { return results_->stream(); }
  const RunOptions& run_options() const { return run_options_; }
  // Which files of the testees are not those of the header any more, in words.
  std::vector<std::string> changes() const;
  std::unique_ptr<Executor> start(const Testee& testee) const;

  // Ends the record's file and writes the reports. Throws InputError if it can't.
  void publish(const Record& record);

  // The same, and tells it on the terminal; the exit code.
  int finish(const Record& record);

  // The same, and after it what its failures have in common.
  int finish_with_diagnosis(Record record, const std::vector<Case>& cases,
                            const RunOptions& run_options);

 private:
  // Once it is published: what its failures have in common, as a file beside it, and in its
  // reports.
  void add_diagnosis(const Record& record, const nlohmann::json& diagnosis);

  TerminalOptions terminal_;
  RecordFolder folder_;
  Surroundings around_;
  std::vector<Testee> testees_;
  std::optional<RecordFile> results_;
  Header header_;
  RunOptions run_options_;
  mutable std::atomic<std::size_t> started_ = 0;  // executors
};

}  // namespace attest
