// Memory of a fixed size that processes share.
#pragma once

#include <cstddef>

#include "harness/process/descriptor.h"

namespace attest {

class SharedMemory {
 public:
  // Who may write to it: whoever maps it, or nobody but through base().
  enum class Access { written_by_all, written_here };

  // `bytes` of zeros, of which nothing is used until it is touched; a multiple of the page. Throws
  // std::system_error if the system refuses.
  SharedMemory(const char* name, std::size_t bytes, Access access);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return fd_.get(); }
  std::byte* base() const { return base_; }
  std::size_t used() const;  // bytes that were touched

 private:
  Descriptor fd_;
  std::size_t bytes_;
  std::byte* base_;
};

}  // namespace attest
