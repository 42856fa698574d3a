#include "harness/process/processes.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace attest {
namespace {

namespace fs = std::filesystem;

// Calls visit(path) for all entries of a folder, or for as many as there are until it vanishes: a
// process may end while its folder is read.
template <class Visit>
void for_each_entry(const fs::path& folder, const Visit& visit) {
  std::error_code gone;
  fs::directory_iterator entry(folder, gone);
  for (; !gone && entry != fs::directory_iterator(); entry.increment(gone)) visit(entry->path());
}

// The children of a process, as the system lists them; false where it does not.
bool add_children(pid_t parent, std::vector<pid_t>& children) {
  std::error_code gone;
  bool listed = false;
  for_each_entry(fmt::format("/proc/{}/task", parent), [&](const fs::path& thread) {
    std::ifstream list(thread / "children");
    listed = listed || bool(list);
    for (pid_t child = 0; list >> child;) children.push_back(child);
  });
  return listed || !fs::exists(fmt::format("/proc/{}", parent), gone);
}

// A stat file from its third field on, the state; empty if it isn't there.
std::string stat_behind_name(const fs::path& file) {
  // A process that ends while it is read of is an error of the stream, not an exception.
  std::ostringstream read;
  read << std::ifstream(file).rdbuf();
  const std::string text = read.str();
  // pid (name) state parent ...; the name may hold anything, ends of lines too.
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos ? "" : text.substr(name_end + 2);
}

// Numbers of a stat file, from that field on, counted from 1 as proc(5) does; nothing if they
// aren't there.
std::optional<std::vector<std::size_t>> stat_fields(const fs::path& file, int first, int count) {
  std::istringstream rest(stat_behind_name(file));
  std::string other;
  for (int field = 3; field < first; ++field) rest >> other;
  std::vector<std::size_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t& number : numbers) rest >> number;
  if (!rest) return std::nullopt;
  return numbers;
}

double seconds_of(std::size_t ticks) {
  static const double per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(ticks) / per_second;
}

// The children of each process that there is.
std::map<pid_t, std::vector<pid_t>> all_children() {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const auto parent = stat_fields(entry.path() / "stat", 4, 1);
    if (parent) children[static_cast<pid_t>(parent->front())].push_back(pid);
  }
  return children;
}

// An entry of /proc/PID/status that counts KiB, in bytes; nothing if it isn't there.
std::optional<std::size_t> status_bytes(pid_t pid, const std::string& wanted) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string key; status >> key;) {
    std::size_t kib = 0;
    if (key == wanted && status >> kib) return kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// The files in memory (memfd_create, /dev/shm) that the processes have open, but for those of
// `apart`, with their bytes. They take memory though nobody maps them.
std::map<FileId, std::size_t> memory_files(const std::vector<pid_t>& processes,
                                           const std::set<FileId>& apart) {
  std::map<FileId, std::size_t> files;
  for (const pid_t pid : processes) {
    for_each_entry(fmt::format("/proc/{}/fd", pid), [&](const fs::path& open) {
      struct stat about {};
      struct statfs system {};
      if (stat(open.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return;
      if (statfs(open.c_str(), &system) != 0 || system.f_type != TMPFS_MAGIC) return;
      const FileId id = {about.st_dev, about.st_ino};
      if (!apart.contains(id)) files[id] = static_cast<std::size_t>(about.st_blocks) * 512;
    });
  }
  return files;
}

// Bytes of the mappings of those files that a process has in memory. Slow: the system walks its
// page tables.
std::size_t mapped_bytes(pid_t pid, const std::set<FileId>& files) {
  std::ifstream smaps(fmt::format("/proc/{}/smaps", pid));
  std::size_t bytes = 0;
  bool counts = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned major = 0, minor = 0;
    unsigned long inode = 0;
    std::size_t kib = 0;
    // Either "begin-end permissions offset device inode path", or "Key: value kB".
    if (std::sscanf(line.c_str(), "%*x-%*x %*s %*x %x:%x %lu", &major, &minor, &inode) == 3) {
      counts = files.contains({makedev(major, minor), inode});
    } else if (counts && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) {
      bytes += kib << 10;
    }
  }
  return bytes;
}

bool clear_refs(pid_t pid, const char* which) {
  std::ofstream file(fmt::format("/proc/{}/clear_refs", pid));
  file << which << std::flush;
  return bool(file);
}

}  // namespace

std::vector<pid_t> family_of(pid_t root) {
  std::vector<pid_t> family = {root};
  bool listed = true;
  for (std::size_t i = 0; listed && i < family.size(); ++i) {
    listed = add_children(family[i], family);
  }
  if (listed) return family;
  std::map<pid_t, std::vector<pid_t>> children = all_children();
  family = {root};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const std::vector<pid_t>& born = children[family[i]];
    family.insert(family.end(), born.begin(), born.end());
  }
  return family;
}

std::size_t unmapped_bytes(const std::vector<pid_t>& processes, const std::set<FileId>& apart) {
  std::set<FileId> counted;
  std::size_t bytes = 0, mapped = 0;
  for (const auto& [id, held] : memory_files(processes, apart)) {
    counted.insert(id);
    bytes += held;
  }
  if (bytes == 0) return 0;
  for (const pid_t pid : processes) mapped += mapped_bytes(pid, counted);
  return bytes - std::min(bytes, mapped);
}

bool hold_more_than(std::size_t limit, const std::vector<pid_t>& processes,
                    const std::set<FileId>& apart) {
  std::size_t own = 0, mapped = 0, open = 0;
  for (const pid_t pid : processes) {
    own += status_bytes(pid, "RssAnon:").value_or(0);
    mapped += status_bytes(pid, "RssShmem:").value_or(0);
  }
  for (const auto& [id, bytes] : memory_files(processes, apart)) open += bytes;
  if (own + open > limit) return true;
  if (own + mapped <= limit) return false;
  for (const pid_t pid : processes) mapped -= std::min(mapped, mapped_bytes(pid, apart));
  return own + mapped > limit;
}

std::optional<std::size_t> resident_bytes(pid_t pid) { return status_bytes(pid, "VmRSS:"); }

std::optional<std::size_t> own_bytes(pid_t pid) { return status_bytes(pid, "RssAnon:"); }

std::optional<std::size_t> peak_bytes(pid_t pid) { return status_bytes(pid, "VmHWM:"); }

bool forget_peak(pid_t pid) { return clear_refs(pid, "5"); }

std::optional<std::size_t> touched_bytes(pid_t pid) {
  std::ifstream smaps(fmt::format("/proc/{}/smaps", pid));
  if (!smaps) return std::nullopt;
  std::size_t bytes = 0, referenced = 0;
  for (std::string line; std::getline(smaps, line);) {
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "Referenced: %zu kB", &kib) == 1) referenced = kib << 10;
    // Which comes after it, of the same mapping.
    if (std::sscanf(line.c_str(), "Anonymous: %zu kB", &kib) == 1) {
      bytes += std::min(referenced, kib << 10);
    }
  }
  return bytes;
}

// A page whose entry the processor still holds would not be marked again: the second write has the
// system drop all entries.
bool forget_touched(pid_t pid) { return clear_refs(pid, "1") && clear_refs(pid, "4"); }

std::map<pid_t, ThreadTime> thread_times(const std::vector<pid_t>& processes) {
  std::map<pid_t, ThreadTime> times;
  for (const pid_t pid : processes) {
    for_each_entry(fmt::format("/proc/{}/task", pid), [&](const fs::path& thread) {
      ThreadTime time;
      double cpu_ns = 0, waited_ns = 0;
      if (std::ifstream(thread / "schedstat") >> cpu_ns >> waited_ns) {
        time = {cpu_ns * 1e-9, waited_ns * 1e-9};
      } else if (const auto ticks = stat_fields(thread / "stat", 14, 2)) {
        time.cpu_s = seconds_of((*ticks)[0] + (*ticks)[1]);
      } else {
        return;
      }
      times[std::atoi(thread.filename().c_str())] = time;
    });
  }
  return times;
}

std::optional<double> computed_seconds(pid_t pid) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

double cpu_seconds(const std::vector<pid_t>& processes) {
  double seconds = 0;
  for (const pid_t pid : processes) {
    // utime, stime, cutime, cstime: the former of all its threads, those that ended too.
    const auto all = stat_fields(fmt::format("/proc/{}/stat", pid), 14, 4);
    if (!all) continue;
    const auto own = computed_seconds(pid);
    seconds += own.value_or(seconds_of((*all)[0] + (*all)[1]));
    seconds += seconds_of((*all)[2] + (*all)[3]);
  }
  return seconds;
}

double children_seconds(const std::vector<pid_t>& processes) {
  double seconds = 0;
  for (const pid_t pid : processes) {
    const auto all = stat_fields(fmt::format("/proc/{}/stat", pid), 16, 2);  // cutime, cstime
    if (all) seconds += seconds_of((*all)[0] + (*all)[1]);
  }
  return seconds;
}

std::size_t children_faults(const std::vector<pid_t>& processes) {
  std::size_t faults = 0;
  for (const pid_t pid : processes) {
    // cminflt, majflt, cmajflt
    const auto all = stat_fields(fmt::format("/proc/{}/stat", pid), 11, 3);
    if (all) faults += (*all)[0] + (*all)[2];
  }
  return faults;
}

void ProcessorTime::look(const std::vector<pid_t>& family) {
  most_ = std::max(most_, cpu_seconds(family) - before_);
  for (const pid_t each : family) {
    if (!first_.contains(each)) seen_[each] = cpu_seconds({each});
  }
}

std::optional<double> ProcessorTime::seconds(const std::vector<pid_t>& family) {
  constexpr double kTwoTicks = 0.02;
  look(family);
  double left = 0;  // by those who have ended
  for (const auto& [each, seconds] : seen_) {
    if (std::find(family.begin(), family.end(), each) == family.end()) left += seconds;
  }
  const bool is_told = left <= children_seconds(family) - of_children_ + kTwoTicks;
  return is_told ? std::optional(most_) : std::nullopt;
}

bool have_a_gpu(const std::vector<pid_t>& processes) {
  bool found = false;
  for (const pid_t pid : processes) {
    for_each_entry(fmt::format("/proc/{}/fd", pid), [&](const fs::path& link) {
      std::error_code none;
      const std::string file = fs::read_symlink(link, none).string();
      for (const std::string_view device : {"/dev/nvidia", "/dev/kfd", "/dev/dri/"}) {
        found |= file.starts_with(device) && fs::is_character_file(link, none);
      }
    });
  }
  return found;
}

double ended_seconds(const std::vector<pid_t>& processes) {
  double seconds = cpu_seconds(processes);
  for (const auto& [id, time] : thread_times(processes)) seconds -= time.cpu_s;
  return std::max(0.0, seconds);
}

std::optional<std::size_t> start_of(pid_t pid) {
  const auto ticks = stat_fields(fmt::format("/proc/{}/stat", pid), 22, 1);
  if (!ticks) return std::nullopt;
  return ticks->front();
}

bool stands_still(pid_t pid) {
  bool still = true;
  for_each_entry(fmt::format("/proc/{}/task", pid), [&](const fs::path& thread) {
    const std::string stat = stat_behind_name(thread / "stat");
    still &= stat.empty() || std::string_view("TtZXx").find(stat[0]) != std::string_view::npos;
  });
  return still;
}

std::size_t running_threads() {
  std::ifstream load("/proc/loadavg");
  std::string average;
  for (int i = 0; i < 3; ++i) load >> average;
  std::size_t running = 0;
  load >> running;
  return running;
}

std::optional<std::size_t> ended_bytes(pid_t pid) {
  if (ignores_children(pid)) return std::nullopt;
  // Of children, without reading a disk.
  const auto faults = stat_fields(fmt::format("/proc/{}/stat", pid), 11, 1);
  if (!faults) return std::nullopt;
  return faults->front() * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

bool ignores_children(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string key; status >> key;) {
    std::uint64_t ignored = 0;
    if (key == "SigIgn:" && status >> std::hex >> ignored) return ignored >> (SIGCHLD - 1) & 1;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return false;
}

namespace {

// Calls visit(bytes, path) for what may be executed of the memory of a process; without a file the
// path is empty, or a name in brackets.
template <class Visit>
void for_each_code(pid_t pid, const Visit& visit) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    // "BEGIN-END PERMISSIONS OFFSET DEVICE INODE   PATH"
    std::istringstream words(line);
    std::string addresses, permissions, offset, device, inode, path;
    words >> addresses >> permissions >> offset >> device >> inode >> std::ws;
    std::getline(words, path);
    if (permissions.size() <= 2 || permissions[2] != 'x') continue;
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(addresses.c_str(), "%llx-%llx", &begin, &end) != 2) continue;
    visit(std::size_t(end - begin), path);
  }
}

}  // namespace

std::vector<std::string> code_of(const std::vector<pid_t>& processes) {
  std::set<std::string> files;
  for (const pid_t pid : processes) {
    for_each_code(pid, [&](std::size_t, const std::string& path) {
      if (path.starts_with('/')) files.insert(path);
    });
  }
  return {files.begin(), files.end()};
}

std::size_t bytes_of_code_in_memory(const std::vector<pid_t>& processes) {
  std::size_t all = 0;
  for (const pid_t pid : processes) {
    for_each_code(pid, [&](std::size_t bytes, const std::string& path) {
      const bool is_of_the_system = path.starts_with("[v");  // [vdso], [vsyscall]
      if (!is_of_the_system && !path.starts_with('/')) all += bytes;
    });
  }
  return all;
}

}  // namespace attest
