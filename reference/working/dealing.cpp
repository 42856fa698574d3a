#include "reference/working/dealing.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <thread>

#include "reference/bound.h"

namespace attest::bound::working {

void for_each_task(Index tasks, int threads, const std::function<void(Index, int)>& run) {
  const int workers = static_cast<int>(std::min<Index>(threads, tasks));
  std::atomic<Index> next = 0;
  const auto work = [&](int worker) {
    for (Index task = next++; task < tasks; task = next++) run(task, worker);
  };
  std::vector<std::thread> others;
  for (int worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
  for (std::thread& other : others) other.join();
}

int worthwhile_threads(const Problem& problem, int threads) {
  const double products = double(problem.batch * problem.query_heads) *
                          double(problem.query_len * problem.key_len) *
                          double(problem.head_dim + problem.value_dim);
  return products < 1e6 ? 1 : std::max(threads, 1);
}

namespace {

// The groups of kRows neighbours among `count`, or those of them that are chosen.
std::vector<Index> groups_of(Index count, const std::vector<Index>* chosen) {
  static_assert(kRows == 8, "expected.h says so");
  const Index all = ceil_div(count, kRows);
  std::vector<Index> groups(at(chosen ? 0 : all));
  std::iota(groups.begin(), groups.end(), Index(0));
  if (!chosen) return groups;
  groups = *chosen;
  std::sort(groups.begin(), groups.end());
  std::erase_if(groups, [&](Index group) { return group >= all; });
  return groups;
}

std::vector<Range> ranges_of(Index count, const std::vector<Index>& groups) {
  std::vector<Range> ranges;
  for (const Index group : groups) {
    ranges.push_back({group * kRows, std::min((group + 1) * kRows, count)});
  }
  return ranges;
}

// Enough for several threads, be it that key heads are few, or that they are long and few of them
// are walked.
Index parts_of(const Problem& problem, Index blocks) {
  const Index of_few = ceil_div(8, problem.batch * problem.key_heads);
  return std::max(
      {Index(1), std::min(of_few, ceil_div(blocks, 16)), std::min<Index>(8, blocks / 128)});
}

}  // namespace

Wanted::Wanted(const Problem& problem, const Excerpt* excerpt) {
  const Index query_heads = problem.batch * problem.query_heads;
  const Index key_heads = problem.batch * problem.key_heads;
  const auto all_rows = groups_of(problem.query_len, nullptr);
  for (Index head = 0; head < query_heads; ++head) {
    rows.push_back(excerpt ? groups_of(problem.query_len, &excerpt->query_groups[at(head)])
                           : all_rows);
  }
  for (Index head = 0; head < key_heads; ++head) {
    keys.push_back(excerpt ? ranges_of(problem.key_len,
                                       groups_of(problem.key_len, &excerpt->key_groups[at(head)]))
                           : std::vector<Range>{{0, problem.key_len}});
    walked.push_back(!keys.back().empty() || problem.bias_shape || problem.key_len == 0);
  }
}

bool Wanted::any_row(const Problem& problem, Index key_head) const {
  const auto first = rows.begin() + key_head * problem.group_size();
  return std::any_of(first, first + problem.group_size(),
                     [](const std::vector<Index>& groups) { return !groups.empty(); });
}

bool Wanted::walks_all_of(const Problem& problem, Index h) const {
  for (Index b = 0; b < problem.batch; ++b) {
    if (!walked[at(b * problem.key_heads + h / problem.group_size())]) return false;
  }
  return true;
}

Index key_heads_at_a_time(const Problem& problem, int threads) {
  constexpr double kBytes = double(Index(1) << 29);
  const Index heads = problem.batch * problem.key_heads;
  // Six forms of K and V, and four sums of their gradients in each of some parts.
  const double numbers = problem.backward ? 20 : 3;
  const double bytes = numbers * double(sizeof(double)) *
                       double(std::max<Index>(problem.key_len, 1)) *
                       double(problem.head_dim + problem.value_dim + 1);
  const auto fit = static_cast<Index>(std::min(kBytes / bytes, double(heads)));
  return std::clamp<Index>(fit, std::min<Index>(threads, heads), std::max<Index>(heads, 1));
}

Parts::Parts(const Problem& problem, bool by_head)
    : blocks_of_head(ceil_div(problem.query_len, kRows)),
      blocks_of_group(problem.group_size() * blocks_of_head),
      count(by_head ? problem.group_size() : parts_of(problem, blocks_of_group)) {}

bool may_go_beyond(const Problem& problem, const Inputs& inputs) {
  // What is flushed errs by less than 1, in a factor that may be 0.
  const auto largest = [](const Values& values, double most = 0) {
    for (const double x : values.data) {
      if (std::isfinite(x)) most = std::max(most, std::abs(x));
    }
    return most;
  };
  const double distance = double(problem.query_len + problem.key_len);
  // A factor that is scaled and divided by the softcap may be flushed in between.
  const double scale = std::abs(problem.scale) + problem.softcap * smallest_normal(problem.dtype);
  const double most =
      scale * double(problem.head_dim) * largest(inputs.q, 1) * largest(inputs.k, 1) +
      largest(inputs.bias) + distance * largest(inputs.slopes) + largest(inputs.sink);
  // A score counts with its error, which is at most a few times its terms, and a share of them for
  // each channel.
  const double with_error = 16 + double(problem.head_dim) * 0x1p-20;
  return !(most * with_error < softmax_2_limit<double>(problem.dtype));
}

}  // namespace attest::bound::working
