// What memory the calls of a testee take, against what it declares (SPEC.md, MEM-1 and MEM-2).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "harness/judge/finding.h"
#include "harness/judge/trial.h"
#include "spec/description.h"
#include "spec/problem.h"

namespace attest {

// What no declaration has to count: pages that are part used, what an allocator keeps, stacks of
// threads, code that is read for the first time.
inline constexpr double kMemorySlack = 8.0 * (1 << 20);

// The same problem with all its lengths that many times as long; nothing if it has tables of a size
// of their own (pages, dense and block masks, segments, a keep-mask).
std::optional<Problem> lengthened(const Problem& problem, Index times);

// The same with each length as `of` has it, which keeps their order.
std::optional<Problem> with_lengths(const Problem& problem, const std::function<Index(Index)>& of);

// One pass at one length.
struct MemoryTaken {
  Problem problem;
  Index times;  // the case's lengths
  CallFacts facts;
};

// What a program takes of the memory that it had before: it may be an interpreter, which uses pages
// of its own in each call. They do not grow with the problem, but may come in at one length and not
// at the one before, as when garbage is collected. So all growth beyond the first length is the
// most that the call took, and all but its largest step the least. `taken` is at ascending lengths;
// what was not measured stays.
void count_old_memory(std::vector<MemoryTaken>& taken);

// What is wrong with a pass, by its name for the message, at ascending lengths: FAIL if it is wrong
// whatever lies between the least and the most that it took, INCONCLUSIVE if it may be.
std::optional<Finding> memory_defect(const MemoryDeclaration& declared, const char* pass,
                                     const std::vector<MemoryTaken>& taken, int threads);

}  // namespace attest
