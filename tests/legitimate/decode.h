// From what crosses attest_plugin.h to a Problem and its Inputs, and from results back to tensors:
// whatever the strides, packed or behind a page table. With it a kernel that is written for the
// suite's own vocabulary is a testee like any other.
#pragma once

#include <vector>

#include "spec/attest_plugin.h"
#include "spec/inputs.h"
#include "spec/problem.h"

namespace attest::legitimate {

// Only what `supports` is told: the shapes of bias and slopes and the number of pages come with the
// inputs.
Problem problem_of(const attest_problem& given);

// The whole problem of a call: with its gradients if `backward`.
Problem problem_of(const attest_problem& given, const attest_inputs& inputs, bool backward);

// All elements of a tensor, in dense order.
Values values_of(const attest_tensor& tensor, DType dtype);

// The keep-mask among them if there is one; else keep is empty.
Inputs inputs_of(const Problem& problem, const attest_inputs& given);

// Writes every element, `values` being in dense order. An absent tensor is left alone.
void write(const attest_tensor& tensor, DType dtype, const std::vector<double>& values);
void write(const attest_tensor& tensor, const Keep& keep);

}  // namespace attest::legitimate
