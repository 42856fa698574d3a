// How the work is dealt out: to threads, and to the rows and keys that are wanted.
#pragma once

#include <functional>
#include <vector>

#include "reference/expected.h"
#include "reference/working/products.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bound::working {

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

// run(task, worker) for every task, each by one of `threads` workers.
void for_each_task(Index tasks, int threads, const std::function<void(Index, int)>& run);

// At most so many: a thread costs more than a small problem does.
int worthwhile_threads(const Problem& problem, int threads);

// The groups of kRows neighbours among `count` that are computed.
std::vector<Index> wanted_groups(Index count, const std::vector<Index>* excerpt);

// The keys of these, in order.
std::vector<Range> wanted_keys(const Problem& problem, const Excerpt* excerpt);

// The rows that read a key head are cut into parts that are summed apart, and then in order: as
// many as the problem asks for, whatever the number of threads, so that no bit depends on it.
struct Parts {
  Index blocks_of_head;   // blocks of kRows query rows
  Index blocks_of_group;  // the same of all heads that read a key head
  Index count;

  Parts(const Problem& problem, bool by_head);
  // Of blocks of the group, numbered head by head.
  Range blocks(Index part) const {
    return {part * blocks_of_group / count, (part + 1) * blocks_of_group / count};
  }
};

// Whether a score may be so large that SOFTMAX-2 no longer binds.
bool may_go_beyond(const Problem& problem, const Inputs& inputs);

}  // namespace attest::bound::working
