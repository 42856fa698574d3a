// How the work is dealt out: to threads, and to the rows and keys that are wanted.
#pragma once

#include <functional>
#include <vector>

#include "reference/expected.h"
#include "reference/working/products.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::bound::working {

// run(task, worker) for every task, each by one of `threads` workers.
void for_each_task(Index tasks, int threads, const std::function<void(Index, int)>& run);

// At most so many: a thread costs more than a small problem does.
int worthwhile_threads(const Problem& problem, int threads);

// What is computed: by head, those of one batch element after those of the one before.
struct Wanted {
  std::vector<std::vector<Index>> rows;  // groups of kRows neighbours, in order
  std::vector<std::vector<Range>> keys;  // in order; empty: dK and dV of that head are not wanted
  // Of key heads: whether all rows that read it are walked, for its gradients or for dBias.
  std::vector<bool> walked;

  Wanted(const Problem& problem, const Excerpt* excerpt);
  // Whether any row is that reads the key head.
  bool any_row(const Problem& problem, Index key_head) const;
  // Whether all rows of query head h are walked, of all batch elements.
  bool walks_all_of(const Problem& problem, Index h) const;
};

// How many key heads are packed at a time: no more than memory is kept for, and enough for all
// threads.
Index key_heads_at_a_time(const Problem& problem, int threads);

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

// Whether a score, with its error, may be so large that SOFTMAX-2 no longer binds.
bool may_go_beyond(const Problem& problem, const Inputs& inputs);

}  // namespace attest::bound::working
