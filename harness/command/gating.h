// A kernel put to the gate (harness/gate/gate.h) as the options say, and all that is told of it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/shapes.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/gate/gate.h"
#include "harness/gate/interval.h"
#include "harness/process/installation.h"
#include "harness/process/surroundings.h"
#include "harness/process/testee.h"

namespace attest {

struct GateArguments {
  TesteeOptions testees = {};
  CaseOptions cases = {};  // of which it takes shapes
  std::uint64_t seed = 0;  // a hidden one
  std::string baseline = {};
  RecordingOptions recording = {.jobs = hardware_threads()};
  double seconds = 60;
  std::uint64_t steps = 0, rounds = 0;
  bool declared = false;
  bool json = false;  // in place of text
};

// Of the options of `gate` all but the kernel.
void add_gate_options(CLI::App& command, GateArguments& asked);

// A library of attention kernels, or of what they are made of, that a testee may call.
struct Library {
  std::string file;
  std::string of;
};

// All that is told.
struct Told {
  std::string testee, baseline;
  std::string isolation;
  std::uint64_t seed = 0;
  double seconds = 0;
  GateResult result = {};
  FileSums files = {};
  std::vector<Library> libraries = {};
  std::vector<std::string> undecided = {};
  std::vector<std::string> notes = {};
  std::vector<std::string> repros = {};  // of the counterexamples
  std::string again = {}, next = {};

  int exit_code() const;
  const char* verdict() const;  // "conformant", "not conformant", "incomplete"
};

nlohmann::json to_json(const Interval& interval);
nlohmann::json to_json(const BytesTaken& bytes);
nlohmann::json to_json(const Told& told);  // of the schema spec/gate.schema.json
std::string to_text(const Told& told);

// Its options, and what all kernels are asked that are put to the gate with them.
class Gating {
 public:
  // Throws InputError for what the options name and is not there.
  explicit Gating(const GateArguments& asked);

  // Of a kernel, or of all that a library has; each is started once, to describe itself. Throws
  // InputError, which begins with what they are named by.
  std::vector<Testee> kernels(const std::string& spec, const std::string& option = "") const;

  // To be drawn once all kernels have been loaded: that of the options, or one that nobody knew.
  std::uint64_t seed() const;

  // Its counterexamples are written into a file of that name, where the options say.
  Told told(const Testee& testee, std::uint64_t seed, const std::string& examples) const;

 private:
  const GateArguments& asked_;
  Installation installation_;
  Surroundings around_;
  int jobs_;
  std::optional<Testee> baseline_ = {};
  std::vector<CaseWithEntry> entries_;  // of the suite
  std::vector<Case> cases_;
  std::optional<Shapes> shapes_ = {};  // those that the options name
};

}  // namespace attest
