// How far a run is: a bar with counts and time left on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "spec/verdict.h"

namespace attest {

class Progress {
 public:
  // Writes to `out` for `total` verdicts; 0: nobody knows how many there will be.
  Progress(std::FILE* out, bool terminal, std::size_t total);

  void add(const Verdict& verdict);
  // Removes the bar, so that other text can follow.
  void finish();

 private:
  void draw();
  void write(const std::string& text);

  std::FILE* out_;
  bool terminal_;
  std::size_t total_, done_ = 0, bad_ = 0, unsupported_ = 0;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace attest
