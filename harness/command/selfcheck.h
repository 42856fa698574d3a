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
};

// --hosts: every mutant in every narrow host in which it shows; and the hosts without a fault, on
// all cases that they are asked.
int selfcheck_hosts(const SelfcheckArguments& asked);

}  // namespace attest
