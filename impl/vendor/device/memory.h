// On-chip memory of a core: a size that is enforced, and what lies in it, by name.
//
//   Memory buffer("UB", 192 * 1024);
//   const Region<float> scores = buffer.take<float>("scores", 128 * 128);   // till it goes
//
// A region that no longer fits is an error of the device, as is an element beyond a region's end.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "impl/vendor/device/error.h"

namespace attest::vendor::device {

class Memory {
 public:
  Memory(std::string name, std::size_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Elements of T, all zero, until the region is destroyed.
  template <class T>
  class Region;
  template <class T>
  Region<T> take(const std::string& what, std::size_t elements);

  const std::string& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t used() const { return used_; }
  std::size_t most_used() const { return most_used_; }

 private:
  void take_bytes(const std::string& what, std::size_t bytes) {
    if (bytes > bytes_ - used_) {
      throw DeviceError(name_, what + " of " + std::to_string(bytes) +
                                   " bytes does not fit: " + std::to_string(used_) + " of " +
                                   std::to_string(bytes_) + " bytes are taken");
    }
    used_ += bytes;
    most_used_ = used_ > most_used_ ? used_ : most_used_;
  }

  std::string name_;
  std::size_t bytes_, used_ = 0, most_used_ = 0;
};

template <class T>
class Memory::Region {
 public:
  Region(Memory& memory, std::string what, std::size_t elements)
      : memory_(&memory), what_(std::move(what)) {
    memory.take_bytes(what_, elements * sizeof(T));
    data_.resize(elements);
  }
  Region(Region&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        what_(std::move(other.what_)),
        data_(std::move(other.data_)) {}
  Region& operator=(Region&&) = delete;
  ~Region() {
    if (memory_) memory_->used_ -= data_.size() * sizeof(T);
  }

  T& operator[](std::size_t place) {
    check(place);
    return data_[place];
  }
  const T& operator[](std::size_t place) const {
    check(place);
    return data_[place];
  }
  T* data() { return data_.data(); }
  const T* data() const { return data_.data(); }
  std::size_t size() const { return data_.size(); }

 private:
  void check(std::size_t place) const {
    if (place >= data_.size()) {
      throw DeviceError(memory_->name_, what_ + " has " + std::to_string(data_.size()) +
                                            " elements, and none " + std::to_string(place));
    }
  }

  Memory* memory_;
  std::string what_;
  std::vector<T> data_;
};

template <class T>
Memory::Region<T> Memory::take(const std::string& what, std::size_t elements) {
  return Region<T>(*this, what, elements);
}

}  // namespace attest::vendor::device
