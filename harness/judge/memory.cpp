#include "harness/judge/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr double kMib = 1 << 20;

bool has_table(const Mask& mask) {
  if (mask.table || mask.segments) return true;
  for (const Mask& part : mask.parts) {
    if (has_table(part)) return true;
  }
  return false;
}

// What the system does not tell closely enough to say either.
Finding unknown(const std::string& where) {
  return {.outcome = Outcome::inconclusive,
          .message = where + ": memory cannot be measured here closely enough"};
}

std::optional<Finding> beyond_declared(const MemoryDeclaration& declared, const char* pass,
                                       const MemoryTaken& taken, int threads) {
  const double asked = taken.facts.workspace_bytes;
  const double workspace = declared.workspace.bytes(taken.problem, threads);
  const std::string where = fmt::format("{} of {} queries and {} keys", pass,
                                        taken.problem.query_len, taken.problem.key_len);
  if (asked > workspace) {
    return failure(
        "memory",
        fmt::format("{}: asked for {} bytes of workspace, declared {}", where, asked, workspace),
        "MEM-1");
  }
  const double own = declared.own.bytes(taken.problem, threads);
  const double allowed = asked + own + kMemorySlack;
  if (taken.facts.peak_bytes->least > allowed) {
    return failure("memory",
                   fmt::format("{}: took {:.1f} MiB beyond its tensors; of its workspace and what "
                               "it declares beside it are {:.1f} MiB",
                               where, taken.facts.peak_bytes->least / kMib, (asked + own) / kMib),
                   "MEM-1");
  }
  if (taken.facts.peak_bytes->most > allowed) return unknown(where);
  return std::nullopt;
}

}  // namespace

std::optional<Problem> lengthened(const Problem& problem, Index times) {
  return with_lengths(problem, [times](Index length) { return length * times; });
}

std::optional<Problem> with_lengths(const Problem& problem, const std::function<Index(Index)>& of) {
  if (problem.paging.page_size > 0 || problem.dropout.mode == Dropout::Mode::given ||
      has_table(problem.mask)) {
    return std::nullopt;
  }
  Problem other = problem;
  other.query_len = of(problem.query_len);
  other.key_len = of(problem.key_len);
  for (SequenceLengths* lengths : {&other.query_lens, &other.key_lens}) {
    std::vector<Index> all = *lengths;
    for (Index& length : all) length = of(length);
    *lengths = std::move(all);
  }
  if (other.bias_shape) {
    for (const std::size_t axis : {2, 3}) {
      Index& size = (*other.bias_shape)[axis];
      const Index whole = axis == 2 ? problem.query_len : problem.key_len;
      if (size == whole) size = of(size);  // an axis of size 1 may be whole too
    }
  }
  return other;
}

void count_old_memory(std::vector<MemoryTaken>& taken) {
  const auto touched = [&](std::size_t i) { return taken[i].facts.touched_bytes; };
  double largest_step = 0;
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (!touched(0) || !touched(i - 1) || !touched(i)) return;
    largest_step = std::max(largest_step, touched(i)->most - touched(i - 1)->least);
    BytesTaken& bytes = *taken[i].facts.peak_bytes;
    bytes.least = std::max(bytes.least, touched(i)->least - touched(0)->most - largest_step);
    bytes.most = std::max(bytes.most, touched(i)->most - touched(0)->least);
  }
}

std::optional<Finding> memory_defect(const MemoryDeclaration& declared, const char* pass,
                                     const std::vector<MemoryTaken>& taken, int threads) {
  std::optional<Finding> doubt;
  for (const MemoryTaken& t : taken) {
    auto finding = beyond_declared(declared, pass, t, threads);
    if (finding && finding->outcome == Outcome::fail) return finding;
    if (!doubt) doubt = std::move(finding);
  }
  const double power = declared.growth == Growth::constant ? 0
                       : declared.growth == Growth::linear ? 1
                                                           : 2;
  for (std::size_t longer = 1; longer < taken.size(); ++longer) {
    for (std::size_t shorter = 0; shorter < longer; ++shorter) {
      const MemoryTaken &few = taken[shorter], &many = taken[longer];
      const double times = static_cast<double>(many.times) / static_cast<double>(few.times);
      const BytesTaken less = *few.facts.peak_bytes, more = *many.facts.peak_bytes;
      const auto allows = [&](double bytes) {
        return std::pow(times, power) * bytes + kMemorySlack;
      };
      if (more.least > allows(less.most)) {
        return failure(
            "memory",
            fmt::format("{}: took {:.1f} MiB beyond its tensors at {} queries and {} keys, "
                        "and {:.1f} MiB at {} times the lengths; declared {}",
                        pass, less.most / kMib, few.problem.query_len, few.problem.key_len,
                        more.least / kMib, times, name(declared.growth)),
            "MEM-2");
      }
      if (more.most > allows(less.least) && !doubt) doubt = unknown(pass);
    }
  }
  return doubt;
}

}  // namespace attest
