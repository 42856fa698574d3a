// A descriptor that is closed at the end of its scope.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace attest {

class Descriptor {
 public:
  Descriptor() = default;
  // What a system call returned that opens one. Throws std::system_error, which names `what`, if
  // that is none.
  Descriptor(int fd, const char* what) : fd_(fd) {
    if (fd < 0) throw std::system_error(errno, std::generic_category(), what);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }  // -1: none, or closed
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace attest
