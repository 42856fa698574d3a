#include "harness/run/room.h"

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

std::string Room::refuses(const Problem& problem) const {
  constexpr double kMib = 1 << 20;
  const double bytes = bytes_to_judge(problem);
  if (bytes <= all_) return {};
  return fmt::format(
      "to judge it takes about {:.0f} MiB, beside what the testee takes, and there are {:.0f} MiB: "
      "fewer heads or batch elements show as much",
      bytes / kMib, all_ / kMib);
}

double Room::of_machine() {
  return 0.9 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
}

Room::Kept::Kept(Room& room, double bytes) : room_(room), bytes_(bytes) {
  std::unique_lock lock(room_.mutex_);
  room_.changed_.wait(lock,
                      [&] { return room_.taken_ == 0 || room_.taken_ + bytes_ <= room_.all_; });
  room_.taken_ += bytes_;
}

Room::Kept::~Kept() {
  {
    const std::lock_guard lock(room_.mutex_);
    room_.taken_ -= bytes_;
  }
  room_.changed_.notify_all();
}

}  // namespace attest
