#include "harness/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <system_error>

#include "harness/wire.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFirstArenaBytes = std::size_t(64) << 20;
constexpr uid_t kNobody = 65534;

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  return {ends[0], ends[1]};
}

void close_if_open(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// 128 fresh random bits. They only tie a reply to its request; no verdict depends on them.
std::string fresh_nonce() {
  static thread_local std::random_device device;
  std::string text;
  for (int word = 0; word < 4; ++word) text += fmt::format("{:08x}", device());
  return text;
}

// ---- In the child, between fork and exec: system calls only -------------------------------------

void write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) _exit(125);
  if (write(fd, text, std::strlen(text)) < 0) _exit(125);
  close(fd);
}

struct ChildPlan {
  std::array<int, 7> fds;  // what becomes the descriptors 0 to 6
  char* const* argv;
  char* const* environment;
  Isolation isolation;
  char* const* kept_folders;  // ended by null, as
  char* const* hidden_files;
  const char* uid_map;
  const char* shared_memory = nullptr;  // how a /dev/shm of its own is mounted; null: the system's
  const char* shared_pages = nullptr;   // that shmget may give; null: as many as the system has
};

// Texts as exec wants them. They must outlive the result.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The same user in a namespace of its own, without a privilege: root is called nobody there.
std::string own_user_map() {
  return fmt::format("{} {} 1", getuid() == 0 ? kNobody : getuid(), getuid());
}

// The folders of files that nobody but us may change. Not those that are everybody's, as /tmp is: a
// testee may need them.
std::vector<std::string> folders_to_keep(const std::vector<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& file : files) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    struct stat about {};
    if (stat(folder.c_str(), &about) != 0 || (about.st_mode & S_ISVTX) != 0) continue;
    folders.insert(folder.string());
  }
  return {folders.begin(), folders.end()};
}

// Whether it may need the system's /dev/shm, because a file of its own is there.
bool lies_in_shared_memory(const std::vector<std::string>& command) {
  const std::string folder = "/dev/shm/";
  return (std::filesystem::current_path() / "").string().starts_with(folder) ||
         std::any_of(command.begin(), command.end(), [&](const std::string& word) {
           return word.find(folder) != std::string::npos;
         });
}

[[noreturn]] void become_worker(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Move the descriptors out of the way first: a target may be another's source.
  std::array<int, 7> moved{};
  for (std::size_t i = 0; i < moved.size(); ++i) {
    moved[i] = fcntl(plan.fds[i], F_DUPFD, 64);
    if (moved[i] < 0) _exit(126);
  }
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (dup2(moved[i], static_cast<int>(i)) < 0) _exit(126);
  }
  if (syscall(SYS_close_range, 7u, ~0u, 0u) != 0) {
    for (int fd = 7; fd < 4096; ++fd) close(fd);
  }
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (plan.isolation == Isolation::other_user || plan.isolation == Isolation::user_only) {
    // Raw calls: the C library's versions would try to convince threads that were left behind.
    if (syscall(SYS_setgroups, 0, nullptr) != 0 ||
        syscall(SYS_setresgid, kNobody, kNobody, kNobody) != 0 ||
        syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) {
      _exit(125);
    }
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // changing the user clears it
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execvpe(plan.argv[0], plan.argv, plan.environment);
  _exit(127);
}

// Lets nobody in this namespace change what is in that folder, nor move it away.
void keep_folder(const char* folder) {
  if (mount(folder, folder, nullptr, MS_BIND | MS_REC, nullptr) != 0) _exit(125);
  mount_attr read_only = {};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  const int done = mount_setattr(AT_FDCWD, folder, 0, &read_only, sizeof(read_only));
  if (done != 0 && errno != ENOSYS) _exit(125);  // before Linux 5.12
}

// The first process of a worker's own namespaces: hides what is not for it, starts it, and ends as
// it ends. With it ends everything that the worker started, wherever that has fled.
[[noreturn]] void become_init(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (plan.isolation == Isolation::user_namespace) {
    prctl(PR_SET_DUMPABLE, 1);  // or /proc/self would belong to root
    write_file("/proc/self/uid_map", plan.uid_map);
  }
  constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", kPlain, nullptr) != 0) {
    _exit(125);
  }
  // What it leaves in shared memory is limited, and ends with it. Where there is none, or a
  // container forbids it, nothing else changes.
  if (plan.shared_memory) {
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, plan.shared_memory);
  }
  // Memory that shmget gives, in pages: it lives on where no process has it.
  const int pages = open("/proc/sys/kernel/shmall", O_WRONLY | O_CLOEXEC);
  if (plan.shared_pages && write(pages, plan.shared_pages, std::strlen(plan.shared_pages)) < 0) {
    // Older systems let only the first user of all do so.
  }
  close(pages);
  for (char* const* folder = plan.kept_folders; *folder; ++folder) keep_folder(*folder);
  for (char* const* file = plan.hidden_files; *file; ++file) {
    // Nothing hides what is not there, and nothing has to.
    if (mount("/dev/null", *file, nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT) _exit(125);
  }
  const auto worker = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (worker == 0) become_worker(plan);
  if (worker < 0) _exit(125);
  syscall(SYS_close_range, 0u, ~0u, 0u);
  for (;;) {
    int status = 0;
    const pid_t gone = waitpid(-1, &status, 0);
    if (gone == worker) _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    if (gone < 0 && errno != EINTR) _exit(125);
  }
}

// Starts what `plan` says; the process to wait for, or a negative number.
pid_t spawn(const ChildPlan& plan) {
  unsigned long flags = SIGCHLD;
  if (has_namespaces(plan.isolation)) flags |= CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
  if (plan.isolation == Isolation::user_namespace) flags |= CLONE_NEWUSER;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone, flags, 0, 0, 0, 0));
  if (pid != 0) return pid;
  if (has_namespaces(plan.isolation)) become_init(plan);
  become_worker(plan);
}

// ---- What /proc says ----------------------------------------------------------------------------

// A process and all that descend from it.
std::vector<pid_t> family_of(pid_t root) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    if (pid <= 0 || !std::getline(stat, line)) continue;
    // pid (name) state parent ...; the name may hold anything, so count from its end.
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    children[parent].push_back(pid);
  }
  std::vector<pid_t> family = {root};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const std::vector<pid_t>& born = children[family[i]];
    family.insert(family.end(), born.begin(), born.end());
  }
  return family;
}

// Bytes that one process has in memory: its own, and shared ones that no disk holds.
struct Resident {
  std::size_t own = 0;
  std::size_t shared = 0;
};

Resident resident_memory(pid_t pid) {
  Resident resident;
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  std::string key;
  while (status >> key) {
    std::size_t kib = 0;
    if (key == "RssAnon:" && status >> kib) resident.own = kib << 10;
    if (key == "RssShmem:" && status >> kib) resident.shared = kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return resident;
}

// An entry of /proc/PID/status that counts KiB, in bytes; 0 if it isn't there.
std::size_t status_bytes(pid_t pid, const std::string& wanted) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string key; status >> key;) {
    std::size_t kib = 0;
    if (key == wanted && status >> kib) return kib << 10;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// What a sanitizer takes for itself, many times that of the kernel, cannot be told from it.
#ifdef ATTEST_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Lets VmHWM begin anew from what is resident now; false where memory cannot be measured.
bool forget_peak(pid_t pid) {
  if (kSanitized) return false;
  std::ofstream file(fmt::format("/proc/{}/clear_refs", pid));
  file << "5" << std::flush;
  return bool(file);
}

using FileId = std::pair<dev_t, ino_t>;

// The files in memory (memfd_create, /dev/shm) that a process has open, with their bytes. They take
// memory though nobody maps them.
void add_memory_files(pid_t pid, std::map<FileId, std::size_t>& files) {
  std::error_code gone;
  const std::filesystem::path folder = fmt::format("/proc/{}/fd", pid);
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    struct stat about {};
    struct statfs system {};
    const char* path = entry.path().c_str();
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) continue;
    if (statfs(path, &system) != 0 || system.f_type != TMPFS_MAGIC) continue;
    files[{about.st_dev, about.st_ino}] = static_cast<std::size_t>(about.st_blocks) * 512;
  }
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

// Whether a process and its descendants hold more in memory than that, the arena apart.
bool uses_more_than(std::size_t limit, pid_t root, const Arena& arena) {
  std::set<FileId> ours;
  for (const int fd : {arena.input_fd(), arena.output_fd()}) {
    struct stat about {};
    if (fstat(fd, &about) == 0) ours.insert({about.st_dev, about.st_ino});
  }
  const std::vector<pid_t> family = family_of(root);
  std::map<FileId, std::size_t> files;
  std::size_t own = 0, mapped = 0, open = 0;
  for (const pid_t pid : family) {
    const Resident resident = resident_memory(pid);
    own += resident.own;
    mapped += resident.shared;
    add_memory_files(pid, files);
  }
  for (const auto& [id, bytes] : files) open += ours.contains(id) ? 0 : bytes;
  if (own + open > limit) return true;
  if (own + mapped <= limit) return false;
  for (const pid_t pid : family) mapped -= std::min(mapped, mapped_bytes(pid, ours));
  return own + mapped > limit;
}

std::string how_it_ended(int status, Isolation isolation) {
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = WEXITSTATUS(status);
  if (signal == 0 && code > 128 && has_namespaces(isolation)) signal = code - 128;  // become_init
  if (signal != 0) return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  if (code == 125) return "its isolation failed";
  if (code == 127) return "the program could not be started";
  return fmt::format("exited with status {} in the middle of a call", code);
}

// Whether JSON nests deeper than anything that the protocol has. Parsers survive that; what walks
// over their result does not.
bool nests_too_deep(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxFrameLevels) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

struct WorkerExecutor::Process {
  pid_t pid = -1;
  int request = -1;  // our ends
  int reply = -1;
  std::array<int, 2> printed = {-1, -1};  // stdout, stderr
  bool answered_once = false;
  std::string last_nonce = {};        // of the request before
  std::set<std::string> nonces = {};  // of all requests
  std::string inbox = {};             // bytes of a frame that has not arrived in full
  std::string captured = {};

  ~Process() {
    if (pid > 0) {
      kill(-pid, SIGKILL);  // and whatever it started
      kill(pid, SIGKILL);
      int status;
      waitpid(pid, &status, 0);
    }
    for (int* fd : {&request, &reply, &printed[0], &printed[1]}) close_if_open(*fd);
  }

  void drain(int& fd) {
    std::array<char, 4096> buffer{};
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n <= 0) {
      close_if_open(fd);
      return;
    }
    const std::size_t room = kCaptureBytes - std::min(kCaptureBytes, captured.size());
    captured.append(buffer.data(), std::min(room, static_cast<std::size_t>(n)));
  }

  // Once the process is dead: what it still left in its pipes.
  void drain_rest() {
    for (int& fd : printed) {
      if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
      while (fd >= 0) drain(fd);
    }
  }
};

WorkerExecutor::WorkerExecutor(WorkerOptions options) : options_(std::move(options)) {
  signal(SIGPIPE, SIG_IGN);  // a worker that died is an error of write, not our end
}
WorkerExecutor::~WorkerExecutor() = default;

Arena& WorkerExecutor::arena(std::size_t bytes) {
  if (!arena_ || arena_->capacity() < bytes) {
    stop();
    std::size_t capacity = kFirstArenaBytes;
    while (capacity < bytes) capacity *= 2;
    arena_ = std::make_unique<Arena>(capacity);
  }
  return *arena_;
}

void WorkerExecutor::stop() { process_.reset(); }

void WorkerExecutor::start() {
  if (!arena_) arena(1);
  auto process = std::make_unique<Process>();
  Pipe request = make_pipe(), reply = make_pipe(), out = make_pipe(), err = make_pipe();
  int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

  std::vector<std::string> words = options_.command, hidden_files = options_.hidden_files;
  std::vector<std::string> kept_folders = folders_to_keep(hidden_files);
  const std::vector<char*> argv = pointers_to(words), kept = pointers_to(kept_folders),
                           hidden = pointers_to(hidden_files);
  std::vector<std::string> variables = {
      fmt::format("ATTEST_REQUEST_FD={}", kRequestFd), fmt::format("ATTEST_REPLY_FD={}", kReplyFd),
      fmt::format("ATTEST_INPUT_FD={}", kInputFd), fmt::format("ATTEST_OUTPUT_FD={}", kOutputFd)};
  std::vector<char*> environment;
  for (char** variable = environ; *variable; ++variable) environment.push_back(*variable);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const std::string uid_map = own_user_map();
  const std::string shared_memory = fmt::format("mode=1777,size={}", options_.limits.memory_bytes);
  const std::string shared_pages = fmt::format(
      "{}", options_.limits.memory_bytes / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  const ChildPlan plan = {
      .fds = {null, out.write, err.write, request.read, reply.write, arena_->input_fd(),
              arena_->output_fd()},
      .argv = argv.data(),
      .environment = environment.data(),
      .isolation = options_.isolation,
      .kept_folders = kept.data(),
      .hidden_files = hidden.data(),
      .uid_map = uid_map.c_str(),
      .shared_memory = lies_in_shared_memory(words) ? nullptr : shared_memory.c_str(),
      .shared_pages = shared_pages.c_str()};

  const pid_t pid = spawn(plan);
  const int spawn_error = errno;
  for (int* fd : {&null, &out.write, &err.write, &request.read, &reply.write}) close_if_open(*fd);
  process->pid = pid;
  process->request = request.write;
  process->reply = reply.read;
  process->printed = {out.read, err.read};
  if (pid < 0) throw std::system_error(spawn_error, std::generic_category(), "starting a worker");
  fcntl(process->request, F_SETFL, O_NONBLOCK);  // a worker that reads nothing must not stop us
  setpgid(pid, pid);  // here too, so that it holds before the child gets to it
  process_ = std::move(process);
}

Reply WorkerExecutor::ended(Reply::Kind kind, const std::string& message) {
  if (process_->pid > 0) {
    kill(-process_->pid, SIGKILL);
    kill(process_->pid, SIGKILL);
  }
  process_->drain_rest();
  Reply reply{.kind = kind, .message = message, .captured = std::move(process_->captured)};
  stop();
  return reply;
}

// The stream has ended without a reply: the process is dying, or closed it and lives on.
Reply WorkerExecutor::broke_off() {
  for (int i = 0; i < 100; ++i) {
    int status = 0;
    if (waitpid(process_->pid, &status, WNOHANG) == process_->pid) {
      kill(-process_->pid, SIGKILL);
      process_->pid = -1;
      return ended(Reply::Kind::crashed, how_it_ended(status, options_.isolation));
    }
    usleep(10000);
  }
  return ended(Reply::Kind::protocol_error, "closed its end of the protocol");
}

Reply WorkerExecutor::execute(nlohmann::json request) {
  using Kind = Reply::Kind;
  if (!process_) start();
  Process& process = *process_;
  process.captured.clear();
  const std::string nonce = fresh_nonce();
  request["nonce"] = nonce;
  const double seconds =
      process.answered_once ? options_.limits.call_seconds : options_.limits.start_seconds;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  pollfd unasked = {process.reply, POLLIN, 0};
  if (poll(&unasked, 1, 0) > 0 && unasked.revents & POLLIN) {
    return ended(Kind::protocol_error, "sent a reply that nobody asked for");
  }
  std::string outbox = frame(json_text(request));
  constexpr int kWatchMs = 50;  // how often memory is looked at
  auto next_look = Clock::now() + std::chrono::milliseconds(kWatchMs);
  for (;;) {
    // What is not to be watched has a descriptor of -1, which poll passes over.
    std::array<pollfd, 4> watched = {pollfd{process.reply, POLLIN, 0},
                                     pollfd{process.printed[0], POLLIN, 0},
                                     pollfd{process.printed[1], POLLIN, 0},
                                     pollfd{outbox.empty() ? -1 : process.request, POLLOUT, 0}};
    const int ready = poll(watched.data(), watched.size(), kWatchMs);
    if (ready < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
    for (std::size_t i = 0; ready > 0 && i < 2; ++i) {
      if (watched[i + 1].revents) process.drain(process.printed[i]);
    }
    if (ready > 0 && watched[3].revents) {
      const ssize_t n = write(process.request, outbox.data(), outbox.size());
      if (n < 0 && errno != EAGAIN && errno != EINTR) return broke_off();
      if (n > 0) outbox.erase(0, static_cast<std::size_t>(n));
    }
    if (ready > 0 && watched[0].revents) {
      std::array<char, 65536> buffer{};
      const ssize_t n = read(process.reply, buffer.data(), buffer.size());
      if (n <= 0) {
        return broke_off();
      }
      process.inbox.append(buffer.data(), static_cast<std::size_t>(n));
      if (process.inbox.size() >= 4) {
        std::size_t size = 0;
        for (std::size_t i = 4; i-- > 0;) {
          size = size << 8 | static_cast<unsigned char>(process.inbox[i]);
        }
        if (size > kMaxFrameBytes) return ended(Kind::protocol_error, "sent a malformed frame");
        if (process.inbox.size() > 4 + size)
          return ended(Kind::protocol_error, "sent more than one reply");
        if (process.inbox.size() == 4 + size) {
          const std::string text = process.inbox.substr(4);
          process.inbox.clear();
          if (nests_too_deep(text))
            return ended(Kind::protocol_error, "sent a reply that nests too deep");
          nlohmann::json body = parse_json_if_any(text);
          if (!body.is_object() || !body.contains("status") || !body["status"].is_string()) {
            return ended(Kind::protocol_error, "sent a reply that is no JSON object with a status");
          }
          const nlohmann::json echoed = body.value("nonce", nlohmann::json());
          if (echoed != nonce) {
            const bool earlier = echoed.is_string() && process.nonces.contains(echoed);
            return ended(Kind::protocol_error,
                         echoed == process.last_nonce ? "sent a second reply to the request before"
                         : earlier
                             ? "sent a second reply to an earlier request, perhaps of another "
                               "case"
                             : "sent a reply to another request");
          }
          process.answered_once = true;
          process.last_nonce = nonce;
          process.nonces.insert(nonce);
          if (body["status"] == "fault") {
            Reply reply = ended(Kind::answered, "");
            reply.body = std::move(body);
            return reply;
          }
          return {.body = std::move(body), .captured = std::move(process.captured)};
        }
      }
    }
    const auto now = Clock::now();
    if (options_.interrupted && options_.interrupted()) {
      return ended(Kind::interrupted, "the run was interrupted");
    }
    if (now > deadline) {
      return ended(Kind::timed_out, fmt::format("no reply within {} s", seconds));
    }
    if (now > next_look) {
      next_look = now + std::chrono::milliseconds(kWatchMs);
      if (uses_more_than(options_.limits.memory_bytes, process.pid, *arena_)) {
        return ended(Kind::out_of_memory,
                     fmt::format("used more than {} MiB", options_.limits.memory_bytes >> 20));
      }
    }
  }
}

Reply WorkerExecutor::measure(nlohmann::json request) {
  if (!process_) start();
  std::size_t tensors = 0;
  for (const auto& tensor : request.value("tensors", nlohmann::json::object())) {
    tensors += tensor.at("region_bytes").get<std::size_t>();
  }
  std::map<pid_t, std::size_t> before;
  bool measurable = true;
  for (const pid_t pid : family_of(process_->pid)) {
    measurable = forget_peak(pid) && measurable;
    before[pid] = status_bytes(pid, "VmRSS:");
  }
  Reply reply = execute(std::move(request));
  if (!measurable || !process_ || reply.kind != Reply::Kind::answered) return reply;
  std::size_t risen = 0;
  for (const auto& [pid, resident] : before) {
    const std::size_t peak = status_bytes(pid, "VmHWM:");
    risen += peak - std::min(peak, resident);
  }
  reply.peak_bytes = risen - std::min(risen, tensors);
  return reply;
}

Reply WorkerExecutor::settle() {
  if (!process_) return Executor::settle();
  Reply reply = execute({{"op", "describe"}, {"brief", true}});
  // Memory for tensors that lie far apart is not kept: with many testees and jobs there are more
  // workers than addresses for it.
  constexpr std::size_t kMostKept = std::size_t(1) << 32;
  if (arena_->capacity() > kMostKept) {
    stop();
    arena_.reset();
  }
  // What it says is of no interest, only that it is the reply to this.
  return reply.kind == Reply::Kind::answered ? Executor::settle() : reply;
}

std::string describe(Isolation isolation) {
  switch (isolation) {
    case Isolation::other_user:
      return "another user, in namespaces of its own";
    case Isolation::user_namespace:
      return "the same user, in namespaces of its own";
    case Isolation::user_only:
      return "another user, which all testees share";
    case Isolation::none:
      return "accidental faults only";
  }
  return "?";
}

Isolation strongest_isolation(const std::vector<std::string>& files) {
  constexpr const char* kCanRead =
      "for f; do test -r \"$f\" || exit 1; test ! -d \"$f\" || test -x \"$f\" || exit 1; done";
  std::vector<std::string> words = {"/bin/sh", "-c", kCanRead, "sh"};
  words.insert(words.end(), files.begin(), files.end());
  const std::vector<char*> argv = pointers_to(words);
  char* const nothing = nullptr;
  const std::string map = own_user_map();
  for (const Isolation isolation :
       {Isolation::other_user, Isolation::user_namespace, Isolation::user_only}) {
    if (isolation != Isolation::user_namespace && geteuid() != 0) continue;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const ChildPlan plan = {.fds = {null, null, null, null, null, null, null},
                            .argv = argv.data(),
                            .environment = environ,
                            .isolation = isolation,
                            .kept_folders = &nothing,
                            .hidden_files = &nothing,
                            .uid_map = map.c_str()};
    const pid_t pid = spawn(plan);
    int status = -1;
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    close(null);
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) return isolation;
  }
  return Isolation::none;
}

void harden_this_process() { prctl(PR_SET_DUMPABLE, 0); }

}  // namespace attest
