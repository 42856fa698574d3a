// Memory that large cases take, so that several at a time don't take more than the machine has.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>

#include "spec/problem.h"

namespace attest {

// About what it takes to judge testees on a problem one after the other, here and in memory that is
// shared with them: inputs, two trials of results, and for each distinct arithmetic that they
// declare the exact values and bounds. What a testee takes itself is its own.
double bytes_to_judge(const Problem& problem, std::size_t arithmetics = 1);

// What processes here may have: the machine's memory, or less if a control group that this process
// is in, or one above it, has less, as containers have (Linux, cgroups(7), versions 1 and 2).
// `root`: where proc/ and sys/ lie.
double memory_here(const std::filesystem::path& root = "/");

// What all cases that are judged at a time share.
class MemoryBudget {
 public:
  explicit MemoryBudget(double bytes) : all_(bytes) {}  // what there is

  // Why a problem does not fit whatever else is running; empty if it does.
  std::string refuses(const Problem& problem) const;

  // Waits until so many bytes are free, then keeps them until the end of the scope. Whoever is
  // alone gets them, however many.
  class Share {
   public:
    Share(MemoryBudget& budget, double bytes);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    MemoryBudget& budget_;
    double bytes_;
  };

 private:
  double all_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace attest
