// The tensors beside Q, K, V and dO: bias, slopes, sink and dLSE. What they hold is said in a case
// by kinds of their own (Extras), not by its input class.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "spec/inputs.h"

namespace attest {

// The kinds of numbers that a bias and a sink may hold (Extras).
std::vector<std::string> bias_kinds();
std::vector<std::string> sink_kinds();

// Each for a problem that has such a tensor.
Values make_bias(const Case& test_case);
Values make_slopes(const Case& test_case);
Values make_sink(const Case& test_case);
Values make_d_lse(const Case& test_case);

}  // namespace attest
