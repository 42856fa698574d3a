// Makes the inputs of a case. Only integers and exactly rounded operations (+ - * / sqrt) are used,
// driven by a counter-based generator, so the same id gives the same bits on every machine and in
// any order.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "spec/inputs.h"

namespace attest {

struct InputClass {
  std::string name;
  std::string about;     // what it makes visible
  bool generic = false;  // so random that roundings are as good as independent (NUM-3)
};

const std::vector<InputClass>& input_classes();

// Every value is rounded to the dtype of its tensor. Elements that a layout expands are equal. No
// bit depends on `threads`.
Inputs generate(const Case& test_case, int threads = 1);

}  // namespace attest
