// What the system tells of a process and of all that descend from it (Linux: /proc).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attest {

// The process, and all that descend from it and live.
std::vector<pid_t> family_of(pid_t root);

// The files from which a process runs code: programs and libraries. Empty where that cannot be told.
std::vector<std::string> code_of(pid_t pid);

using FileId = std::pair<dev_t, ino_t>;

// Whether the processes hold more bytes in memory than that: private ones, and shared ones that no
// disk holds, those of `apart` not counted.
bool hold_more_than(std::size_t limit, const std::vector<pid_t>& processes,
                    const std::set<FileId>& apart);

// Bytes that a process has in memory; nothing where that cannot be told.
std::optional<std::size_t> resident_bytes(pid_t pid);

// The most that it had in memory since forget_peak, which is false where that cannot be told.
std::optional<std::size_t> peak_bytes(pid_t pid);
bool forget_peak(pid_t pid);

// Bytes of its own, held by no file, that it has used since forget_touched; likewise.
std::optional<std::size_t> touched_bytes(pid_t pid);
bool forget_touched(pid_t pid);

// Bytes of the pages that its children had come to, those that have ended and been waited for.
std::optional<std::size_t> ended_bytes(pid_t pid);

}  // namespace attest
