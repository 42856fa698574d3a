// Where jobs work: many at a time, or one alone.
#pragma once

#include <condition_variable>
#include <mutex>

namespace attest {

class Floor {
 public:
  // Calls `work` while others may work, too.
  template <class Work>
  auto among_others(const Work& work) {
    const Stay stay(*this, false);
    return work();
  }

  // Calls `work` once all who are at work are done, and lets nobody else begin before it is.
  template <class Work>
  auto alone(const Work& work) {
    const Stay stay(*this, true);
    return work();
  }

 private:
  class Stay {
   public:
    Stay(Floor& floor, bool alone) : floor_(floor), alone_(alone) {
      std::unique_lock lock(floor_.mutex_);
      if (alone_) {
        ++floor_.wanting_;
        floor_.changed_.wait(lock, [&] { return floor_.working_ == 0; });
      } else {
        floor_.changed_.wait(lock, [&] { return floor_.wanting_ == 0; });
      }
      ++floor_.working_;
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;
    ~Stay() {
      const std::lock_guard lock(floor_.mutex_);
      --floor_.working_;
      if (alone_) --floor_.wanting_;
      floor_.changed_.notify_all();
    }

   private:
    Floor& floor_;
    bool alone_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  int working_ = 0;
  int wanting_ = 0;  // to be alone, or that are
};

}  // namespace attest
