#include "harness/process/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include "harness/process/descriptor.h"
#include "harness/process/variables.h"

namespace attest {
namespace {

[[noreturn]] void complain(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Beside this program, or where the tests of a build tree find it.
const std::string& sandbox_program() {
  static const std::string program = [] {
    namespace fs = std::filesystem;
    for (fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();;
         folder = folder.parent_path()) {
      for (const fs::path& path : {folder / "attest-sandbox", folder / "bin" / "attest-sandbox"}) {
        if (fs::exists(path)) return path.string();
      }
      if (folder == folder.root_path()) {
        throw std::runtime_error(
            "attest-sandbox, which starts testees, is not beside this program");
      }
    }
  }();
  return program;
}

rlim_t kept_open_files = 0;  // 0: the limit was not raised

Descriptor words_of(const Sandbox& sandbox) {
  constexpr const char* kWhat = "telling what a worker is";
  const std::string words = to_words(sandbox);
  Descriptor file(memfd_create("sandbox", MFD_CLOEXEC), kWhat);
  if (pwrite(file.get(), words.data(), words.size(), 0) != static_cast<ssize_t>(words.size())) {
    complain(errno, kWhat);
  }
  return file;
}

struct SpawnActions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnActions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// Whether a program of the system does, in such a sandbox without network.
bool succeeds(const std::vector<std::string>& command, Isolation isolation, uid_t user = kNobody) {
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null");
  WorkerDescriptors descriptors;
  descriptors.fill(null.get());
  const pid_t pid =
      start_worker({.command = command, .isolation = isolation, .user = user, .network = false},
                   descriptors, passed_variables());
  int status = -1;
  const bool ended = waitpid(pid, &status, 0) == pid;
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

pid_t start_worker(const Sandbox& sandbox, const WorkerDescriptors& descriptors,
                   const std::vector<std::string>& variables) {
  Sandbox told = sandbox;
  if (kept_open_files != 0) told.open_files = std::to_string(kept_open_files);
  const Descriptor words = words_of(told);
  std::array<int, 2> born{};
  if (pipe2(born.data(), O_CLOEXEC) != 0) complain(errno, "pipe");
  const Descriptor born_read(born[0], "pipe");
  Descriptor born_write(born[1], "pipe");

  // First out of the way: a target may be another's source.
  SpawnActions actions;
  std::vector<Descriptor> moved;
  moved.reserve(descriptors.size() + 2);
  const auto give = [&](int fd, int as) {
    if (fd <= kBornFd) {
      fd = moved.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, kBornFd + 1), "descriptors of a worker")
               .get();
    }
    posix_spawn_file_actions_adddup2(&actions.files, fd, as);
  };
  for (std::size_t i = 0; i < descriptors.size(); ++i) give(descriptors[i], static_cast<int>(i));
  give(words.get(), kWordsFd);
  give(born_write.get(), kBornFd);
  sigset_t none, ignored_here;
  sigemptyset(&none);
  sigemptyset(&ignored_here);
  sigaddset(&ignored_here, SIGPIPE);
  sigaddset(&ignored_here, SIGXFSZ);
  posix_spawnattr_setsigmask(&actions.attributes, &none);
  posix_spawnattr_setsigdefault(&actions.attributes, &ignored_here);
  posix_spawnattr_setpgroup(&actions.attributes, 0);
  posix_spawnattr_setflags(&actions.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> environment;
  for (const std::string& variable : variables) {
    environment.push_back(const_cast<char*>(variable.c_str()));  // as posix_spawn has it
  }
  environment.push_back(nullptr);
  std::string name = "attest-sandbox";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  pid_t sandbox_pid = -1;
  if (const int error = posix_spawn(&sandbox_pid, sandbox_program().c_str(), &actions.files,
                                    &actions.attributes, arguments.data(), environment.data())) {
    complain(error, "starting a worker");
  }
  moved.clear();
  born_write.close();
  pid_t pid = -1;
  ssize_t got = 0;
  do {
    got = read(born_read.get(), &pid, sizeof(pid));
  } while (got < 0 && errno == EINTR);
  if (got != sizeof(pid) || pid == sandbox_pid)
    return sandbox_pid;  // it is the worker, or has failed
  int status = 0;
  waitpid(sandbox_pid, &status, 0);
  return pid;
}

uid_t user_for(const std::vector<std::string>& command) {
  // What systemd gives to services that have no user of their own.
  constexpr uid_t kFirst = 61184, kLast = 65519, kCount = kLast - kFirst + 1;
  // Containers may have fewer users.
  static const bool there_are = geteuid() == 0 &&
                                succeeds({"/bin/true"}, Isolation::user_only, kFirst) &&
                                succeeds({"/bin/true"}, Isolation::user_only, kLast);
  static std::mutex mutex;
  static std::map<std::vector<std::string>, uid_t> users;
  static uid_t next = static_cast<uid_t>(getpid()) * 41;  // elsewhere in each program
  const std::lock_guard lock(mutex);
  const auto known = users.find(command);
  if (known != users.end()) return known->second;
  uid_t user = kNobody;
  for (uid_t tried = 0; there_are && user == kNobody && tried < kCount; ++tried) {
    const uid_t candidate = kFirst + next++ % kCount;
    if (!getpwuid(candidate) && !getgrgid(candidate)) user = candidate;
  }
  return users[command] = user;
}

Isolation strongest_isolation(const std::vector<std::string>& files, uid_t user) {
  constexpr const char* kCanRead =
      "for f; do test -r \"$f\" || exit 1; test ! -d \"$f\" || test -x \"$f\" || exit 1; done";
  std::vector<std::string> command = {"/bin/sh", "-c", kCanRead, "sh"};
  command.insert(command.end(), files.begin(), files.end());
  for (const Isolation isolation :
       {Isolation::other_user, Isolation::user_namespace, Isolation::user_only}) {
    if (isolation != Isolation::user_namespace && geteuid() != 0) continue;
    if (succeeds(command, isolation, user)) return isolation;
  }
  return Isolation::none;
}

bool keeps_network(Isolation isolation) {
  std::error_code none;
  const std::string ours = std::filesystem::read_symlink("/proc/self/ns/net", none);
  return has_namespaces(isolation) &&
         succeeds({"/bin/sh", "-c", "test \"$(readlink /proc/self/ns/net)\" != \"$0\"", ours},
                  isolation);
}

std::string describe(Isolation isolation) {
  switch (isolation) {
    case Isolation::other_user:
      return "another user, in namespaces of its own";
    case Isolation::user_namespace:
      return "the same user, in namespaces of its own";
    case Isolation::user_only:
      return "another user";
    case Isolation::none:
      return "accidental faults only";
  }
  return "?";
}

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlim_t kept = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) kept_open_files = kept;
}

}  // namespace attest
