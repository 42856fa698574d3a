// A device that is none: its memory is the host's, its streams are queues of work that is done when
// somebody waits for it, or before, in whatever order the streams leave open. The order of each
// call is another, drawn by `seed`.
//
// It is a Runtime as <attest/device.h> takes it. Like CUDA's it refuses to give memory while a
// graph is captured, and after an illegal access it refuses everything.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "spec/device.h"

namespace attest::device {

class Fake {
 public:
  struct Work {
    std::string what;
    std::function<void()> run;
    std::function<bool()> may_begin = [] { return true; };
  };
  struct Queue {
    std::deque<Work> work = {};
    bool captures = false;
    std::vector<Work> captured = {};
  };
  struct Happening {
    bool happened = false;
    std::size_t after = 0;  // so many things were done before it
  };
  struct Captured {
    std::vector<Work> work;
  };
  using Stream = Queue*;
  using Event = Happening*;
  using Graph = Captured*;

  // How much of what may be done is done at once: none of it until somebody waits, all of it, or as
  // the dice fall.
  enum class Haste { none, all, any };

  struct State {
    Queue first = {};  // the default stream
    std::vector<std::unique_ptr<Queue>> streams = {};
    int memory = 0;  // blocks that are given away
    std::mt19937 dice{1};
    Haste haste = Haste::any;
    bool lost = false;
    std::vector<std::string> done = {};  // in the order in which it was
  };
  static State& state() {
    static State all;
    return all;
  }
  static void begin(unsigned seed, Haste haste) {
    state().dice.seed(seed);
    state().haste = haste;
    state().done.clear();
  }

  // What a kernel does, once the stream comes to it.
  static void launch(Stream stream, std::function<void()> run) {
    submit(stream, {"kernel", std::move(run)});
  }
  // An access by which the device is lost.
  static void lose() { state().lost = true; }

  static constexpr std::size_t kBytes = std::size_t(1) << 28;  // for one block

  static void* allocate(std::size_t bytes) {
    check();
    if (bytes > kBytes) throw Failure(ATTEST_NO_MEMORY, "the device has not so much memory");
    for (const auto& stream : state().streams) {
      if (stream->captures) throw std::runtime_error("memory: a stream is capturing");
    }
    void* const data = std::malloc(bytes);
    ++state().memory;
    std::memset(data, 0x5a, bytes);  // of somebody else, before
    return data;
  }
  static void free(void* data) {
    std::free(data);
    --state().memory;
  }

  static Stream default_stream() { return &state().first; }
  static Stream make_stream() {
    check();
    return state().streams.emplace_back(std::make_unique<Queue>()).get();
  }
  static void destroy(Stream stream) {
    auto& all = state().streams;
    const auto is_it = [&](const auto& each) { return each.get() == stream; };
    all.erase(std::remove_if(all.begin(), all.end(), is_it), all.end());
  }
  static Event make_event() { return new Happening(); }
  static void destroy(Event event) { delete event; }

  static void fill(void* data, int byte, std::size_t bytes, Stream stream) {
    submit(stream, {"fill", [=] { std::memset(data, byte, bytes); }});
  }
  static void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
    submit(stream, {"copy", [=] { std::memcpy(to, from, bytes); }});
  }
  static void record(Event event, Stream stream) {
    submit(stream, {"record", [=] { *event = {true, state().done.size()}; }});
  }
  // Whatever is done takes one; `end` itself counts.
  static double seconds(Event begin, Event end) { return double(end->after - begin->after); }
  static void wait(Stream stream, Event event) {
    submit(stream, {"wait", [] {}, [=] { return event->happened; }});
  }
  static void hold(Stream stream, const std::shared_ptr<Hold>& hold) {
    submit(stream, {"hold", [hold] { hold->let_go(); }, [hold] { return hold->is_gone(); }});
  }
  static void upload(void* to, const void* from, std::size_t bytes) {
    synchronize(default_stream());
    std::memcpy(to, from, bytes);
  }
  static void download(void* to, const void* from, std::size_t bytes) {
    synchronize(default_stream());
    std::memcpy(to, from, bytes);
  }

  static void begin_capture(Stream stream) { stream->captures = true; }
  static Graph end_capture(Stream stream) {
    give_up_capture(stream);
    return new Captured{std::move(stream->captured)};
  }
  static void give_up_capture(Stream stream) { stream->captures = false; }
  static void launch(Graph graph, Stream stream) {
    for (const Work& work : graph->work) submit(stream, work);
  }
  static void destroy(Graph graph) { delete graph; }

  static void check_launches() { check(); }
  static void synchronize(Stream stream) {
    while (!stream->work.empty()) step();
    check();
  }
  static void synchronize() {
    while (step()) continue;
    check();
  }
  static bool is_lost() { return state().lost; }

 private:
  static void check() {
    if (state().lost) throw std::runtime_error("an illegal memory access was encountered");
  }

  static void submit(Stream stream, Work work) {
    check();
    if (stream->captures) {
      stream->captured.push_back(std::move(work));
      return;
    }
    stream->work.push_back(std::move(work));
    if (state().haste == Haste::none) return;
    const bool all = state().haste == Haste::all;
    while ((all || state().dice() % 2 == 0) && advance()) continue;
  }

  // Does one thing of a stream that may go on; false if there is none.
  static bool advance() {
    std::vector<Queue*> ready;
    const auto add = [&](Queue* queue) {
      if (!queue->work.empty() && queue->work.front().may_begin()) ready.push_back(queue);
    };
    add(&state().first);
    for (const auto& stream : state().streams) add(stream.get());
    if (ready.empty()) return false;
    Queue& queue = *ready[state().dice() % ready.size()];
    const Work work = std::move(queue.work.front());
    queue.work.pop_front();
    state().done.push_back(work.what);
    if (!state().lost) work.run();
    return true;
  }
  // The same; if none may, what holds a stream up has lasted long enough.
  static bool step() {
    if (advance()) return true;
    const auto outlasts = [](Queue& queue) {
      if (queue.work.empty() || queue.work.front().what != "hold") return false;
      queue.work.front().run();
      return true;
    };
    for (const auto& stream : state().streams) {
      if (outlasts(*stream)) return true;
    }
    return outlasts(state().first);
  }
};

}  // namespace attest::device
