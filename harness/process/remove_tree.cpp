#include "harness/process/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace attest {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// A folder, whose owner may have closed it to himself; null if there is none of that name.
Folder open_folder(int parent, const char* name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int fd = openat(parent, name, kFlags);
  if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0) return {fdopendir(fd), closedir};
  if (fd >= 0) close(fd);
  // By a descriptor, so that no link is followed.
  const int there = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (there < 0) return {nullptr, closedir};
  chmod(fmt::format("/proc/self/fd/{}", there).c_str(), 0700);
  close(there);
  fd = openat(parent, name, kFlags);
  return {fd < 0 ? nullptr : fdopendir(fd), closedir};
}

std::vector<std::string> names_in(DIR* folder) {
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

}  // namespace

bool remove_tree(const std::filesystem::path& folder) {
  const Folder top = open_folder(AT_FDCWD, folder.c_str());
  if (!top) return false;
  const int top_fd = dirfd(top.get());
  // Each folder is moved to the top before it is looked into: so none is far below, two descriptors
  // are enough, and nobody who moves folders meanwhile leads anywhere else.
  std::vector<std::string> waiting = names_in(top.get());
  bool all = true;
  for (std::size_t moved = 0; !waiting.empty();) {
    const std::string name = std::move(waiting.back());
    waiting.pop_back();
    if (unlinkat(top_fd, name.c_str(), 0) == 0) continue;
    const Folder here = open_folder(top_fd, name.c_str());
    if (!here) {
      all = false;
      continue;
    }
    const int fd = dirfd(here.get());
    for (const std::string& entry : names_in(here.get())) {
      if (unlinkat(fd, entry.c_str(), 0) == 0 || unlinkat(fd, entry.c_str(), AT_REMOVEDIR) == 0) {
        continue;
      }
      // To be moved, a folder must be its owner's to write.
      static_cast<void>(open_folder(fd, entry.c_str()));
      const std::string place = fmt::format(".attest-removed-{}", moved++);
      if (renameat(fd, entry.c_str(), top_fd, place.c_str()) == 0) {
        waiting.push_back(place);
      } else {
        all = false;
      }
    }
    if (unlinkat(top_fd, name.c_str(), AT_REMOVEDIR) != 0) all = false;
  }
  return rmdir(folder.c_str()) == 0 && all;
}

}  // namespace attest
