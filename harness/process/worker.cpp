#include "harness/process/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <semaphore>
#include <set>
#include <system_error>

#include "harness/process/captured.h"
#include "harness/process/descriptor.h"
#include "harness/process/stage.h"
#include "harness/process/standstill.h"
#include "harness/process/wire.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFirstArenaBytes = std::size_t(64) << 20;

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends = {-1, -1};
  const int failed = pipe2(ends.data(), O_CLOEXEC);
  return {{failed ? failed : ends[0], "pipe"}, {ends[1], "pipe"}};
}

// A turn at what only so many may do at a time.
class Turn {
 public:
  explicit Turn(std::counting_semaphore<kStartsAtOnce>& turns) : turns_(turns) { turns.acquire(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { turns_.release(); }

 private:
  std::counting_semaphore<kStartsAtOnce>& turns_;
};

// 128 fresh random bits. They only tie a reply to its request; no verdict depends on them.
std::string fresh_nonce() {
  static thread_local std::random_device device;
  std::string text;
  for (int word = 0; word < 4; ++word) text += fmt::format("{:08x}", device());
  return text;
}

// Whether it may need the system's /dev/shm, because a file of its own is there.
bool lies_in_shared_memory(const std::vector<std::string>& command) {
  const std::string folder = "/dev/shm/";
  return (std::filesystem::current_path() / "").string().starts_with(folder) ||
         std::any_of(command.begin(), command.end(), [&](const std::string& word) {
           return word.find(folder) != std::string::npos;
         });
}

std::set<FileId> files_of(const Arena& arena) {
  std::set<FileId> files;
  for (const int fd : {arena.input_fd(), arena.output_fd()}) {
    struct stat about {};
    if (fstat(fd, &about) == 0) files.insert({about.st_dev, about.st_ino});
  }
  return files;
}

std::string how_it_ended(int status, Isolation isolation) {
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = WEXITSTATUS(status);
  if (signal == 0 && code > 128 && has_namespaces(isolation))
    signal = code - 128;  // by the first process
  if (signal != 0) return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  if (code == kSandboxFailed) return "its isolation failed";
  if (code == kNoSuchProgram) return "the program could not be started";
  return fmt::format("exited with status {} in the middle of a call", code);
}

}  // namespace

struct WorkerExecutor::Process {
  pid_t pid = -1;
  Descriptor request = {}, reply = {};     // our ends
  std::array<Descriptor, 2> printed = {};  // stdout, stderr
  bool answered_once = false;
  std::set<pid_t> first_family = {};  // the processes that there were then
  Standstill stillness = {};
  std::string last_nonce = {};        // of the request before
  std::set<std::string> nonces = {};  // of all requests
  std::string inbox = {};             // bytes of a frame that has not arrived in full
  Captured captured = {};

  // The process, and whatever it started.
  void kill_all() {
    if (pid <= 0) return;
    for (const pid_t each : family_of(pid)) kill(each, SIGKILL);
    kill(-pid, SIGKILL);
  }

  // Takes from `outbox` what it can; false if nobody will read it.
  bool send(std::string& outbox) const {
    const ssize_t n = write(request.get(), outbox.data(), outbox.size());
    if (n > 0) outbox.erase(0, static_cast<std::size_t>(n));
    return n >= 0 || errno == EAGAIN || errno == EINTR;
  }

  // Whether some of them were not there when the worker first answered.
  bool left_any(const std::vector<pid_t>& family) const {
    return std::any_of(family.begin(), family.end(),
                       [&](pid_t each) { return !first_family.contains(each); });
  }

  ~Process() {
    if (pid <= 0) return;
    kill_all();
    int status;
    waitpid(pid, &status, 0);
  }

  bool has_ended() const {
    siginfo_t about{};
    return waitid(P_PID, static_cast<id_t>(pid), &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           about.si_pid == pid;
  }

  // Takes all that a pipe holds: what was printed before a reply belongs to it.
  void drain(Descriptor& from) {
    std::array<char, kCaptureBytes> buffer{};
    const ssize_t n = read(from.get(), buffer.data(), buffer.size());
    if (n <= 0) {
      from.close();
      return;
    }
    captured.add({buffer.data(), static_cast<std::size_t>(n)});
  }

  // Once the process is dead: what it still left in its pipes.
  void drain_rest() {
    for (Descriptor& from : printed) {
      if (from.get() >= 0) fcntl(from.get(), F_SETFL, O_NONBLOCK);
      while (from.get() >= 0) drain(from);
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

std::vector<pid_t> WorkerExecutor::family() const {
  return process_ ? family_of(process_->pid) : std::vector<pid_t>();
}

bool WorkerExecutor::is_stillness_told() const {
  return !process_ || process_->stillness.is_told(process_->pid);
}

void WorkerExecutor::stop() { process_.reset(); }

void WorkerExecutor::start() {
  if (!arena_) arena(1);
  static std::counting_semaphore<kStartsAtOnce> starting(kStartsAtOnce);
  const Turn turn(starting);
  Pipe request = make_pipe(), reply = make_pipe(), out = make_pipe(), err = make_pipe();
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
  const Surroundings& around = options_.around;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Sandbox sandbox = {.command = options_.command,
                     .isolation = options_.isolation,
                     .user = options_.user,
                     .read_only = around.read_only,
                     .hidden_files = around.hidden_files,
                     .shared_pages = fmt::format("{}", options_.limits.memory_bytes / page),
                     .network = around.network,
                     .keeps_nothing = around.keeps_nothing};
  sandbox.command.insert(sandbox.command.begin(), around.sanitizer.begin(), around.sanitizer.end());
  if (!lies_in_shared_memory(sandbox.command)) {
    sandbox.shared_memory = fmt::format("mode=1777,size={}", options_.limits.memory_bytes);
  }
  const WorkerDescriptors descriptors = {null.get(),         out.write.get(),   err.write.get(),
                                         request.read.get(), reply.write.get(), arena_->input_fd(),
                                         arena_->output_fd()};
  std::vector<std::string> variables = around.variables;
  if (around.homes) {
    std::vector<std::string> whose = options_.command;
    if (options_.number > 0) whose.push_back(fmt::format("({})", options_.number));
    sandbox.home = around.homes->of(whose, options_.isolation, options_.user).string();
    variables = at_home(std::move(variables), sandbox.home);
  }
  const std::array<std::pair<const char*, int>, 4> ends = {
      {{"REQUEST", kRequestFd}, {"REPLY", kReplyFd}, {"INPUT", kInputFd}, {"OUTPUT", kOutputFd}}};
  for (const auto& [name, fd] : ends) variables.push_back(fmt::format("ATTEST_{}_FD={}", name, fd));
  const pid_t pid = start_worker(sandbox, descriptors, variables);
  process_ = std::make_unique<Process>();
  process_->pid = pid;
  process_->request = std::move(request.write);
  process_->reply = std::move(reply.read);
  process_->printed = {std::move(out.read), std::move(err.read)};
  // A worker that reads nothing must not stop us.
  fcntl(process_->request.get(), F_SETFL, O_NONBLOCK);
}

Reply WorkerExecutor::ended(Reply::Kind kind, const std::string& message) {
  process_->kill_all();
  process_->drain_rest();
  Reply reply{.kind = kind, .message = message, .captured = process_->captured.text()};
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
      if (WIFEXITED(status) && WEXITSTATUS(status) == kSandboxFailed && !process_->answered_once) {
        // It was not the testee that failed.
        throw std::runtime_error(
            fmt::format("its isolation failed: {}", ended(Reply::Kind::crashed, "").captured));
      }
      return ended(Reply::Kind::crashed, how_it_ended(status, options_.isolation));
    }
    usleep(10000);
  }
  return ended(Reply::Kind::protocol_error, "closed its end of the protocol");
}

Reply WorkerExecutor::execute(nlohmann::json request) {
  const InStage stage(RunStage::call);
  if (!process_) start();
  Process& process = *process_;
  process.captured.clear();
  const std::string nonce = fresh_nonce();
  request["nonce"] = nonce;
  const double seconds = process.answered_once ? limit_for(request, options_.limits.call_seconds)
                                               : options_.limits.start_seconds;
  CallTime time(seconds);
  pollfd unasked = {process.reply.get(), POLLIN, 0};
  if (poll(&unasked, 1, 0) > 0 && unasked.revents & POLLIN) {
    return ended(Reply::Kind::protocol_error, "sent a reply that nobody asked for");
  }
  const bool was_joined = process.stillness.is_joined(process.pid);
  std::string outbox = frame(json_text(request));
  // How often memory is looked at.
  const int watch_ms = measured_ ? 1 : 50;
  auto next_look = Clock::now() + std::chrono::milliseconds(watch_ms);
  if (options_.still_between_requests) taken_.emplace(process.stillness.family());
  // From here on all is the call's time, whoever goes on.
  const auto asked = Clock::now();
  if (was_joined || !process.stillness.has_lasted(process.pid)) {
    return ended(Reply::Kind::protocol_error,
                 "went on by itself between two requests, when it was stopped");
  }
  bool is_sent = process.send(outbox);  // before it goes on: it is woken once
  if (options_.still_between_requests) process.stillness.end(process.pid);
  while (is_sent) {
    // What is not to be watched has a descriptor of -1, which poll passes over.
    std::array<pollfd, 4> watched = {
        pollfd{process.reply.get(), POLLIN, 0}, pollfd{process.printed[0].get(), POLLIN, 0},
        pollfd{process.printed[1].get(), POLLIN, 0},
        pollfd{outbox.empty() ? -1 : process.request.get(), POLLOUT, 0}};
    const int ready = poll(watched.data(), watched.size(), watch_ms);
    if (ready < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
    for (std::size_t i = 0; ready > 0 && i < 2; ++i) {
      if (watched[i + 1].revents) process.drain(process.printed[i]);
    }
    if (ready > 0 && watched[3].revents) is_sent = process.send(outbox);
    if (ready > 0 && watched[0].revents) {
      if (auto reply = receive(nonce)) {
        if (options_.still_between_requests && reply->kind == Reply::Kind::answered) {
          reply->wall_seconds = std::chrono::duration<double>(replied_ - asked).count();
          if (process_) {
            const std::vector<pid_t> family = process_->stillness.family();
            reply->cpu_seconds = taken_->seconds(family);
            calls_with_children_ += request["op"] == "go" && taken_->is_of_children(family);
          }
        }
        return std::move(*reply);
      }
    }
    const auto now = Clock::now();
    if (options_.interrupted && options_.interrupted()) {
      return ended(Reply::Kind::interrupted, "the run was interrupted");
    }
    // Whoever it started may still hold the stream open.
    if (ready == 0 && process.has_ended()) return broke_off();
    if (now > next_look) {
      next_look = now + std::chrono::milliseconds(watch_ms);
      if (auto reply = look(time, now)) return std::move(*reply);
    }
  }
  return broke_off();
}

std::optional<Reply> WorkerExecutor::receive(const std::string& nonce) {
  std::string& inbox = process_->inbox;
  std::array<char, 65536> buffer{};
  const ssize_t n = read(process_->reply.get(), buffer.data(), buffer.size());
  if (n <= 0) return broke_off();
  inbox.append(buffer.data(), static_cast<std::size_t>(n));
  if (inbox.size() < 4) return std::nullopt;
  std::size_t size = 0;
  for (std::size_t i = 4; i-- > 0;) size = size << 8 | static_cast<unsigned char>(inbox[i]);
  if (size > kMaxFrameBytes) return ended(Reply::Kind::protocol_error, "sent a malformed frame");
  if (inbox.size() > 4 + size) {
    return ended(Reply::Kind::protocol_error, "sent more than one reply");
  }
  if (inbox.size() < 4 + size) return std::nullopt;
  replied_ = Clock::now();
  if (options_.still_between_requests) {
    Standstill& stillness = process_->stillness;
    replied_ = stillness.begin(process_->pid);  // what went on until then is the call's
    has_left_processes_ |= process_->answered_once && process_->left_any(stillness.family());
  }
  const std::string text = inbox.substr(4);
  inbox.clear();
  return understand(text, nonce);
}

Reply WorkerExecutor::understand(const std::string& text, const std::string& nonce) {
  using Kind = Reply::Kind;
  Process& process = *process_;
  if (too_deep_at(text, kMaxFrameLevels)) {
    return ended(Kind::protocol_error, "sent a reply that nests too deep");
  }
  nlohmann::json body = parse_json_if_any(text);
  if (!body.is_object() || !body.contains("status") || !body["status"].is_string()) {
    return ended(Kind::protocol_error, "sent a reply that is no JSON object with a status");
  }
  if (body.contains("kernels")) {
    if (const auto key = doubled_key(text)) {
      return ended(Kind::protocol_error,
                   fmt::format("sent a description that has the key \"{}\" twice", *key));
    }
  }
  const nlohmann::json echoed = body.value("nonce", nlohmann::json());
  if (echoed != nonce) {
    const bool earlier = echoed.is_string() && process.nonces.contains(echoed);
    return ended(Kind::protocol_error,
                 echoed == process.last_nonce ? "sent a second reply to the request before"
                 : earlier ? "sent a second reply to an earlier request, perhaps of another case"
                           : "sent a reply to another request");
  }
  if (!process.answered_once) {
    const std::vector<pid_t> family = family_of(process.pid);
    process.first_family = {family.begin(), family.end()};
  }
  process.answered_once = true;
  process.last_nonce = nonce;
  process.nonces.insert(nonce);
  // The worker is of no use to the next request: its guards are open, or its device is lost.
  if (body["status"] == "fault" || body.value("ends", nlohmann::json()) == true) {
    Reply reply = ended(Kind::answered, "");
    reply.body = std::move(body);
    return reply;
  }
  return {.body = std::move(body), .captured = process.captured.text()};
}

std::optional<Reply> WorkerExecutor::look(CallTime& time, Clock::time_point now) {
  using Kind = Reply::Kind;
  const std::vector<pid_t> family = family_of(process_->pid);
  if (family.size() > options_.limits.processes) {
    return ended(Kind::crashed, fmt::format("stopped: it started more than {} processes",
                                            options_.limits.processes));
  }
  if (measured_) measured_->look(family);
  if (taken_) taken_->look(family);
  if (hold_more_than(options_.limits.memory_bytes, family, files_of(*arena_))) {
    return ended(Kind::out_of_memory,
                 fmt::format("used more than {} MiB", options_.limits.memory_bytes >> 20));
  }
  // Last, and as of the beginning of this look, which itself may take long: whoever took too much
  // and waits to be noticed is no less guilty by then.
  time.look(family, now);
  const auto passed = time.passed();
  if (!passed) return std::nullopt;
  Reply reply = ended(Kind::timed_out, *passed);
  reply.time = time.spent();
  return reply;
}

Reply WorkerExecutor::measure(nlohmann::json request) {
  if (!process_) start();
  std::size_t tensors = 0;
  for (const auto& tensor : request.value("tensors", nlohmann::json::object())) {
    tensors += tensor.at("region_bytes").get<std::size_t>();
  }
  request["measured"] = true;
  measured_.emplace(family_of(process_->pid), files_of(*arena_));
  Reply reply = execute(std::move(request));
  Measurement measured = *std::exchange(measured_, std::nullopt);
  if (!process_ || reply.kind != Reply::Kind::answered) return reply;
  measured.end(family_of(process_->pid));
  reply.wall_seconds = measured.wall_seconds();
  reply.thread_seconds = measured.thread_seconds();
  reply.running_threads = measured.running_threads();
  const std::optional<Measurement::Memory> memory = measured.memory();
  if (!memory) return reply;
  const auto [risen, touched] = *memory;
  const auto of_tensors = static_cast<double>(tensors);
  reply.peak_bytes = {std::max(0.0, risen.least - of_tensors),
                      std::max(0.0, risen.most - of_tensors)};
  if (options_.counts_old_memory) {
    reply.peak_bytes->least = std::max(reply.peak_bytes->least, touched.least);
    reply.peak_bytes->most = std::max(reply.peak_bytes->most, touched.most);
  } else {
    reply.touched_bytes = touched;
  }
  return reply;
}

Reply WorkerExecutor::settle() {
  if (!process_) return Executor::settle();
  Reply reply = execute({{"op", "describe"}, {"brief", true}});
  // Memory for tensors that lie far apart is not kept, nor much that is filled: with many testees
  // and jobs there are more workers than addresses and memory for it.
  constexpr std::size_t kMostAddresses = std::size_t(1) << 32, kMostKept = std::size_t(1) << 28;
  if (arena_->capacity() > kMostAddresses || arena_->used() > kMostKept) {
    stop();
    arena_.reset();
  } else if (process_ && leaves_processes()) {
    stop();
  }
  // What it says is of no interest, only that it is the reply to this.
  return reply.kind == Reply::Kind::answered ? Executor::settle() : reply;
}

// What a case left behind might write into the tensors of the next.
bool WorkerExecutor::leaves_processes() const {
  return process_->left_any(family_of(process_->pid));
}

void harden_this_process() { prctl(PR_SET_DUMPABLE, 0); }

}  // namespace attest
