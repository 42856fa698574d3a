// Common mistakes: what kernels compute that go wrong in one step. Each is data: what it does in
// words, the clause that it breaks, and how it changes a problem and its numbers so that the
// reference, given the changed ones, computes what such a kernel returns.
//
//   "the scale twice"   SCORE-1   problem.scale *= problem.scale
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/expected.h"
#include "spec/inputs.h"
#include "spec/problem.h"
#include "spec/tensor_name.h"

namespace attest {

// A problem and its numbers.
struct Setting {
  Problem problem;
  Inputs inputs;
  // Which key head each query head reads, and whether it adds to the gradients of that head; empty:
  // as HEAD-1 and HEAD-2 say.
  std::vector<Index> key_head = {};
  std::vector<bool> adds = {};
};

struct Mistake {
  std::string name;
  std::string clause;
  // Changes the setting; false if it means nothing there. Without it, the setting stays.
  std::function<bool(Setting&)> alter = {};
  // What no setting says: what becomes of a returned tensor.
  std::function<void(const Setting&, TensorName, Expected&)> settle = {};
  std::vector<TensorName> only = {};  // tensors that it speaks of; empty: all
  // Mistakes that are meant rather than it where one of them gives the same.
  std::vector<std::string> yields_to = {};
};

// The simplest first: of those that match, the first is named first. One name may stand several
// times: the same mistake, by a number that is the kernel's own.
const std::vector<Mistake>& mistakes();

// Families of them, a file each.
std::vector<Mistake> mask_mistakes();
std::vector<Mistake> length_mistakes();
std::vector<Mistake> score_mistakes();
std::vector<Mistake> head_mistakes();
std::vector<Mistake> output_mistakes();
std::vector<Mistake> dropout_mistakes();
std::vector<Mistake> gradient_mistakes();

}  // namespace attest
