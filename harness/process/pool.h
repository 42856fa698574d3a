// Executors that all jobs share. Each serves one job at a time, and what it has started stays for
// the next: so there are about as many workers as testees and jobs, not as many as their product.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "harness/process/executor.h"
#include "harness/process/testee.h"

namespace attest {

// Starts the executor of a testee; a test puts a mock here.
using MakeExecutor = std::function<std::unique_ptr<Executor>(const Testee&)>;

class ExecutorPool {
 public:
  // At most `at_once` executors, as long as no more jobs than that take one.
  ExecutorPool(const MakeExecutor& make, std::size_t at_once) : make_(make), at_once_(at_once) {}

  // An executor that is its holder's until this ends.
  class Lease {
   public:
    Lease(ExecutorPool& pool, std::string key, std::unique_ptr<Executor> executor)
        : pool_(pool), key_(std::move(key)), executor_(std::move(executor)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give_back(std::move(key_), std::move(executor_)); }
    Executor& operator*() const { return *executor_; }

   private:
    ExecutorPool& pool_;
    std::string key_;
    std::unique_ptr<Executor> executor_;
  };

  // One for the testee, which served the same `key` before if there is such a one.
  Lease take(const std::string& key, const Testee& testee);

  // Nobody will ask for this key any more.
  void forget(const std::string& key);

 private:
  struct Idle {
    std::string key;
    std::unique_ptr<Executor> executor;
  };
  void give_back(std::string key, std::unique_ptr<Executor> executor);

  const MakeExecutor& make_;
  const std::size_t at_once_;
  std::mutex mutex_;
  std::list<Idle> idle_;   // the last used comes first
  std::size_t taken_ = 0;  // by leases
};

// How many jobs there can be, and how many workers.
struct Crew {
  int jobs;
  std::size_t workers;  // at least as many as jobs
};

// For so many jobs, if a process may have so many files open and has some of them now. At least one
// of each.
Crew crew_for(int jobs, std::size_t open_files, std::size_t open_now);

// For so many jobs of this process.
Crew crew_for(int jobs);

}  // namespace attest
