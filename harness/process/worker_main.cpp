// attest-worker: runs one plug-in in a process of its own and answers requests (wire.h).
//
//   attest-worker PLUGIN.so
//
// Each tensor is mapped by itself, between guard pages, and inputs for reading only. A touch of a
// guard page, or a write to an input, is reported with the tensor's name, and ends the process.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/plugin_host.h"
#include "harness/process/wire.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace {

using nlohmann::json;

constexpr std::size_t kGuard = std::size_t(1) << 20;
constexpr std::size_t kMostAtOnce = std::size_t(1) << 30;

// A tensor in this process: guard, pages, guard. Read by the signal handler.
struct Mapping {
  std::array<char, 32> name;
  bool output;
  std::byte* reserved;  // the first byte of the first guard
  std::size_t reserved_bytes;
  std::byte* data;
  std::size_t data_bytes;
};

std::vector<Mapping> g_mappings;  // as many as a mask has tables, and a few more
std::array<char, 128> g_nonce{};

// The tensors of one request, in a stretch of addresses that is reserved for all of them at once.
class Mappings {
 public:
  explicit Mappings(const json& request) {
    const auto tensors = request.find("tensors");
    if (tensors == request.end()) return;
    for (const json& tensor : *tensors) bytes_ += reserved_bytes(tensor);
    if (bytes_ == 0) return;
    void* reserved =
        mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) throw attest::InputError("", "cannot reserve address space");
    base_ = static_cast<std::byte*>(reserved);
  }
  ~Mappings() {
    if (base_) munmap(base_, bytes_);
    g_mappings.clear();
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  void* add(const std::string& name, const json& tensor) {
    Mapping mapping{};
    if (name.size() >= mapping.name.size()) {
      throw attest::InputError("", "too long a name of a tensor: " + name);
    }
    const bool output = tensor.at("memory") == "output";
    const auto offset = tensor.at("region_offset").get<std::size_t>();
    std::memcpy(mapping.name.data(), name.c_str(), name.size());
    mapping.output = output;
    mapping.reserved_bytes = reserved_bytes(tensor);
    if (mapping.reserved_bytes > bytes_ - used_) {
      throw attest::InputError("", "a tensor is asked for twice: " + name);
    }
    mapping.reserved = base_ + used_;
    used_ += mapping.reserved_bytes;
    // All pages at once, but of what is mostly holes: to map a hole is to fill it.
    const std::size_t bytes = mapping.reserved_bytes - 2 * kGuard;
    const int populate = bytes <= kMostAtOnce ? MAP_POPULATE : 0;
    void* pages =
        mmap(mapping.reserved + kGuard, bytes, output ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED | MAP_FIXED | populate, output ? attest::kOutputFd : attest::kInputFd,
             static_cast<off_t>(offset));
    if (pages == MAP_FAILED) throw attest::InputError("", "cannot map the shared memory");
    mapping.data = mapping.reserved + kGuard + (tensor.at("offset").get<std::size_t>() - offset);
    mapping.data_bytes = tensor.at("bytes").get<std::size_t>();
    g_mappings.push_back(mapping);
    return mapping.data;
  }

 private:
  static std::size_t reserved_bytes(const json& tensor) {
    return tensor.at("region_bytes").get<std::size_t>() + 2 * kGuard;
  }

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0, used_ = 0;
};

// Text for a signal handler: no allocation, no locale.
struct Text {
  std::array<char, 512> bytes{};
  std::size_t size = 0;
  void add(const char* text) {
    for (; *text && size < bytes.size(); ++text) bytes[size++] = *text;
  }
  void add(std::size_t number) {
    std::array<char, 24> digits{};
    std::size_t at = digits.size() - 1;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    add(&digits[at]);
  }
};

const char* access_of([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  const auto error = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
  return error & 2 ? "wrote" : "read";
#else
  return "touched";
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto* address = static_cast<std::byte*>(info->si_addr);
  for (const Mapping& m : g_mappings) {
    if (address < m.reserved || address >= m.reserved + m.reserved_bytes) continue;
    const char* access = access_of(context);
    Text text;
    text.add("{\"nonce\":\"");
    text.add(g_nonce.data());
    text.add("\",\"status\":\"fault\",\"message\":\"");
    text.add(access);
    text.add(" ");
    const bool inside =
        address >= m.reserved + kGuard && address < m.reserved + m.reserved_bytes - kGuard;
    if (inside) {
      text.add("to the input ");
    } else if (address < m.data) {
      text.add(static_cast<std::size_t>(m.data - address));
      text.add(" bytes before the start of ");
    } else {
      text.add(static_cast<std::size_t>(address - (m.data + m.data_bytes)) + 1);
      text.add(" bytes behind the end of ");
    }
    text.add(m.name.data());
    text.add(inside ? "\",\"reason\":\"input_mutated\"}" : "\",\"reason\":\"guard\"}");
    std::array<unsigned char, 4> head{};
    for (std::size_t b = 0; b < 4; ++b) head[b] = static_cast<unsigned char>(text.size >> (8 * b));
    if (write(attest::kReplyFd, head.data(), head.size()) < 0 ||
        write(attest::kReplyFd, text.bytes.data(), text.size) < 0) {
      _exit(71);
    }
    _exit(70);
  }
  ::signal(signal, SIG_DFL);  // not ours: die of it, as any process would
}

constexpr std::array kFaults = {SIGSEGV, SIGBUS};

void watch_faults() {
  static std::array<char, 65536> stack;
  const stack_t alternate = {.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kFaults) sigaction(signal, &action, nullptr);
}

// Whether the system tells which pages are in memory. Some call every page so.
bool tells_of_pages() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* untouched = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (untouched == MAP_FAILED) return false;
  unsigned char in_memory = 1;
  const bool told = mincore(untouched, page, &in_memory) == 0 && (in_memory & 1) == 0;
  munmap(untouched, page);
  return told;
}

const bool g_tells_of_pages = tells_of_pages();  // before there is a plug-in

// The name of a tensor with a page of its guards in memory, where there is none as long as nobody
// can touch it: a plug-in may open a guard, or see its fault before us and put other pages there,
// and close it again. Empty if there is no such tensor.
std::string opened_guard() {
  if (!g_tells_of_pages) return "";
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_memory(kGuard / page);
  const auto touched = [&](std::byte* guard) {
    if (mincore(guard, kGuard, in_memory.data()) != 0) return errno == ENOMEM;  // taken away
    return std::any_of(in_memory.begin(), in_memory.end(),
                       [](unsigned char flags) { return (flags & 1) != 0; });
  };
  for (const Mapping& m : g_mappings) {
    if (touched(m.reserved) || touched(m.reserved + m.reserved_bytes - kGuard)) {
      return m.name.data();
    }
  }
  return "";
}

void note_nonce(const std::string& nonce) {
  g_nonce.fill('\0');
  std::memcpy(g_nonce.data(), nonce.data(), std::min(nonce.size(), g_nonce.size() - 1));
}

void reply_with(json reply, const std::string& nonce) {
  reply["nonce"] = nonce;
  attest::write_frame(attest::kReplyFd, attest::json_text(reply));
}

// Of the next request, which is waited for.
std::string next_nonce() {
  const auto frame = attest::read_frame(attest::kRequestFd);
  if (!frame) _exit(0);
  return attest::parse_json(*frame).at("nonce").get<std::string>();
}

// Until the harness closes the stream.
void serve(const attest_plugin& plugin) {
  std::optional<Mappings> mappings;  // until nobody asks for them any more
  while (const auto frame = attest::read_frame(attest::kRequestFd)) {
    mappings.reset();
    const json request = attest::parse_json(*frame);
    auto nonce = request.at("nonce").get<std::string>();
    note_nonce(nonce);
    json reply;
    watch_faults();  // whatever an earlier call made of it
    try {
      mappings.emplace(request);
      const auto locate = [&](const std::string& name, const json& tensor) {
        return mappings->add(name, tensor);
      };
      const auto wait_for_word = [&] {
        if (!request.value("armed", false)) return;
        reply_with({{"status", "ok"}, {"armed", true}}, nonce);
        nonce = next_nonce();
        note_nonce(nonce);
      };
      reply = attest::answer(plugin, request, locate, wait_for_word);
      if (request.value("brief", false)) reply["arms"] = true;
    } catch (const std::exception& error) {
      reply = {{"status", "error"}, {"message", fmt::format("an exception: {}", error.what())}};
    }
    if (const std::string name = opened_guard(); !name.empty()) {
      reply = {{"status", "fault"}, {"reason", "guard"}, {"message", "opened a guard of " + name}};
    }
    reply_with(reply, nonce);
    // A timed call lasts until its worker stands still, and to unmap takes as long as a short one.
    if (!request.value("armed", false)) mappings.reset();
    if (reply.value("ends", false)) _exit(0);  // what is to be undone, a lost device may wait for
  }
}

// A plug-in that cannot be loaded is an answer too: to the first request, whatever it asks.
void decline(const std::string& message) {
  const std::string nonce = next_nonce();
  reply_with({{"status", "error"}, {"message", message}}, nonce);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr,
               "usage: attest-worker PLUGIN.so\n"
               "Started by attest, which gives it the file descriptors 3 to 6.\n");
    return 2;
  }
  watch_faults();
  try {
    const attest_plugin* plugin = nullptr;
    try {
      plugin = attest::load_plugin(argv[1]);
    } catch (const attest::InputError& error) {
      decline(error.what());
      return 2;
    }
    serve(*plugin);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attest-worker: {}\n", error.what());
    return 2;
  }
}
