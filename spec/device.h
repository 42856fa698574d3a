// A kernel of CUDA or HIP as a plug-in: its tensors lie in the memory of the device, with all that
// guards them on the host, and its work goes into one stream.
//
//   static void forward(const attest::device::Call<attest::device::Cuda>& c) {
//     my_kernel<<<blocks, threads, 0, c.stream()>>>(c.q.view<half>(), ..., c.workspace(bytes));
//   }
//   ATTEST_DEVICE_KERNEL("mine", attest::declare().dtypes({"f16"})
//                                    .features({"lse", "stream", "two-streams", "graph"}),
//                        attest::device::Cuda, forward)              // , backward
//
// Attest poisons, copies, calls and copies back in the order of that stream; the kernel neither
// waits nor frees. The features above have it called as the clauses DEV-1 to DEV-3 say. An error of
// the runtime is the verdict of the case; after one that lasts, the next case has a fresh process.
//
// A Runtime has what device/cuda.h has; what it cannot do it throws, but for what ends something.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/gate.h"
#include "device/mirror.h"
#include "device/rows.h"
#include "device/tables.h"
#include "kernel.h"

#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>) && !defined(__HIP_PLATFORM_AMD__)
#include "device/cuda.h"
#endif
#if __has_include(<hip/hip_runtime_api.h>) && defined(__HIP_PLATFORM_AMD__)
#include "device/hip.h"
#endif
#endif

namespace attest::device {

template <class Runtime>
using Stream = typename Runtime::Stream;

// Memory of the device, as long as this lives.
template <class Runtime>
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : base_(static_cast<unsigned char*>(Runtime::allocate(bytes + kMargin))),
        bytes_(bytes),
        // Where regions are aligned as on the host, pages and all.
        data_(base_ + (kMargin - reinterpret_cast<std::uintptr_t>(base_) % kMargin) % kMargin) {}
  ~Memory() { Runtime::free(base_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  unsigned char* base_;
  std::size_t bytes_;
  unsigned char* data_;
};

// What one stream has for itself: the tensors, what they are before a call and were behind each
// that is kept, and scratch.
template <class Runtime>
class Place {
 public:
  Place(const Layout& layout, const attest::Call& host, Stream<Runtime> stream, std::size_t kept)
      : layout_(layout),
        stream_(stream),
        tensors_(layout.bytes()),
        translated_(host,
                    [&](const void* data) { return layout.on_device(tensors_.data(), data); }),
        before_(layout.crossing()) {
    while (after_.size() < kept) {
      after_.push_back(std::make_unique<Memory<Runtime>>(layout.crossing()));
    }
  }

  // Not before all work on it is over, of a call that failed halfway too.
  ~Place() {
    try {
      Runtime::synchronize();
    } catch (const std::exception&) {
      return;  // which the call has failed for, and told, already
    }
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Stream<Runtime> stream() const { return stream_; }
  const Translated& translated() const { return translated_; }

  // What comes next is set to that, at once.
  void prepare(const Bytes& image) { Runtime::upload(before_.data(), image.data(), image.size()); }
  // In the order of the stream: poison, the image, later what has become of it.
  void poison() { Runtime::fill(tensors_.data(), kPoison, tensors_.bytes(), stream_); }
  void copy_in() {
    for (const Layout::Piece& each : layout_.pieces()) {
      Runtime::copy(tensors_.data() + each.place, before_.data() + each.begin, each.size, stream_);
    }
    next_ = 0;
  }
  void copy_out() {
    unsigned char* const after = after_[fetched_++]->data();
    for (const Layout::Piece& each : layout_.pieces()) {
      Runtime::copy(after + each.begin, tensors_.data() + each.place, each.size, stream_);
    }
  }

  // Those that were copied out.
  std::vector<Bytes> results() const {
    std::vector<Bytes> all;
    for (std::size_t i = 0; i < fetched_; ++i) {
      all.emplace_back(layout_.crossing());
      Runtime::download(all.back().data(), after_[i]->data(), all.back().size());
    }
    return all;
  }

  // Calls of one problem ask for the same, and get the same, so that none is made while a graph is
  // captured. Poisoned in the order of the stream.
  void* workspace(std::size_t bytes) {
    if (next_ == scratch_.size()) scratch_.push_back(nullptr);
    auto& block = scratch_[next_++];
    const std::size_t whole = (bytes + 2 * kMargin + kMargin - 1) / kMargin * kMargin;
    if (!block || block->bytes != bytes) {
      block = std::make_unique<Scratch>(bytes, whole);
    }
    Runtime::fill(block->memory.data(), kPoison, whole, stream_);
    return block->memory.data() + kMargin;
  }
  void again() { next_ = 0; }

  // Holes were poisoned, and never sent.
  void check_holes() const {
    constexpr std::size_t kAtOnce = std::size_t(1) << 26;
    layout_.for_each_hole([&](std::size_t place, std::size_t size, const Failure& written) {
      for (std::size_t at = 0; at < size; at += kAtOnce) {
        Bytes part(std::min(kAtOnce, size - at));
        Runtime::download(part.data(), tensors_.data() + place + at, part.size());
        const auto is_written = [](unsigned char byte) { return byte != kPoison; };
        if (std::any_of(part.begin(), part.end(), is_written)) throw written;
      }
    });
  }
  void check_workspaces() const {
    for (const auto& block : scratch_) {
      Bytes all(block->memory.bytes());
      Runtime::download(all.data(), block->memory.data(), all.size());
      const auto written = [](unsigned char byte) { return byte != kPoison; };
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(kMargin);
      const auto end = from + static_cast<std::ptrdiff_t>(block->bytes);
      const auto before = std::find_if(all.begin(), from, written);
      const auto behind = std::find_if(end, all.end(), written);
      if (before != from || behind != all.end()) {
        const bool is_before = before != from;
        throw Failure(ATTEST_GUARD,
                      "wrote " + std::to_string(is_before ? from - before : behind - end + 1) +
                          (is_before ? " bytes before the start" : " bytes behind the end") +
                          " of its workspace, in device memory");
      }
    }
  }

 private:
  struct Scratch {
    Scratch(std::size_t asked, std::size_t whole) : bytes(asked), memory(whole) {}
    std::size_t bytes;
    Memory<Runtime> memory;
  };

  const Layout& layout_;
  Stream<Runtime> stream_;
  Memory<Runtime> tensors_;
  Translated translated_;
  Memory<Runtime> before_;
  std::vector<std::unique_ptr<Memory<Runtime>>> after_;
  std::size_t fetched_ = 0;
  std::vector<std::unique_ptr<Scratch>> scratch_;
  std::size_t next_ = 0;
};

// The problem of a call with the tables that an image holds, which outlives it: what a kernel reads
// on the host.
struct Told {
  Told(const Layout& layout, const attest::Call& host, Bytes& image)
      : there(host, [&](const void* data) { return layout.in_image(image.data(), data); }),
        problem(&there.problem) {}
  const Translated there;
  const Problem problem;
};

// One call. The data of its tensors lies on the device; `problem`, whose tables lie on the host,
// says what they hold, and `on_device` is the same with tables of the device.
template <class Runtime>
class Call : public attest::Call {
 public:
  Call(const attest::Call& host, const Problem& told, Place<Runtime>& place)
      : attest::Call(&place.translated().problem, &place.translated().inputs,
                     &place.translated().outputs, &host.context, host.backward),
        on_device(&place.translated().problem),
        place_(place) {
    problem = told;
  }

  Problem on_device;

  // Where all the work belongs.
  Stream<Runtime> stream() const { return place_.stream(); }
  // Memory of the device, of arbitrary contents, for the work of this call.
  void* workspace(std::size_t bytes) const { return place_.workspace(bytes); }

 private:
  Place<Runtime>& place_;
};

template <class Runtime>
using Pass = std::function<void(const Call<Runtime>&)>;

// One call of the host, carried out in the mode that it asks for.
template <class Runtime>
class Session {
 public:
  Session(const attest::Call& host, const Pass<Runtime>& pass)
      : host_(host), pass_(pass), layout_(host.context) {}

  void run() {
    const Bytes image = layout_.image();
    switch (host_.context.mode) {
      case ATTEST_CALL_ORDINARY:
        return host_.context.device_seconds ? timed(image) : ordinary(image);
      case ATTEST_CALL_STREAM:
        return in_a_stream(image);
      case ATTEST_CALL_TWO_STREAMS:
        return in_two_streams(image);
      case ATTEST_CALL_GRAPH:
        return in_a_graph(image);
      default:
        throw Failure(ATTEST_ERROR, "this mode is newer than <attest/device.h>");
    }
  }

 private:
  using Own = OwnStream<Runtime>;
  using Clock = std::chrono::steady_clock;

  void call(Place<Runtime>& place, const attest::Call& host, const Problem& told) {
    pass_(Call<Runtime>(host, told, place));
    Runtime::check_launches();
  }
  void call(Place<Runtime>& place) { call(place, host_, host_.problem); }

  void finish(const Place<Runtime>& place, const Bytes& image) {
    Runtime::synchronize(place.stream());
    Runtime::synchronize();  // whatever the kernel started elsewhere, before its memory is gone
    const std::vector<Bytes> results = place.results();
    for (const Bytes& each : results) layout_.check(image, each);
    place.check_holes();
    layout_.take_back(results);
    place.check_workspaces();
  }

  void ordinary(const Bytes& image) {
    Place<Runtime> place(layout_, host_, Runtime::default_stream(), 1);
    place.prepare(image);
    place.poison();
    place.copy_in();
    call(place);
    place.copy_out();
    finish(place, image);
  }

  // Inputs come into the stream behind what holds it up while the host puts the call there:
  // so the time is the device's, and nothing can begin before it. The wait is as long for all
  // kernels, so that what events leave out of the time from outside is, too.
  void timed(const Bytes& image) {
    Place<Runtime> place(layout_, host_, Runtime::default_stream(), 1);
    place.prepare(image);
    place.poison();
    Runtime::synchronize();
    const OwnEvent<Runtime> begin, end;
    const Gate<Runtime> gate(place.stream(), kTimed);
    place.copy_in();
    Runtime::record(begin.get(), place.stream());
    call(place);
    Runtime::record(end.get(), place.stream());
    place.copy_out();
    finish(place, image);
    *host_.context.device_seconds = Runtime::seconds(begin.get(), end.get());
  }

  // What is made once, as modules and workspaces, is made here, on inputs that are NaN.
  void warm_up(Place<Runtime>& place, const attest::Call& host, const Problem& told,
               const Bytes& nan) {
    place.prepare(nan);
    place.poison();
    place.copy_in();
    const auto begin = Clock::now();
    call(place, host, told);
    took_ = std::max(took_, Clock::now() - begin);
    Runtime::synchronize();
  }
  // Streams are held for longer than a call takes on the host.
  std::chrono::milliseconds hold() const {
    using Milliseconds = std::chrono::milliseconds;
    return std::min(std::max(std::chrono::duration_cast<Milliseconds>(3 * took_), kShortest),
                    kLongest);
  }

  // Its stream is held up, so that what goes elsewhere meets poison; and then the default one, so
  // that what goes there comes late, also of a kernel that has waited for its stream before.
  void in_a_stream(const Bytes& image) {
    const Own stream;
    Place<Runtime> place(layout_, host_, stream.get(), 2);
    warm_up(place, host_, host_.problem, layout_.image_of_nan(host_.inputs));
    place.prepare(image);
    for (const Stream<Runtime> held : {stream.get(), Runtime::default_stream()}) {
      place.poison();
      Runtime::synchronize();
      Gate<Runtime> gate(held, hold());
      place.copy_in();
      call(place);
      place.copy_out();
      if (held == stream.get()) {
        gate.open();
      } else {
        Runtime::synchronize(stream.get());
      }
    }
    finish(place, image);
  }

  // The second stream has another problem, and more to do, so that it is at work as long as the
  // first.
  void in_two_streams(const Bytes& image) {
    constexpr std::size_t kCalls = 6, kOthers = 3;  // of the first; of the second beside each
    const Own first, second;
    attest::Call another = host_;
    another.problem.scale *= 0.75;
    Bytes nan = layout_.image_of_nan(host_.inputs);
    turn_tables(layout_, another, nan);
    const Told told(layout_, another, nan);
    Place<Runtime> place(layout_, host_, first.get(), kCalls),
        other(layout_, another, second.get(), 0);
    warm_up(place, host_, host_.problem, layout_.image_of_nan(host_.inputs));
    warm_up(other, another, told.problem, nan);
    place.prepare(image);
    Gate<Runtime> gate(first.get(), hold());
    const OwnEvent<Runtime> opened;
    Runtime::record(opened.get(), first.get());
    Runtime::wait(second.get(), opened.get());
    const auto call_others = [&](std::size_t count) {
      for (std::size_t n = 0; n < count; ++n) {
        other.copy_in();
        call(other, another, told.problem);
      }
    };
    for (std::size_t i = 0; i < kCalls; ++i) {
      call_others(kOthers);
      place.copy_in();
      call(place);
      place.copy_out();
    }
    call_others(2 * kOthers);
    gate.open();
    finish(place, image);
  }

  // Captured on inputs that are NaN, with other lengths and tables; replayed on the true ones, and
  // once more.
  void in_a_graph(const Bytes& image) {
    constexpr std::size_t kReplays = 2;
    const Own stream;
    Bytes nan = layout_.image_of_nan(host_.inputs);
    turn_tables(layout_, host_, nan);
    const Told told(layout_, host_, nan);
    Place<Runtime> place(layout_, host_, stream.get(), kReplays);
    warm_up(place, host_, told.problem, nan);
    place.again();
    const OwnGraph<Runtime> graph(stream.get(), [&] { call(place, host_, told.problem); });
    place.prepare(image);
    for (std::size_t i = 0; i < kReplays; ++i) {
      place.copy_in();
      Runtime::launch(graph.get(), stream.get());
      place.copy_out();
    }
    finish(place, image);
  }

  static constexpr std::chrono::milliseconds kShortest{100}, kLongest{2000}, kTimed{20};

  const attest::Call& host_;
  const Pass<Runtime>& pass_;
  const Layout layout_;
  Clock::duration took_ = {};  // by the longest call
};

// A pass on the device as one of the host.
template <class Runtime>
attest::Pass on(Pass<Runtime> pass) {
  return [pass = std::move(pass)](const attest::Call& host) {
    std::string what;
    try {
      return Session<Runtime>(host, pass).run();
    } catch (const Failure&) {
      throw;
    } catch (const std::exception& error) {
      what = error.what();
    }
    // It may be of this call alone, or of all that are to come.
    throw Failure(Runtime::is_lost() ? ATTEST_DEVICE_LOST : ATTEST_ERROR, what);
  };
}

template <class Runtime>
struct Registered {
  template <class... Passes>
  Registered(const std::string& name, const Declaration& declaration, const Passes&... passes)
      : registered(name, declaration, on<Runtime>(Pass<Runtime>(passes))...) {}
  attest::detail::Registered registered;
  attest_plugin_get_function plugin = &attest_plugin_get;  // which the library thus has
};

}  // namespace attest::device

// ATTEST_DEVICE_KERNEL(name, declaration, Runtime, forward[, backward]), as ATTEST_KERNEL. A pass
// is whatever can be called with an attest::device::Call<Runtime>.
#define ATTEST_DEVICE_KERNEL(name, declaration, Runtime, ...)                                 \
  static const ::attest::device::Registered<Runtime> ATTEST_JOINED(attest_kernel_, __LINE__)( \
      name, declaration, __VA_ARGS__);
