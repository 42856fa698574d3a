// The border to a testee: something that carries out requests on the tensors of an arena.
// The harness knows testees through this alone; tests put mocks here.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spec/verdict.h"

namespace attest {

class Arena;

// Bytes, as closely as the system tells.
struct BytesTaken {
  double least = 0, most = 0;
};

struct Reply {
  enum class Kind {
    answered,  // `body` is the reply; its "status" says ok, error, refused or fault
    crashed,   // the process died during the request
    timed_out,
    protocol_error,  // no reply to this request: malformed, or for another nonce
    out_of_memory,   // it used more than it may
    interrupted,     // we gave it up
  };
  Kind kind = Kind::answered;
  nlohmann::json body = {};
  std::string message = {};   // what happened, for a person; empty if answered
  std::string captured = {};  // what the testee printed meanwhile, as Captured cuts it
  // How far the testee's memory rose meanwhile beyond what it had before and the tensors, if that
  // was measured.
  std::optional<BytesTaken> peak_bytes = {};
  // Private memory that it used meanwhile, whenever that was taken; of programs alone, if measured.
  std::optional<BytesTaken> touched_bytes = {};
  // Processor seconds of each thread that ran meanwhile, if that was measured.
  std::vector<double> thread_seconds = {};
  std::optional<double> wall_seconds = {};  // from request to reply, if that was measured
  // That all threads computed, to a hundredth; of a worker that is still between requests.
  std::optional<double> cpu_seconds = {};
  // How many threads computed or waited for a processor, in the mean over the call; none if that
  // was not measured, or the call ended too soon to tell.
  std::optional<double> running_threads = {};
  std::optional<TimeEvidence> time = {};  // if it timed out

  bool ok() const { return kind == Kind::answered && body.value("status", "") == "ok"; }
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Carries out one request (wire.h), whose nonce this adds. After anything but an answer the next
  // request meets a fresh testee.
  virtual Reply execute(nlohmann::json request) = 0;

  // As execute, and measures memory and threads where that is possible.
  virtual Reply measure(nlohmann::json request) { return execute(std::move(request)); }

  // Who carries out backward calls in its place.
  virtual Executor& of_backward() { return *this; }

  // The next request meets a fresh testee, whose memory nobody has used.
  virtual void renew() {}

  // Makes sure that every request so far has had its one reply, so that what is late is known while
  // its case still is.
  virtual Reply settle() { return {.body = {{"status", "ok"}}}; }

  // The shared memory that requests refer to, at least `bytes` each way. Growing it may mean a
  // fresh testee.
  virtual Arena& arena(std::size_t bytes) = 0;
};

}  // namespace attest
