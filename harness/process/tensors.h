// Which tensors cross for a problem, and under which names (SPEC.md, chapter "Worker").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/process/arena.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest {

// The tensors that belong to the problem itself: lengths, page table, the tables of masks.
void add_problem(Exchange& exchange, const Problem& problem);

// The numbers that a testee reads; for the backward pass, those of the loss too. What its own
// forward pass returned is not among them.
void add_inputs(Exchange& exchange, const Problem& problem, const Inputs& inputs, bool backward);

// What a call returns, to be judged. The keep-mask of generated dropout is apart: it is no result.
struct OutputTensor {
  std::string record_name;  // "O", "dBias"
  std::string wire_name;
  DType dtype;
  Shape shape;
  std::optional<Layout> layout = {};  // none: as the exchange lays out tables
};
std::vector<OutputTensor> outputs_of(const Problem& problem, bool backward, bool with_lse);

// An upper bound of what the tensors of any call take, in either memory.
std::size_t arena_bytes(const Problem& problem);

}  // namespace attest
