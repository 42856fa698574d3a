// Work that several threads share.
#pragma once

#include <latch>
#include <thread>
#include <vector>

namespace attest {

// Calls `work` in that many threads at once, this one among them. None ends before all are done: a
// worker ends with the thread that started it, and another job may be using it.
template <class Work>
void in_parallel(int jobs, const Work& work) {
  std::latch done(jobs);
  const auto job = [&] {
    work();
    done.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (int i = 1; i < jobs; ++i) others.emplace_back(job);
  job();
  for (std::thread& other : others) other.join();
}

}  // namespace attest
