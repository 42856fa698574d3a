// A queue of bounded depth between two units of a core, each of which runs its program on a thread
// of its own: a circular buffer of tiles, as readers, compute and writers have them.
//
//   Stages stages;
//   Queue<Tile> keys(stages, "cb_k", 2);                       // two tiles: double buffering
//   stages.add([&] { keys.reserve(dma); ...; keys.push(dma, n, tile); });          the reader
//   stages.add([&] { const Tile& tile = keys.front(matrix, n); ...; keys.pop(matrix); });
//   stages.run();                                              // throws what a stage threw
//
// In time: a place is free when its last tile was popped, a tile there when it was pushed; so the
// clocks of both units do not depend on which thread the host ran first (unit.h). A tile pushed
// into no reserved place is an overrun; one that is not the tile that the other unit asks for came
// in the wrong order; stages that all wait for each other never end: errors of the device each.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "impl/vendor/device/error.h"
#include "impl/vendor/device/unit.h"

namespace attest::vendor::device {

// Programs that run at the same time, each on a thread, till all have ended or one has failed.
class Stages {
 public:
  void add(std::function<void()> program) { programs_.push_back(std::move(program)); }

  void run() {
    running_ = programs_.size();
    std::vector<std::thread> threads;
    for (const auto& program : programs_) threads.emplace_back([&] { run_one(program); });
    for (std::thread& thread : threads) thread.join();
    programs_.clear();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Of a queue, with the lock held: returns when `ready` does.
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& where, const Ready& ready) {
    while (!ready()) {
      if (error_) throw Ended();
      if (++waiting_ == running_) fail(DeviceError(where, "all stages wait for each other"));
      const std::size_t seen = changes_;
      woken_.wait(lock, [&] { return error_ || changes_ != seen; });
    }
  }
  std::mutex& mutex() { return mutex_; }
  // With the lock held, after what another stage may wait for: who still must, counts itself again.
  void changed() {
    waiting_ = 0;
    ++changes_;
    woken_.notify_all();
  }

 private:
  struct Ended {};

  template <class Error>
  void fail(const Error& error) {
    if (!error_) error_ = std::make_exception_ptr(error);
    woken_.notify_all();
    throw Ended();
  }

  void run_one(const std::function<void()>& program) {
    try {
      program();
    } catch (const Ended&) {
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed();
  }

  std::vector<std::function<void()>> programs_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::size_t running_ = 0, waiting_ = 0, changes_ = 0;
  std::exception_ptr error_;
};

template <class Tile>
class Queue {
 public:
  Queue(Stages& stages, std::string name, std::size_t depth)
      : stages_(stages), name_(std::move(name)), depth_(depth), free_at_(depth, 0) {}

  // The producer: waits for a free place, then puts tile number `number` into it.
  void reserve(Unit& producer) {
    std::unique_lock lock(stages_.mutex());
    stages_.wait(lock, name_, [&] { return tiles_.size() + reserved_ < depth_; });
    producer.wait_until(free_at_.front());
    free_at_.pop_front();
    ++reserved_;
  }
  void push(Unit& producer, std::int64_t number, Tile tile) {
    const std::lock_guard lock(stages_.mutex());
    if (reserved_ == 0) {
      throw DeviceError(name_, "tile " + std::to_string(number) + " overruns the queue of " +
                                   std::to_string(depth_));
    }
    --reserved_;
    tiles_.push_back({number, producer.now, std::move(tile)});
    stages_.changed();
  }

  // The consumer: waits for the next tile, which is to be this one, and looks at it until it pops
  // it.
  Tile& front(Unit& consumer, std::int64_t number) {
    std::unique_lock lock(stages_.mutex());
    stages_.wait(lock, name_, [&] { return !tiles_.empty(); });
    Held& next = tiles_.front();
    if (next.number != number) {
      throw DeviceError(name_, "tile " + std::to_string(next.number) + " comes where tile " +
                                   std::to_string(number) + " is due");
    }
    consumer.wait_until(next.there_at);
    return next.tile;
  }
  void pop(Unit& consumer) {
    const std::lock_guard lock(stages_.mutex());
    if (tiles_.empty()) throw DeviceError(name_, "there is no tile to pop");
    tiles_.pop_front();
    free_at_.push_back(consumer.now);
    stages_.changed();
  }

 private:
  struct Held {
    std::int64_t number;
    Cycles there_at;
    Tile tile;
  };

  Stages& stages_;
  const std::string name_;
  const std::size_t depth_;
  std::size_t reserved_ = 0;
  std::deque<Held> tiles_;      // references to its elements stay valid when others are pushed
  std::deque<Cycles> free_at_;  // of the places that are free
};

}  // namespace attest::vendor::device
