#include "harness/run/memory_budget.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/process/tensors.h"
#include "spec/dtype.h"

namespace attest {

double bytes_to_judge(const Problem& problem, std::size_t arithmetics) {
  double inputs = 0, returned = 0;  // elements
  for (const Crossing& t : inputs_of(problem, problem.backward)) {
    inputs += double(element_count(t.shape));
  }
  for (const bool backward : {false, true}) {
    if (backward && !problem.backward) continue;
    for (const Crossing& t : outputs_of(problem, backward, {TensorName::lse})) {
      returned += double(element_count(t.shape));
    }
  }
  const double keep =
      problem.dropout.mode == Dropout::Mode::none ? 0 : double(element_count(problem.keep_shape()));
  const double shared = double(format_of(problem.dtype).bytes) * (inputs + 2 * returned);
  const double number = sizeof(double);
  const double numbers_of_result = 2 + 2 * double(arithmetics);  // bits twice; value, bound
  return shared + number * (inputs + numbers_of_result * returned) + 2 * keep;
}

double memory_here(const std::filesystem::path& root) {
  double least = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  // Lines such as 0::/a/b, of version 2, and 4:cpu,memory:/a/b, of version 1. In a container the
  // group's folder may be the root of what is mounted, whatever the line says.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_second = controllers == ",,";
    if (!is_second && controllers.find(",memory,") == controllers.npos) continue;
    const auto mounted = root / (is_second ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* const limit = is_second ? "memory.max" : "memory.limit_in_bytes";
    auto group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (bool more = true; more; group = group.parent_path()) {
      more = !group.empty();
      std::ifstream file(mounted / group / limit);
      if (double bytes = 0; file >> bytes) least = std::min(least, bytes);  // not so "max"
    }
  }
  return least;
}

std::string MemoryBudget::refuses(const Problem& problem) const {
  constexpr double kMib = 1 << 20;
  const double bytes = bytes_to_judge(problem);
  if (bytes <= all_) return {};
  return fmt::format(
      "to judge it takes about {:.0f} MiB, beside what the testee takes, and there are {:.0f} MiB: "
      "fewer heads or batch elements show as much",
      bytes / kMib, all_ / kMib);
}

MemoryBudget::Share::Share(MemoryBudget& budget, double bytes) : budget_(budget), bytes_(bytes) {
  std::unique_lock lock(budget_.mutex_);
  budget_.changed_.wait(
      lock, [&] { return budget_.taken_ == 0 || budget_.taken_ + bytes_ <= budget_.all_; });
  budget_.taken_ += bytes_;
}

MemoryBudget::Share::~Share() {
  {
    const std::lock_guard lock(budget_.mutex_);
    budget_.taken_ -= bytes_;
  }
  budget_.changed_.notify_all();
}

}  // namespace attest
