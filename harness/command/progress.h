// How far a run is: a bar with counts and time left on a terminal, in one line as wide as that is;
// plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "harness/command/terminal.h"
#include "spec/record.h"

namespace attest {

class Progress {
 public:
  // For `total` verdicts, or `of` something else; 0: nobody knows how many there will be. A quiet
  // one writes nothing, a verbose one a line for each verdict too.
  Progress(const Terminal& terminal, Loudness loudness, std::size_t total,
           const char* of = "verdicts");

  void add(const VerdictRecord& record);
  // Without a verdict to be told of.
  void add_one();
  // Removes the bar, so that other text can follow.
  void finish();

 private:
  void draw();
  // From the longest to the shortest.
  std::vector<std::string> counts() const;

  Terminal terminal_;
  Loudness loudness_;
  std::string of_;
  std::size_t total_, done_ = 0, bad_ = 0, unsupported_ = 0;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace attest
