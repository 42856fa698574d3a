// One trial of a testee: the forward call, and the backward call on what it returned.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/finding.h"
#include "harness/judge/schedule.h"
#include "harness/process/arena.h"
#include "harness/process/executor.h"
#include "harness/process/nobody.h"
#include "spec/description.h"
#include "spec/inputs.h"
#include "spec/problem.h"
#include "spec/tensor_name.h"

namespace attest {

// What one tensor came back as.
struct Returned {
  TensorName name;
  DType dtype;
  Shape shape;
  std::vector<std::uint64_t> bits;    // dense order
  std::uint64_t poison;               // the bits of an element that was never written
  std::optional<Layout> layout = {};  // as it lay in memory
};

// What is known of one call beside its results.
struct CallFacts {
  std::vector<Block> blocks = {};                // that it reported, if it was asked to
  bool blocks_left_out = false;                  // there were too many to report all
  double workspace_bytes = 0;                    // that it asked for
  std::optional<BytesTaken> peak_bytes = {};     // beyond its tensors, if that was measured
  std::optional<BytesTaken> touched_bytes = {};  // of private memory, likewise, of programs
  std::optional<double> running_threads = {};    // in the mean over the call, if that was measured
  std::optional<double> wall_seconds = {};       // from request to reply, likewise
  std::optional<double> device_seconds = {};     // that its work took on a device, as it says
  std::optional<double> cpu_seconds = {};        // that all threads computed, likewise
  std::vector<double> thread_seconds = {};       // that each thread computed, if that was measured
};

struct Trial {
  // As far as it came, in the standard's terms: LSE in base e, made of what stands for it.
  std::vector<Returned> returned = {};
  // As it was returned, what LSE was made of, where a dialect has it otherwise.
  std::vector<Returned> statistics = {};
  std::optional<Keep> keep = {};  // of generated dropout: the mask that was used
  CallFacts forward = {}, backward = {};
  std::optional<Finding> stopped = {};  // empty if it came to its end
};

// Whom to call, and how.
struct Calling {
  const Description& testee;
  const std::string& kernel;
  Executor& executor;
  int threads;
  std::string& captured;       // what the testee prints is added to it
  bool trace = false;          // whether to ask for its blocks
  bool measure = false;        // whether to measure its memory and threads
  std::string_view mode = {};  // of its calls (DEV-1 to DEV-3); empty: ordinary
};

// LSE in base e, of what stands for it: of a maximum and a sum the first and the last. What of that
// is its poison, is `poison` in it.
Returned in_base_e(const LseForm& form, const std::vector<Returned>& statistics,
                   std::uint64_t poison);

// UNSUPPORTED if its declaration leaves the problem out; else nothing.
std::optional<Finding> left_out(const Description& testee, const Problem& problem);

// Asks whether the testee takes the problem; nothing if it does. UNSUPPORTED, without asking, if
// its declaration leaves the problem out; if it admits the problem, it must be taken (CALL-1).
std::optional<Finding> ask(const Calling& calling, const Problem& problem);

// A forward call between the two of a trial, as that of a network's next layer. What it returns is
// not looked at.
struct Interlude {
  const Problem& problem;
  const Inputs& inputs;
};

Trial try_out(const Calling& calling, const Problem& problem, const Inputs& inputs,
              Placement placement, const Interlude* between = nullptr);

// A kernel that is a function of this process. No request reaches it, and it lays out no memory.
class Computing : public Nobody {
 public:
  virtual Trial compute(const Problem& problem, const Inputs& inputs) = 0;
};

}  // namespace attest
