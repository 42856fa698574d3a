// A worker program that breaks the protocol in the way its argument says; "honest" keeps to it.
// Tests start it as exec:rogue WAY [FILE].
#include <arpa/inet.h>
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "harness/process/wire.h"
#include "spec/json_text.h"

namespace {

using nlohmann::json;

constexpr std::size_t kHoard = std::size_t(64) << 20;

void send(const json& reply) { attest::write_frame(attest::kReplyFd, attest::json_text(reply)); }

std::string text_of(const char* file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  std::vector<std::string> nonces;
  while (const auto frame = attest::read_frame(attest::kRequestFd)) {
    const json request = attest::parse_json(*frame);
    const json honest = {{"nonce", request.at("nonce")}, {"status", "ok"}};
    nonces.push_back(request.at("nonce"));
    if (way == "honest") {
      send(honest);
    } else if (way == "repeats") {
      send({{"nonce", nonces.back()}, {"status", "ok"}, {"asked", request}});
    } else if (way == "ends") {
      send({{"nonce", nonces.back()},
            {"status", "error"},
            {"message", "the device is lost"},
            {"ends", true},
            {"pid", getpid()}});
    } else if (way == "recalls") {
      send({{"nonce", nonces.size() < 3 ? nonces.back() : nonces.front()}, {"status", "ok"}});
    } else if (way == "reads") {
      const bool opened = bool(std::ifstream(argv[2]));
      send({{"nonce", nonces.back()},
            {"status", "ok"},
            {"opened", opened},
            {"text", text_of(argv[2])}});
    } else if (way == "rewrites") {
      std::ofstream(argv[2], std::ios::trunc) << "PASS";
      std::ofstream(argv[2], std::ios::app) << "PASS";
      unlink(argv[2]);
      send(honest);
    } else if (way == "moves") {
      const std::filesystem::path folder = argv[2];
      std::error_code none;
      std::filesystem::create_directory(folder / "index.html", none);
      std::filesystem::rename(folder, folder.string() + ".gone", none);
      std::filesystem::create_directory(folder, none);
      send(honest);
    } else if (way == "shouts") {
      const json description = {{"name", "shouts"},  {"version", "1"},
                                {"vendor", "test"},  {"profiles", json::array()},
                                {"dtypes", {"f32"}}, {"features", {"lse"}}};
      json reply = honest;
      reply["kernels"] = {{{"name", "shouts"}, {"description", description}}};
      if (request.at("op") == "forward") {
        if (write(STDERR_FILENO, "\x1b[2Jgone", 8) < 0) return 1;
        reply = {{"nonce", nonces.back()}, {"status", "error"}, {"message", "\x1b[31mred"}};
      }
      send(reply);
    } else if (way == "waits") {
      // Before its first call, until somebody has written that word into a file.
      const json description = {{"name", "waits"},   {"version", "1"},
                                {"vendor", "test"},  {"profiles", json::array()},
                                {"dtypes", {"f32"}}, {"features", {"lse"}}};
      json reply = honest;
      reply["kernels"] = {{{"name", "waits"}, {"description", description}}};
      while (request.at("op") == "forward" && text_of(argv[2]).rfind(argv[3], 0) != 0) usleep(1000);
      send(reply);
    } else if (way == "computes") {
      while (static_cast<double>(std::clock()) < std::atof(argv[2]) * CLOCKS_PER_SEC) continue;
      send(honest);
    } else if (way == "threads") {
      // So many rounds of so many threads at a time, each of which computes for 50 ms.
      for (int round = 0; round < std::atoi(argv[2]); ++round) {
        std::vector<std::thread> threads;
        for (int i = 0; i < std::atoi(argv[3]); ++i) {
          threads.emplace_back([] {
            timespec time{};
            while (time.tv_nsec < 50'000'000) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
          });
        }
        for (std::thread& thread : threads) thread.join();
      }
      send(honest);
    } else if (way == "leaves_the_stream") {
      if (fork() == 0) {
        for (;;) pause();
      }
      return 3;
    } else if (way == "in_a_session") {
      const pid_t child = fork();
      if (child == 0) {
        setsid();
        for (;;) pause();
      }
      while (getsid(child) != child) continue;
      json reply = honest;
      reply["child"] = child;
      send(reply);
    } else if (way == "wakes_itself") {
      // The system goes on with it, whoever stopped it.
      sigevent event = {};
      event.sigev_notify = SIGEV_SIGNAL;
      event.sigev_signo = SIGCONT;
      timer_t timer = {};
      signal(SIGCONT, [](int) {});
      timer_create(CLOCK_MONOTONIC, &event, &timer);
      const itimerspec soon = {{0, 1'000'000}, {0, 1'000'000}};
      timer_settime(timer, 0, &soon, nullptr);
      send(honest);
    } else if (way == "wrong_nonce") {
      send({{"nonce", "0123"}, {"status", "ok"}});
    } else if (way == "no_nonce") {
      send({{"status", "ok"}});
    } else if (way == "no_json") {
      attest::write_frame(attest::kReplyFd, "hello");
    } else if (way == "no_object") {
      attest::write_frame(attest::kReplyFd, "[1, 2]");
    } else if (way == "key_twice") {
      const std::string kernels =
          R"(,"kernels":[{"name":"a","description":{"batch":1,"batch":2}}]})";
      std::string text = attest::json_text(honest);
      text.pop_back();
      attest::write_frame(attest::kReplyFd, text + kernels);
    } else if (way == "deep") {
      constexpr std::size_t kDepth = 5'000'000;
      attest::write_frame(attest::kReplyFd,
                          "{\"status\":\"ok\",\"nonce\":" + std::string(kDepth, '[') +
                              std::string(kDepth, ']') + "}");
    } else if (way == "as_deep_as_allowed" || way == "one_deeper") {
      json nest = json::array();
      for (int level = way == "one_deeper" ? 1 : 2; level < attest::kMaxFrameLevels; ++level) {
        nest = json::array({nest});
      }
      json reply = honest;
      reply["unknown"] = nest;
      send(reply);
    } else if (way == "doubled") {
      const std::string text = attest::json_text(honest);
      std::string frames;
      for (int i = 0; i < 2; ++i) {
        frames += static_cast<char>(text.size());
        frames += std::string(3, '\0') + text;
      }
      if (write(attest::kReplyFd, frames.data(), frames.size()) < 0) return 1;
    } else if (way == "doubled_late") {
      send(honest);
      usleep(50'000);
      send(honest);
    } else if (way == "private_memory") {
      const std::vector<char> hoard(kHoard, 1);
      sleep(2);
      send(honest);
    } else if (way == "shared_memory" || way == "unmapped_memory") {
      const int fd = memfd_create("hoard", 0);
      if (ftruncate(fd, kHoard) != 0) return 1;
      if (way == "shared_memory") {
        void* hoard = mmap(nullptr, kHoard, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        std::memset(hoard, 1, kHoard);
      } else if (fallocate(fd, 0, 0, kHoard) != 0) {
        return 1;
      }
      sleep(2);
      send(honest);
    } else if (way == "shared_files") {
      // As much as there is room for, and none of them open any more.
      const std::vector<char> bytes(std::size_t(8) << 20, 1);
      for (int n = 0; n < 8; ++n) {
        const std::string file = "/dev/shm/attest_rogue" + std::to_string(n);
        std::ofstream(file).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      }
      json reply = honest;
      reply["bytes"] = std::filesystem::space("/dev/shm").capacity;
      send(reply);
    } else if (way == "arena") {
      for (const int fd : {attest::kInputFd, attest::kOutputFd}) {
        void* memory = mmap(nullptr, kHoard, PROT_READ, MAP_SHARED, fd, 0);
        int sum = 0;
        for (std::size_t at = 0; at < kHoard; at += 4096) sum += static_cast<char*>(memory)[at];
        if (sum != 0) return 1;
      }
      usleep(300'000);
      send(honest);
    } else if (way == "absurd_length") {
      if (write(attest::kReplyFd, "\xff\xff\xff\xff", 4) < 0) return 1;
    } else if (way == "half") {
      if (write(attest::kReplyFd, "\x40\x00\x00\x00{", 5) < 0) return 1;
      return 0;
    } else if (way == "exits") {
      return 3;
    } else if (way == "closes") {
      close(attest::kReplyFd);
      pause();
    } else if (way == "silent") {
      pause();
    } else if (way == "prints") {
      const std::string line(1000, 'p');
      for (int i = 0; i <= 1001; ++i) {
        const std::string& next = i == 0 ? "first words" : i == 1001 ? "last words" : line;
        if (write(STDERR_FILENO, next.data(), next.size()) < 0) return 1;
      }
      send(honest);
    } else if (way == "identity") {
      send({{"nonce", request.at("nonce")},
            {"status", "ok"},
            {"uid", getuid()},
            {"groups", getgroups(0, nullptr)}});
    } else if (way == "leaves_child") {
      if (fork() == 0) {
        for (;;) pause();
      }
      json reply = honest;
      reply["requests"] = nonces.size();
      send(reply);
    } else if (way == "variables" || way == "files") {
      // What is set, or whether files are there, by name.
      json reply = honest;
      for (int i = 2; i < argc; ++i) {
        const char* value = std::getenv(argv[i]);
        reply[argv[i]] = way == "files" ? json(std::filesystem::exists(argv[i]))
                         : value        ? json(value)
                                        : json(nullptr);
      }
      send(reply);
    } else if (way == "litters") {
      // Leaves a file at home, and says which were there.
      json reply = honest;
      reply["found"] = json::array();
      for (const auto& entry : std::filesystem::directory_iterator(std::getenv("HOME"))) {
        reply["found"].push_back(entry.path().filename());
      }
      for (const char* name : {"HOME", "TMPDIR"}) {
        std::ofstream file(std::filesystem::path(std::getenv(name)) / "litter");
        reply[name] = bool(file << "litter" << std::flush);
      }
      std::filesystem::create_directories(std::filesystem::path(std::getenv("TRITON_CACHE_DIR")));
      send(reply);
    } else if (way == "semaphore") {
      sem_t* const semaphore = sem_open("/attest_rogue", O_CREAT, 0600, 1);
      json reply = honest;
      reply["made"] = semaphore != SEM_FAILED;
      send(reply);
    } else if (way == "connects") {
      // To a port of this machine, that argument.
      const int end = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(argv[2])));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      json reply = honest;
      reply["connected"] =
          connect(end, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      send(reply);
    } else if (way == "crowds") {
      json reply = honest;
      int born = 0;
      for (int i = 0; i < std::atoi(argv[2]); ++i) {
        const pid_t child = fork();
        if (child == 0) {
          for (;;) pause();
        }
        born += child > 0;
      }
      reply["born"] = born;
      send(reply);
    } else if (way == "forks") {
      for (int i = 0; i < 200; ++i) {
        if (fork() == 0) {
          for (;;) pause();
        }
      }
      for (;;) pause();
    } else if (way == "descriptors") {
      json open = json::array();
      for (int fd = 0; fd < 1024; ++fd) {
        if (lseek(fd, 0, SEEK_CUR) != -1 || errno != EBADF) open.push_back(fd);
      }
      send({{"nonce", request.at("nonce")}, {"status", "ok"}, {"open", open}});
    } else {
      return 2;
    }
  }
  return 0;
}
