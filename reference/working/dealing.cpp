#include "reference/working/dealing.h"

#include <algorithm>
#include <atomic>
#include <cmath>
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

std::vector<Index> wanted_groups(Index count, const std::vector<Index>* excerpt) {
  static_assert(kRows == 8, "expected.h says so");
  std::vector<Index> groups(at(ceil_div(count, kRows)));
  std::iota(groups.begin(), groups.end(), Index(0));
  if (!excerpt) return groups;
  std::vector<Index> chosen = *excerpt;
  std::sort(chosen.begin(), chosen.end());
  std::erase_if(chosen, [&](Index group) { return group >= Index(groups.size()); });
  return chosen;
}

std::vector<Range> wanted_keys(const Problem& problem, const Excerpt* excerpt) {
  if (!excerpt) return {{0, problem.key_len}};
  std::vector<Range> keys;
  for (const Index group : wanted_groups(problem.key_len, &excerpt->key_groups)) {
    keys.push_back({group * kRows, std::min((group + 1) * kRows, problem.key_len)});
  }
  return keys;
}

Parts::Parts(const Problem& problem, bool by_head)
    : blocks_of_head(ceil_div(problem.query_len, kRows)),
      blocks_of_group(problem.group_size() * blocks_of_head),
      count(by_head ? problem.group_size()
                    : std::clamp<Index>(ceil_div(8, problem.batch * problem.key_heads), 1,
                                        ceil_div(blocks_of_group, 16))) {}

bool may_go_beyond(const Problem& problem, const Inputs& inputs) {
  const auto largest = [](const Values& values) {
    double most = 0;
    for (const double x : values.data) {
      if (std::isfinite(x)) most = std::max(most, std::abs(x));
    }
    return most;
  };
  const double distance = double(problem.query_len + problem.key_len);
  const double most =
      std::abs(problem.scale) * double(problem.head_dim) * largest(inputs.q) * largest(inputs.k) +
      largest(inputs.bias) + distance * largest(inputs.slopes) + largest(inputs.sink);
  return !(most < softmax_2_limit<double>(problem.dtype));
}

}  // namespace attest::bound::working
