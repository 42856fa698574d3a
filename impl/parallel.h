// Threads: independent units of work, dealt to workers in contiguous shares. What a unit computes
// does not depend on who computes it, so results are the same for any number of threads (DET-3).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
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

// Places to which workers add in turn: each waits until those before have added. Whoever comes
// before must run at the same time, or have run.
class Turns {
 public:
  explicit Turns(std::int64_t places) : done_(static_cast<std::size_t>(places)) {}

  // That of a number, counted from 0.
  class Turn {
   public:
    Turn(Turns& turns, std::int64_t number) : turns_(turns), number_(static_cast<int>(number)) {}

    // Returns when all before have passed the place.
    void wait(std::int64_t place) const {
      std::atomic<int>& done = turns_.done_[static_cast<std::size_t>(place)];
      for (int seen; (seen = done.load(std::memory_order_acquire)) < number_;) done.wait(seen);
    }
    // To be called at every place, by whoever adds nothing there too.
    void pass(std::int64_t place) const {
      wait(place);
      std::atomic<int>& done = turns_.done_[static_cast<std::size_t>(place)];
      done.fetch_add(1, std::memory_order_release);
      done.notify_all();
    }

   private:
    Turns& turns_;
    int number_;
  };
  Turn of(std::int64_t number) { return {*this, number}; }

  // Runs a worker's work; if it throws, nobody waits for it any more, and what they make is lost.
  template <class Work>
  void or_abandon(const Work& work) {
    try {
      work();
    } catch (...) {
      for (std::atomic<int>& done : done_) {
        done.store(std::numeric_limits<int>::max() / 2);
        done.notify_all();
      }
      throw;
    }
  }

 private:
  std::vector<std::atomic<int>> done_;  // how many have passed a place
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
