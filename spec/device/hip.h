// The runtime of HIP, for <attest/device.h>. The work of a call may be in any stream, so that
// nothing here goes by the default one but what is waited for at once.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "../kernel.h"
#include "gate.h"

namespace attest::device {

struct Hip {
  using Stream = hipStream_t;
  using Event = hipEvent_t;
  using Graph = hipGraphExec_t;

  // Aligned to 256 bytes at least.
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    const auto error = hipMalloc(&data, bytes);
    if (error == hipErrorMemoryAllocation) {
      ignore(hipGetLastError());
      throw Failure(ATTEST_NO_MEMORY, "the device has no " + std::to_string(bytes) + " bytes");
    }
    check(error, "memory");
    return data;
  }
  static void free(void* data) { ignore(hipFree(data)); }

  static Stream default_stream() { return nullptr; }
  static Stream make_stream() {
    Stream stream = nullptr;
    check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "a stream");
    return stream;
  }
  static void destroy(Stream stream) { ignore(hipStreamDestroy(stream)); }
  static Event make_event() {
    Event event = nullptr;
    check(hipEventCreate(&event), "an event");
    return event;
  }
  static void destroy(Event event) { ignore(hipEventDestroy(event)); }

  // In the order of the stream.
  static void fill(void* data, int byte, std::size_t bytes, Stream stream) {
    check(hipMemsetAsync(data, byte, bytes, stream), "poison");
  }
  static void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
    check(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream), "a copy");
  }
  static void record(Event event, Stream stream) { check(hipEventRecord(event, stream), "event"); }
  // Between two that have happened.
  static double seconds(Event begin, Event end) {
    float milliseconds = 0;
    check(hipEventElapsedTime(&milliseconds, begin, end), "the time between events");
    return double(milliseconds) / 1000;
  }
  static void wait(Stream stream, Event event) {
    check(hipStreamWaitEvent(stream, event, 0), "waiting for an event");
  }
  static void hold(Stream stream, const std::shared_ptr<Hold>& hold) {
    auto own = std::make_unique<std::shared_ptr<Hold>>(hold);
    check(hipLaunchHostFunc(stream, wait_for, own.get()), "a function of the host");
    own.release();  // wait_for has it
  }

  // From and to the host, done when they return: what is copied from pages that may be swapped out
  // is not, by itself.
  static void upload(void* to, const void* from, std::size_t bytes) {
    check(hipMemcpyAsync(to, from, bytes, hipMemcpyHostToDevice, nullptr), "a copy");
    check(hipStreamSynchronize(nullptr), "a copy");
  }
  static void download(void* to, const void* from, std::size_t bytes) {
    check(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToHost, nullptr), "a copy");
    check(hipStreamSynchronize(nullptr), "a copy");
  }

  // A call that may not be captured, as one that takes memory, fails while a stream is.
  static void begin_capture(Stream stream) {
    check(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), "capturing a graph");
  }
  static Graph end_capture(Stream stream) {
    hipGraph_t graph = nullptr;
    check(hipStreamEndCapture(stream, &graph), "capturing a graph");
    Graph ready = nullptr;
    const hipError_t error = hipGraphInstantiateWithFlags(&ready, graph, 0);
    ignore(hipGraphDestroy(graph));
    check(error, "a graph");
    return ready;
  }
  static void give_up_capture(Stream stream) {
    hipGraph_t graph = nullptr;
    ignore(hipStreamEndCapture(stream, &graph));
    if (graph) ignore(hipGraphDestroy(graph));
  }
  static void launch(Graph graph, Stream stream) { check(hipGraphLaunch(graph, stream), "graph"); }
  static void destroy(Graph graph) { ignore(hipGraphExecDestroy(graph)); }

  // What the launches since the last look came to, if they were refused.
  static void check_launches() { check(hipGetLastError(), "launching the kernel"); }
  static void synchronize(Stream stream) { check(hipStreamSynchronize(stream), "the kernel"); }
  static void synchronize() { check(hipDeviceSynchronize(), "the kernel"); }

  // Whether an error lasts: then nothing in this process can use the device any more.
  static bool is_lost() {
    ignore(hipGetLastError());
    ignore(hipDeviceSynchronize());
    ignore(hipGetLastError());
    return hipDeviceSynchronize() != hipSuccess;
  }

 private:
  static void check(hipError_t error, const char* what) {
    if (error == hipSuccess) return;
    ignore(hipGetLastError());
    throw std::runtime_error(std::string(what) + ": " + hipGetErrorName(error) + ", " +
                             hipGetErrorString(error));
  }
  static void ignore(hipError_t) {}

  static void wait_for(void* own) {
    const std::unique_ptr<std::shared_ptr<Hold>> hold(static_cast<std::shared_ptr<Hold>*>(own));
    (*hold)->wait();
  }
};

}  // namespace attest::device
