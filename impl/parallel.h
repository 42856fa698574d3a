// Threads: independent units of work, dealt to workers in contiguous shares. What a unit computes
// does not depend on who computes it, so results are the same for any number of threads (DET-3).
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "impl/schedule.h"

namespace attest::impl {

// Calls work(worker, begin, end) for each worker, with its share of the units.
template <class Work>
void share_out(std::int64_t units, int workers, const Work& work) {
  if (workers == 1) {
    work(0, std::int64_t{0}, units);
    return;
  }
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  const auto guarded = [&](int worker) {
    try {
      const Range share = contiguous_share(units, workers, worker);
      work(worker, share.begin, share.end);
    } catch (...) {
      failures[static_cast<std::size_t>(worker)] = std::current_exception();
    }
  };
  try {
    for (int worker = 1; worker < workers; ++worker) threads.emplace_back(guarded, worker);
  } catch (...) {  // no more threads to be had: those that run must end first
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace attest::impl
