// Memory that large cases take, so that several at a time don't take more than the machine has.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "spec/problem.h"

namespace attest {

// About what it takes to judge one testee on a problem, here and in memory that is shared with it:
// inputs, two trials of results, exact values and bounds. What the testee takes itself is its own.
double bytes_to_judge(const Problem& problem);

class Room {
 public:
  // `bytes`: what there is; by default nine tenths of the machine's memory.
  explicit Room(double bytes = of_machine()) : all_(bytes) {}

  // Why a problem does not fit whatever else is running; empty if it does.
  std::string refuses(const Problem& problem) const;

  // Waits until there is room for it, then keeps it until the end of the scope. Whoever is alone
  // has room.
  class Kept {
   public:
    Kept(Room& room, double bytes);
    ~Kept();
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

   private:
    Room& room_;
    double bytes_;
  };

 private:
  static double of_machine();

  double all_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace attest
