// attest-sandbox: makes the sandbox that sandbox.h describes, and starts a worker in it. Only the
// harness calls it; a person never does.
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "harness/process/sandbox.h"

namespace attest {
namespace {

constexpr rlim_t kMostProcesses = 32768;  // of a user; one testee never needs as many

// What it says is captured as if the worker had printed it.
[[noreturn]] void fail(const std::string& what) {
  const std::string line = "attest-sandbox: " + what + ": " + std::strerror(errno) + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) _exit(kSandboxFailed);
  _exit(kSandboxFailed);
}

void must(bool done, const std::string& what) {
  if (!done) fail(what);
}

bool write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return done;
}

Sandbox read_sandbox() {
  std::string words;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t n =
        pread(kWordsFd, buffer.data(), buffer.size(), static_cast<off_t>(words.size()));
    must(n >= 0, "reading what to start");
    if (n == 0) return sandbox_from_words(words);
    words.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

// Who waits for the worker learns whom to wait for.
void report_born(pid_t pid) {
  must(write(kBornFd, &pid, sizeof(pid)) == sizeof(pid), "reporting a process");
}

// The same user in a namespace of its own, without a privilege: root is called nobody there.
void enter_user_namespace() {
  const bool root = getuid() == 0;
  const auto map = [&](auto own) {
    return std::to_string(root ? kNobody : own) + " " + std::to_string(own) + " 1";
  };
  const std::string users = map(getuid()), groups = map(getgid());
  must(unshare(CLONE_NEWUSER) == 0, "a user namespace");
  must(write_file("/proc/self/uid_map", users), "/proc/self/uid_map");
  // Whoever may not drop groups may not map one either, unless he gives up on dropping. Without a
  // map no file can be made that belongs to the group: none in /dev/shm at all.
  must(write_file("/proc/self/setgroups", "deny") || errno == ENOENT, "/proc/self/setgroups");
  must(write_file("/proc/self/gid_map", groups), "/proc/self/gid_map");
}

[[noreturn]] void become_worker(const Sandbox& sandbox) {
  setpgid(0, 0);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  rlimit processes{};
  if (getrlimit(RLIMIT_NPROC, &processes) == 0) {
    processes.rlim_cur = std::min(processes.rlim_cur, kMostProcesses);
    setrlimit(RLIMIT_NPROC, &processes);
  }
  rlimit open_files{};
  if (!sandbox.open_files.empty() && getrlimit(RLIMIT_NOFILE, &open_files) == 0) {
    open_files.rlim_cur = std::strtoull(sandbox.open_files.c_str(), nullptr, 10);
    setrlimit(RLIMIT_NOFILE, &open_files);
  }
  if (has_other_user(sandbox.isolation)) {
    const uid_t user = sandbox.user;
    must(syscall(SYS_setgroups, 0, nullptr) == 0 && syscall(SYS_setresgid, user, user, user) == 0 &&
             syscall(SYS_setresuid, user, user, user) == 0,
         "becoming another user");
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // changing the user clears it
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::vector<char*> arguments;
  for (const std::string& word : sandbox.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  errno == ENOENT ? _exit(kNoSuchProgram) : fail(sandbox.command[0]);
}

// Lets nobody in this namespace change what is at or below that path, nor move it away.
void make_read_only(const char* path) {
  must(mount(path, path, nullptr, MS_BIND | MS_REC, nullptr) == 0 || errno == ENOENT, path);
  mount_attr read_only = {};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  must(mount_setattr(AT_FDCWD, path, 0, &read_only, sizeof(read_only)) == 0 || errno == ENOENT ||
           errno == ENOSYS,  // before Linux 5.12
       path);
}

// Whatever is mounted by now.
void make_all_read_only() {
  mount_attr read_only = {};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  must(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) == 0 ||
           errno == ENOSYS,  // before Linux 5.12
       "a file system that is read-only");
}

// Keeps the folders above those paths where they are: a mount point cannot be moved, what is above
// one can. Then whoever stands in one of them stands in what was mounted.
void keep_in_place(const std::vector<std::string>& paths) {
  std::set<std::string> folders;  // each after those above it
  for (const std::string& path : paths) {
    for (auto slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      folders.insert(path.substr(0, slash));
    }
  }
  for (const std::string& folder : folders) {
    must(mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0 ||
             errno == ENOENT || errno == EACCES,  // nobody gets there
         folder);
  }
}

// Leaves of all homes that one.
void keep_home(const std::string& home) {
  const std::string homes = home.substr(0, home.rfind('/'));
  const int own = open(home.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  must(own >= 0, home);
  must(mount("tmpfs", homes.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=64k") == 0,
       homes);
  must(mkdir(home.c_str(), 0700) == 0, home);
  const std::string source = "/proc/self/fd/" + std::to_string(own);
  must(mount(source.c_str(), home.c_str(), nullptr, MS_BIND, nullptr) == 0, home);
  mount_attr writable = {};  // though all around it may be read-only by now
  writable.attr_clr = MOUNT_ATTR_RDONLY;
  must(
      mount_setattr(AT_FDCWD, home.c_str(), 0, &writable, sizeof(writable)) == 0 || errno == ENOSYS,
      home);
  close(own);
}

// A network of its own has nothing but the way to itself, and that not by itself.
void raise_loopback() {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  ioctl(any, SIOCSIFFLAGS, &loopback);  // few need it
  close(any);
}

// The first process of a worker's own namespaces: hides what is not for it, starts it, and ends as
// it ends. With it ends everything that the worker started, wherever that has fled.
[[noreturn]] void become_init(const Sandbox& sandbox) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  must(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mounts of its own");
  if (sandbox.keeps_nothing) make_all_read_only();
  must(mount("proc", "/proc", "proc", kPlain, nullptr) == 0, "/proc");
  // What it leaves in shared memory is limited, and ends with it. Where there is none, or a
  // container forbids it, nothing else changes.
  if (!sandbox.shared_memory.empty()) {
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, sandbox.shared_memory.c_str());
  }
  // Memory that shmget gives lives on where no process has it. Older systems let only the first
  // user of all say how much.
  if (!sandbox.shared_pages.empty()) write_file("/proc/sys/kernel/shmall", sandbox.shared_pages);
  keep_in_place(sandbox.read_only);
  for (const std::string& path : sandbox.read_only) make_read_only(path.c_str());
  for (const std::string& file : sandbox.hidden_files) {
    // Nothing hides what is not there, and nothing has to.
    must(mount("/dev/null", file.c_str(), nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT, file);
  }
  if (!sandbox.home.empty()) keep_home(sandbox.home);
  std::array<char, PATH_MAX> here{};
  if (getcwd(here.data(), here.size())) must(chdir(here.data()) == 0, here.data());
  if (!sandbox.network) raise_loopback();
  // A user namespace in this one would have mounts of its own, whose memory nobody counts.
  if (sandbox.isolation == Isolation::user_namespace) {  // else it would be everybody's
    write_file("/proc/sys/user/max_user_namespaces", "0");
  }
  const pid_t worker = fork();
  must(worker >= 0, "starting a worker");
  if (worker == 0) become_worker(sandbox);
  syscall(SYS_close_range, 0u, ~0u, 0u);
  for (;;) {
    int status = 0;
    const pid_t gone = waitpid(-1, &status, 0);
    if (gone == worker) _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    if (gone < 0 && errno != EINTR) _exit(kSandboxFailed);
  }
}

[[noreturn]] void make_sandbox() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (syscall(SYS_close_range, kBornFd + 1, ~0u, 0u) != 0) {
    for (int fd = kBornFd + 1; fd < 4096; ++fd) close(fd);
  }
  const Sandbox sandbox = read_sandbox();
  close(kWordsFd);
  fcntl(kBornFd, F_SETFD, FD_CLOEXEC);
  if (!has_namespaces(sandbox.isolation)) {
    report_born(getpid());
    become_worker(sandbox);
  }
  if (sandbox.isolation == Isolation::user_namespace) enter_user_namespace();
  constexpr int kOwn = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
  if (sandbox.network || unshare(kOwn | CLONE_NEWNET) != 0) must(unshare(kOwn) == 0, "namespaces");
  // A child of the harness, as this process is, so that the harness can wait for its end.
  const auto init = static_cast<pid_t>(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0));
  must(init >= 0, "namespaces");
  if (init == 0) {
    close(kBornFd);
    become_init(sandbox);
  }
  report_born(init);
  _exit(0);
}

}  // namespace
}  // namespace attest

int main() { attest::make_sandbox(); }
