// What the commands of `attest` take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "harness/command/terminal.h"
#include "harness/process/sandbox.h"
#include "harness/process/worker.h"
#include "harness/run/run.h"
#include "harness/run/selection.h"

namespace attest {

struct Options {
  std::set<std::string> given;  // the names of those on the command line, as "--threads"
  std::vector<std::string> testees;
  std::vector<std::string> filters;
  std::vector<std::string> profiles;
  Tier tier = Tier::standard;
  std::uint64_t seed = 1;
  int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::size_t workers = 1;               // at a time
  std::vector<std::string> environment;  // more names of variables that testees get
  bool network = false;
  bool keep_cache = false;
  Isolation weakest = Isolation::none;  // that will do
  int threads = 1;
  std::string shard = "1/1";
  std::filesystem::path out = "reports/out";
  Limits limits;
  std::size_t memory_mib = Limits().memory_bytes >> 20;
  bool json = false;
  TerminalOptions terminal;
  std::string case_id;
  bool in_process = false;
  std::filesystem::path dump_folder;
  std::filesystem::path record_folder;
  std::filesystem::path from;       // cases of another file or folder
  std::vector<std::string> shapes;  // presets and files of shapes, in place of cases
  std::filesystem::path known;      // a file of known failures
  std::filesystem::path write_known;
  std::size_t rerun = 0;  // verdicts that verify repeats
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  double seconds = 0;
  bool keep_going = false;
  std::size_t finds = 0;  // 0: one, or a handful with keep_going
  bool finite = false;
  std::vector<std::string> dtypes;
  std::filesystem::path plugins;  // the folder of those that selfcheck needs
  bool blame = false;             // of selfcheck --blame
  std::filesystem::path meant;    // of selfcheck --diagnose
  bool full = false;
  bool shrink = false;
  bool legitimate = false;
  bool hosts = false;
  std::vector<std::string> only_hosts;
  int give_up_after = RunOptions().give_up_after;
  bool fail_fast = false;
  double max_seconds = 0;
  std::string inputs = "both";  // theirs, ours
};

}  // namespace attest
