// Which tensors cross for a problem, and under which names (SPEC.md, chapter "Worker").
#pragma once

#include <optional>
#include <vector>

#include "harness/process/arena.h"
#include "spec/inputs.h"
#include "spec/problem.h"
#include "spec/tensor_name.h"

namespace attest {

// The tensors that belong to the problem itself: lengths, page table, the tables of masks.
void add_problem(Exchange& exchange, const Problem& problem);

// A tensor of numbers that crosses.
struct Crossing {
  TensorName name;
  DType dtype;
  Shape shape;
  std::optional<Layout> layout = {};  // none: as the exchange lays out tables
};

// What a testee reads; for the backward pass, the loss too. What its own forward pass returned is
// not among them, nor a keep-mask, which is no numbers.
std::vector<Crossing> inputs_of(const Problem& problem, bool backward);

// The numbers of an input as they are stored: without their scales.
Values stored_values(const Problem& problem, const Inputs& inputs, TensorName tensor);

// What a call returns; a forward call O and `statistics`: LSE, or what a testee returns in its
// place, or nothing.
std::vector<Crossing> outputs_of(const Problem& problem, bool backward,
                                 const std::vector<TensorName>& statistics);

// The former, and the keep-mask that is given.
void add_inputs(Exchange& exchange, const Problem& problem, const Inputs& inputs, bool backward);

// An upper bound of what the tensors of any call take, in either memory.
std::size_t arena_bytes(const Problem& problem);

}  // namespace attest
