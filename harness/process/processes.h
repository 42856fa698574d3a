// What the system tells of a process and of all that descend from it (Linux: /proc).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attest {

// The process, and all that descend from it and live.
std::vector<pid_t> family_of(pid_t root);

// The files from which they run code: programs and libraries. Empty where that cannot be told.
std::vector<std::string> code_of(const std::vector<pid_t>& processes);
// How many bytes of code they have that no file holds: made by themselves, as compilers at run time
// make it, or copied from somewhere.
std::size_t bytes_of_code_in_memory(const std::vector<pid_t>& processes);

using FileId = std::pair<dev_t, ino_t>;

// Whether the processes hold more bytes in memory than that: private ones, and shared ones that no
// disk holds, those of `apart` not counted.
bool hold_more_than(std::size_t limit, const std::vector<pid_t>& processes,
                    const std::set<FileId>& apart);

// Bytes of files in memory (memfd_create, /dev/shm) that the processes have open and nobody maps,
// those of `apart` not counted.
std::size_t unmapped_bytes(const std::vector<pid_t>& processes, const std::set<FileId>& apart);

// Whether the memory of a process says anything of the testee: a sanitizer takes many times as much
// for itself, which cannot be told from it.
#ifdef ATTEST_SANITIZED
inline constexpr bool kMemoryTells = false;
#else
inline constexpr bool kMemoryTells = true;
#endif

// Bytes that a process has in memory; those of them that are its own, held by no file. Nothing
// where that cannot be told.
std::optional<std::size_t> resident_bytes(pid_t pid);
std::optional<std::size_t> own_bytes(pid_t pid);

// The most that it had in memory since forget_peak, which is false where that cannot be told.
std::optional<std::size_t> peak_bytes(pid_t pid);
bool forget_peak(pid_t pid);

// Bytes of its own, held by no file, that it has used since forget_touched; likewise.
std::optional<std::size_t> touched_bytes(pid_t pid);
bool forget_touched(pid_t pid);

// What one thread has had: seconds of a processor, and seconds that it waited for one (0 where that
// cannot be told).
struct ThreadTime {
  double cpu_s = 0, waited_s = 0;
};
std::map<pid_t, ThreadTime> thread_times(const std::vector<pid_t>& processes);

// Seconds of a processor that all threads of a process have had, those that ended too, to the
// nanosecond; nothing where there is no such process, or no such clock.
std::optional<double> computed_seconds(pid_t pid);

// Seconds of a processor that those processes had in all, and their children who have ended and
// were waited for; the latter's to a hundredth or two.
double cpu_seconds(const std::vector<pid_t>& processes);

// Of children alone, who have ended and were waited for: seconds of a processor to a hundredth or
// two, and page faults, of which each has some.
double children_seconds(const std::vector<pid_t>& processes);

// Whether nobody waits for its children, so that what they took is not added to it.
bool ignores_children(pid_t pid);

std::size_t children_faults(const std::vector<pid_t>& processes);

double ended_seconds(const std::vector<pid_t>& processes);

// Seconds of a processor that a worker's processes take from now on.
class ProcessorTime {
 public:
  explicit ProcessorTime(const std::vector<pid_t>& family)
      : before_(cpu_seconds(family)),
        of_children_(children_seconds(family)),
        faults_(children_faults(family)),
        first_(family.begin(), family.end()) {}

  // Those that it starts leave their time with it when they end, unless it does not wait for them:
  // what was seen of them counts.
  void look(const std::vector<pid_t>& family);

  // Until now; nothing if one that was seen at a look has ended and left its time to nobody.
  std::optional<double> seconds(const std::vector<pid_t>& family);
  // Whether children had some of it, who have ended.
  bool is_of_children(const std::vector<pid_t>& family) const {
    return children_faults(family) > faults_;
  }

 private:
  double before_, of_children_, most_ = 0;
  std::size_t faults_;
  std::set<pid_t> first_;
  std::map<pid_t, double> seen_ = {};  // of those that it started, what they had at the last look
};

// Whether one of them has a GPU open.
bool have_a_gpu(const std::vector<pid_t>& processes);

// When it was started, in ticks: no two processes of the same number share that. Nothing if there
// is none.
std::optional<std::size_t> start_of(pid_t pid);

// Whether no thread of it runs: each is stopped, or has ended.
bool stands_still(pid_t pid);

// Threads of the whole machine that run or wait for a processor.
std::size_t running_threads();

// Bytes of the pages that its children had come to, those that have ended and been waited for;
// nothing too where nobody waits for them.
std::optional<std::size_t> ended_bytes(pid_t pid);

}  // namespace attest
