// Streams, events and graphs of a Runtime that end with their scope, and what holds a stream up.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace attest::device {

// A stream that does not wait for the default one.
template <class Runtime>
class OwnStream {
 public:
  OwnStream() : stream_(Runtime::make_stream()) {}
  ~OwnStream() { Runtime::destroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  typename Runtime::Stream get() const { return stream_; }

 private:
  typename Runtime::Stream stream_;
};

template <class Runtime>
class OwnEvent {
 public:
  OwnEvent() : event_(Runtime::make_event()) {}
  ~OwnEvent() { Runtime::destroy(event_); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  typename Runtime::Event get() const { return event_; }

 private:
  typename Runtime::Event event_;
};

// What `work` puts into the stream, as a graph; nothing of it is done.
template <class Runtime>
class OwnGraph {
 public:
  template <class Work>
  OwnGraph(typename Runtime::Stream stream, const Work& work) {
    Runtime::begin_capture(stream);
    try {
      work();
    } catch (...) {
      Runtime::give_up_capture(stream);
      throw;
    }
    graph_ = Runtime::end_capture(stream);
  }
  ~OwnGraph() { Runtime::destroy(graph_); }
  OwnGraph(const OwnGraph&) = delete;
  OwnGraph& operator=(const OwnGraph&) = delete;
  typename Runtime::Graph get() const { return graph_; }

 private:
  typename Runtime::Graph graph_;
};

// What waits in a stream until it is let go. A kernel that waits for its stream would wait for
// ever: so it lasts for a while at most.
class Hold {
 public:
  explicit Hold(std::chrono::milliseconds longest) : longest_(longest) {}
  void let_go() { gone_ = true; }
  bool is_gone() const { return gone_; }
  // By the function of the host that is put into the stream.
  void wait() const {
    const auto end = std::chrono::steady_clock::now() + longest_;
    while (!gone_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  const std::chrono::milliseconds longest_;
  std::atomic<bool> gone_{false};
};

// A stream that is held up from here on.
template <class Runtime>
class Gate {
 public:
  Gate(typename Runtime::Stream stream, std::chrono::milliseconds longest)
      : hold_(std::make_shared<Hold>(longest)) {
    Runtime::hold(stream, hold_);
  }
  ~Gate() { hold_->let_go(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Once what went into the default stream is done, and into others has begun.
  void open() {
    Runtime::synchronize(Runtime::default_stream());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    hold_->let_go();
  }

 private:
  std::shared_ptr<Hold> hold_;
};

}  // namespace attest::device
