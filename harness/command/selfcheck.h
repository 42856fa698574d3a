// What `attest selfcheck` takes, and the part of it that has a file of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/command/option_groups.h"

namespace attest {

struct SelfcheckArguments {
  CaseOptions cases;
  RecordingOptions recording;
  std::filesystem::path plugins;  // the folder of those that it needs, if not the installed one
  bool full = false;
  bool legitimate = false;
  bool blame = false;
  std::filesystem::path meant;  // of --diagnose
  bool hosts = false;
  std::vector<std::string> only_hosts;
  std::size_t instances = 0;  // mutants to be drawn that are wrong in one instance
  std::size_t random = 20000;
  bool declared = false;  // each kernel declares the table that it is wrong in an instance of
  std::filesystem::path dispatch;  // the folder of dispatch tables, if not the one of the plug-ins
};

// --hosts: every mutant in every narrow host in which it shows; and the hosts without a fault, on
// all cases that they are asked.
int selfcheck_hosts(const SelfcheckArguments& asked);

// --instances: so many mutants, each in one instance of a dispatch table alone.
int selfcheck_instances(const SelfcheckArguments& asked);

}  // namespace attest
