#include "harness/run/memory_budget.h"

#include <fmt/format.h>
#include <unistd.h>

#include "harness/process/tensors.h"
#include "spec/dtype.h"

namespace attest {

double bytes_to_judge(const Problem& problem) {
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
  const double number = sizeof(double), numbers_of_result = 4;  // bits twice, value, bound
  return shared + number * (inputs + numbers_of_result * returned) + 2 * keep;
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

double MemoryBudget::of_machine() {
  return 0.9 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
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
