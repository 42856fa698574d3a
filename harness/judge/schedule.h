// The blocks of the score matrix that a testee reports, against what it must compute and what it
// declares (SPEC.md, SCHED-1 to SCHED-3).
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "harness/judge/finding.h"
#include "spec/description.h"
#include "spec/inputs.h"
#include "spec/problem.h"
#include "spec/verdict.h"

namespace attest {

// Half-open ranges of queries and keys, of one batch element and head.
struct Block {
  Index worker = 0, batch = 0, head = 0;
  Index query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
  bool masked = false;
  Index pass = 0;  // 0: of a forward call; n >= 1: the n-th of a backward call
};

class Plane;

// As they cross: a list of lists of nine numbers. Throws InputError for anything else.
std::vector<Block> blocks_from_json(const nlohmann::json& list);

// The score matrices of a problem, as far as they were asked for: the same for all its calls.
// `problem` and `inputs` must outlive them.
class Planes {
 public:
  Planes(const Problem& problem, const Inputs& inputs);
  ~Planes();
  const Problem& problem() const { return problem_; }
  // Of one batch element and head, until the next is asked for.
  Plane& at(Index batch, Index head);

 private:
  const Problem& problem_;
  const Inputs& inputs_;
  std::map<std::pair<Index, Index>, std::unique_ptr<Plane>> planes_;
};

// What is wrong with the blocks that one call reported.
std::optional<Finding> schedule_defect(Planes& planes, const ScheduleDeclaration& declared,
                                       const std::vector<Block>& blocks, bool backward,
                                       int threads);

// The figures of well-formed blocks, for the record. They are seen if the threads of the call, and
// of another one that was not asked for its blocks, computed in shares like those of the workers:
// where that can't be measured, or isn't so, they are as reported.
ScheduleEvidence schedule_evidence(const std::vector<Block>& blocks, bool backward, int threads,
                                   const std::vector<double>& traced_seconds,
                                   const std::vector<double>& untraced_seconds);

}  // namespace attest
