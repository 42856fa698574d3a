// attest doctor: what this machine allows, and what a run would make of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/identity.h"
#include "harness/command/machine.h"
#include "harness/process/installation.h"
#include "harness/process/sandbox.h"
#include "harness/process/target.h"
#include "harness/run/conclude.h"
#include "harness/run/memory_budget.h"
#include "reports/text.h"
#include "spec/json_text.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty if there is none.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// What a program prints; empty if it fails.
std::string printed_by(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return "";
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), n);
  }
  return pclose(pipe) == 0 ? text.substr(0, text.find_last_not_of('\n') + 1) : "";
}

std::string memory() {
  std::string text = fmt::format("{} in all, {} free; processes here may have {:.0f} kB",
                                 entry_of("/proc/meminfo", "MemTotal"),
                                 entry_of("/proc/meminfo", "MemAvailable"), memory_here() / 1024);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += fmt::format("; {} bytes of addresses (ulimit -v)", limit.rlim_cur);
  }
  return text;
}

// What plug-ins run in, which others have to reach.
std::vector<std::string> worker() {
  try {
    return {find_installation().worker};
  } catch (const std::exception&) {
    return {};  // it is told elsewhere
  }
}

// Why there is nothing stronger than that.
std::string why_not_stronger(Isolation isolation) {
  if (isolation == Isolation::other_user) return "the strongest";
  std::vector<std::string> why;
  if (geteuid() != 0) why.emplace_back("another user takes root");
  if (!has_namespaces(isolation)) {
    why.emplace_back("namespaces are refused");
    for (const char* setting : {"user/max_user_namespaces", "kernel/unprivileged_userns_clone",
                                "kernel/apparmor_restrict_unprivileged_userns"}) {
      const std::string value = line_of(fs::path("/proc/sys") / setting);
      if (!value.empty()) why.push_back(fmt::format("{} is {}", setting, value));
    }
  } else if (geteuid() == 0) {
    why.push_back(fmt::format("another user in namespaces is refused, or cannot reach {}",
                              fmt::join(worker(), "")));
  }
  return fmt::format("no stronger: {}", fmt::join(why, ", "));
}

std::string isolation() {
  const Isolation strongest = strongest_isolation(worker());
  return fmt::format("{} ({}); {}", name_of(strongest), describe(strongest),
                     why_not_stronger(strongest));
}

std::string network() {
  return keeps_network(strongest_isolation(worker())) ? "kept from testees, without --allow-network"
                                                      : "the system's, for testees too";
}

std::string counters() {
  perf_event_attr asked{};
  asked.type = PERF_TYPE_HARDWARE;
  asked.size = sizeof(asked);
  asked.config = PERF_COUNT_HW_INSTRUCTIONS;
  asked.exclude_kernel = 1;
  asked.exclude_hv = 1;
  const auto fd = static_cast<int>(syscall(SYS_perf_event_open, &asked, 0, -1, -1, 0));
  if (fd < 0) {
    const int error = errno;
    const std::string paranoid = line_of("/proc/sys/kernel/perf_event_paranoid");
    return fmt::format("not to be had: {}{}", std::strerror(error),
                       paranoid.empty() ? "" : "; perf_event_paranoid is " + paranoid);
  }
  close(fd);
  return "to be had";
}

std::string accelerators() {
  std::string found = printed_by("nvidia-smi --query-gpu=name,memory.total --format=csv,noheader");
  std::replace(found.begin(), found.end(), '\n', ';');
  if (!found.empty()) return found;
  std::vector<std::string> devices;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("nvidia") || name == "kfd") devices.push_back(entry.path().string());
  }
  std::sort(devices.begin(), devices.end());
  return devices.empty() ? "none" : fmt::format("{}; no nvidia-smi", fmt::join(devices, ", "));
}

std::string python() {
  const std::string program = python_program();
  if (program.empty()) return "none on the PATH; ATTEST_PYTHON names one";
  const std::string told = printed_by("'" + program + "' -m attest_attention versions");
  return fmt::format("{}: {}", program,
                     told.empty() ? "attest_attention cannot be imported, so no kernel in Python "
                                    "is judged; ATTEST_PYTHON names another"
                                  : told);
}

int tell(bool as_json) {
  const std::pair<const char*, std::string> facts[] = {
      {"attest", fmt::format("{}, commit {}", ATTEST_VERSION, suite_commit())},
      {"processor", processor()},
      {"memory", memory()},
      {"glibc", gnu_get_libc_version()},
      {"isolation", isolation()},
      {"network", network()},
      {"counters", counters()},
      {"gpu", accelerators()},
      {"python", python()}};
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, text] : facts) {
    if (!as_json) fmt::print("{:<11}{}\n", name, one_line(text));
    all[name] = clean(text);
  }
  if (as_json) fmt::print("{}\n", json_text(all, 2));
  return kConformant;
}

}  // namespace

Command add_doctor(CLI::App& app) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App& command = *app.add_subcommand(
      "doctor", "Tell what this machine allows: isolation, counters, accelerators, Python");
  command.add_flag("--json", *as_json, "As a JSON object of texts");
  return {.parser = &command, .carry_out = [=] { return tell(*as_json); }, .starts_testees = false};
}

}  // namespace attest
