#include "spec/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "spec/json_reader.h"

namespace attest {
namespace {

[[noreturn]] void complain(const std::filesystem::path& file, const std::string& what) {
  throw InputError("", fmt::format("{}: {}", file.string(), what));
}

[[noreturn]] void complain_of_errno(const std::filesystem::path& file) {
  complain(file, errno == ENOENT || errno == ENOTDIR
                     ? "there is no such file"
                     : fmt::format("cannot be read: {}", std::strerror(errno)));
}

// What it is, unless it is a file.
const char* other_than_file(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  if (S_ISDIR(mode)) return "is a folder, not a file";
  if (S_ISFIFO(mode)) return "is a pipe, not a file";
  if (S_ISSOCK(mode)) return "is a socket, not a file";
  return "is a device, not a file";
}

// An open file.
class Opened {
 public:
  explicit Opened(const std::filesystem::path& file) {
    struct stat about {};
    // Before it is opened: to open a device may already do something.
    if (stat(file.c_str(), &about) != 0) complain_of_errno(file);
    if (const char* what = other_than_file(about.st_mode)) complain(file, what);
    // Lest it became a pipe meanwhile, no waiting for a writer.
    fd_ = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ < 0) complain_of_errno(file);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { close(fd_); }

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace

std::string read_file(const std::filesystem::path& file, std::size_t most) {
  const Opened opened(file);
  std::string content;
  std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t count = read(opened.fd(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) complain_of_errno(file);
    if (count == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(count));
    if (content.size() > most) complain(file, fmt::format("holds more than {} bytes", most));
  }
}

void check_is_file(const std::filesystem::path& file) { const Opened opened(file); }

}  // namespace attest
