#include "harness/process/pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>

#include "harness/process/worker.h"

namespace attest {

ExecutorPool::Lease ExecutorPool::take(const std::string& key, const Testee& testee) {
  std::unique_ptr<Executor> executor;
  std::list<Idle> dismissed;  // ends after the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.key == key; });
    if (found != idle_.end()) {
      executor = std::move(found->executor);
      idle_.erase(found);
    }
    ++taken_;
    while (!idle_.empty() && taken_ + idle_.size() > at_once_) {
      dismissed.splice(dismissed.end(), idle_, std::prev(idle_.end()));
    }
  }
  dismissed.clear();  // before another is started
  if (!executor) executor = make_(testee);
  return {*this, key, std::move(executor)};
}

void ExecutorPool::give_back(std::string key, std::unique_ptr<Executor> executor) {
  const std::lock_guard lock(mutex_);
  --taken_;
  idle_.push_front({std::move(key), std::move(executor)});
}

void ExecutorPool::forget(const std::string& key) {
  std::list<Idle> dismissed;
  const std::lock_guard lock(mutex_);
  for (auto at = idle_.begin(); at != idle_.end();) {
    const auto next = std::next(at);
    if (at->key == key) dismissed.splice(dismissed.end(), idle_, at);
    at = next;
  }
}

Crew crew_for(int jobs, std::size_t open_files, std::size_t open_now) {
  constexpr std::size_t kAside = 16;  // the record, its reports, cases
  // What a job reads of the system meanwhile: two folders and a file.
  constexpr std::size_t kOfAJob = 3;
  const std::size_t used = open_now + kAside + kStartsAtOnce * kDescriptorsOfAStart;
  const std::size_t left = open_files - std::min(open_files, used);
  const std::size_t most = std::max<std::size_t>(1, left / (kOfAJob + kDescriptorsOfAWorker));
  const std::size_t possible = std::min(most, static_cast<std::size_t>(jobs));
  const std::size_t rest = left - std::min(left, possible * kOfAJob);
  return {.jobs = static_cast<int>(possible),
          .workers = std::max(possible, rest / kDescriptorsOfAWorker)};
}

Crew crew_for(int jobs) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 256;
  std::error_code unknown;
  const auto open_now = std::distance(std::filesystem::directory_iterator("/proc/self/fd", unknown),
                                      std::filesystem::directory_iterator());
  constexpr rlim_t kMost = std::numeric_limits<int>::max();  // beside which no limit is felt
  return crew_for(jobs, static_cast<std::size_t>(std::min(limit.rlim_cur, kMost)),
                  static_cast<std::size_t>(open_now));
}

}  // namespace attest
