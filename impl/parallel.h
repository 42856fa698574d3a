// Threads: independent units of work, dealt to workers in contiguous shares. What a unit computes
// does not depend on who computes it, so results are the same for any number of threads (DET-3).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "impl/schedule.h"

namespace attest::impl {

// A pool of workers, of which the calling thread is number 0. The others wait between rounds, and
// end with the pool: a plug-in keeps no threads after a call.
class Workers {
 public:
  explicit Workers(int count) : failures_(static_cast<std::size_t>(count)) {
    try {
      for (int worker = 1; worker < count; ++worker) {
        threads_.emplace_back([this, worker] { serve(worker); });
      }
    } catch (...) {  // no more threads to be had: those that run must end first
      dismiss();
      throw;
    }
  }
  ~Workers() { dismiss(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls work(worker, begin, end) for each worker, with its share of the units.
  template <class Work>
  void share_out(std::int64_t units, const Work& work) {
    const int count = static_cast<int>(failures_.size());
    run([&](int worker) {
      const Range share = contiguous_share(units, count, worker);
      work(worker, share.begin, share.end);
    });
  }

 private:
  void run(const std::function<void(int)>& round) {
    {
      const std::lock_guard lock(mutex_);
      round_ = &round;
      ++rounds_;
      busy_ = threads_.size();
    }
    changed_.notify_all();
    attend(round, 0);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return busy_ == 0; });
    }
    std::exception_ptr first;
    for (std::exception_ptr& failure : failures_) {
      const std::exception_ptr failed = std::exchange(failure, nullptr);
      if (!first) first = failed;
    }
    if (first) std::rethrow_exception(first);
  }

  void attend(const std::function<void(int)>& round, int worker) {
    try {
      round(worker);
    } catch (...) {
      failures_[static_cast<std::size_t>(worker)] = std::current_exception();
    }
  }

  void serve(int worker) {
    for (std::uint64_t seen = 0;;) {
      const std::function<void(int)>* round;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return rounds_ != seen; });
        seen = rounds_;
        round = round_;
      }
      if (!round) return;
      attend(*round, worker);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  void dismiss() {
    {
      const std::lock_guard lock(mutex_);
      round_ = nullptr;
      ++rounds_;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* round_ = nullptr;  // null: all is done
  std::uint64_t rounds_ = 0;
  std::size_t busy_ = 0;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
};

// One round.
template <class Work>
void share_out(std::int64_t units, int workers, const Work& work) {
  if (workers == 1) {
    work(0, std::int64_t{0}, units);
  } else {
    Workers(workers).share_out(units, work);
  }
}

}  // namespace attest::impl
