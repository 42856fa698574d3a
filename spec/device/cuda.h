// The runtime of CUDA, for <attest/device.h>. The work of a call may be in any stream, so that
// nothing here goes by the default one but what is waited for at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "../kernel.h"
#include "gate.h"

namespace attest::device {

struct Cuda {
  using Stream = cudaStream_t;
  using Event = cudaEvent_t;
  using Graph = cudaGraphExec_t;

  // Aligned to 256 bytes at least.
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    const auto error = cudaMalloc(&data, bytes);
    if (error == cudaErrorMemoryAllocation) {
      ignore(cudaGetLastError());
      throw Failure(ATTEST_NO_MEMORY, "the device has no " + std::to_string(bytes) + " bytes");
    }
    check(error, "memory");
    return data;
  }
  static void free(void* data) { ignore(cudaFree(data)); }

  static Stream default_stream() { return nullptr; }
  static Stream make_stream() {
    Stream stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    return stream;
  }
  static void destroy(Stream stream) { ignore(cudaStreamDestroy(stream)); }
  static Event make_event() {
    Event event = nullptr;
    check(cudaEventCreate(&event), "an event");
    return event;
  }
  static void destroy(Event event) { ignore(cudaEventDestroy(event)); }

  // In the order of the stream.
  static void fill(void* data, int byte, std::size_t bytes, Stream stream) {
    check(cudaMemsetAsync(data, byte, bytes, stream), "poison");
  }
  static void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "a copy");
  }
  static void record(Event event, Stream stream) { check(cudaEventRecord(event, stream), "event"); }
  // Between two that have happened.
  static double seconds(Event begin, Event end) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "the time between events");
    return double(milliseconds) / 1000;
  }
  static void wait(Stream stream, Event event) {
    check(cudaStreamWaitEvent(stream, event, 0), "waiting for an event");
  }
  static void hold(Stream stream, const std::shared_ptr<Hold>& hold) {
    auto own = std::make_unique<std::shared_ptr<Hold>>(hold);
    check(cudaLaunchHostFunc(stream, wait_for, own.get()), "a function of the host");
    own.release();  // wait_for has it
  }

  // From and to the host, done when they return: what is copied from pages that may be swapped out
  // is not, by itself.
  static void upload(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, nullptr), "a copy");
    check(cudaStreamSynchronize(nullptr), "a copy");
  }
  static void download(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, nullptr), "a copy");
    check(cudaStreamSynchronize(nullptr), "a copy");
  }

  // A call that may not be captured, as one that takes memory, fails while a stream is.
  static void begin_capture(Stream stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing a graph");
  }
  static Graph end_capture(Stream stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "capturing a graph");
    Graph ready = nullptr;
    const cudaError_t error = cudaGraphInstantiateWithFlags(&ready, graph, 0);
    ignore(cudaGraphDestroy(graph));
    check(error, "a graph");
    return ready;
  }
  static void give_up_capture(Stream stream) {
    cudaGraph_t graph = nullptr;
    ignore(cudaStreamEndCapture(stream, &graph));
    if (graph) ignore(cudaGraphDestroy(graph));
  }
  static void launch(Graph graph, Stream stream) { check(cudaGraphLaunch(graph, stream), "graph"); }
  static void destroy(Graph graph) { ignore(cudaGraphExecDestroy(graph)); }

  // What the launches since the last look came to, if they were refused.
  static void check_launches() { check(cudaGetLastError(), "launching the kernel"); }
  static void synchronize(Stream stream) { check(cudaStreamSynchronize(stream), "the kernel"); }
  static void synchronize() { check(cudaDeviceSynchronize(), "the kernel"); }

  // Whether an error lasts: then nothing in this process can use the device any more.
  static bool is_lost() {
    ignore(cudaGetLastError());
    ignore(cudaDeviceSynchronize());
    ignore(cudaGetLastError());
    return cudaDeviceSynchronize() != cudaSuccess;
  }

 private:
  static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    ignore(cudaGetLastError());
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ", " +
                             cudaGetErrorString(error));
  }
  static void ignore(cudaError_t) {}

  static void CUDART_CB wait_for(void* own) {
    const std::unique_ptr<std::shared_ptr<Hold>> hold(static_cast<std::shared_ptr<Hold>*>(own));
    (*hold)->wait();
  }
};

}  // namespace attest::device
