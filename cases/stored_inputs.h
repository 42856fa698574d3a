// Inputs that are stored in formats of 8 bits, with scales (FORMAT-5 to FORMAT-8).
#pragma once

#include <vector>

#include "cases/case.h"
#include "spec/inputs.h"

namespace attest {

// Scales of what the problem stores so, by which the largest number of each lies in the upper half
// of the format's range, as who quantises a tensor has them, or in that of its subnormal numbers;
// but random within that, so that no two are the same and none is a power of two. Of int8 one in
// three has them smaller: then the largest numbers become the ends of its range, which no others
// reach.
void make_scales(const Case& test_case, Inputs& inputs);

// Which scales of a tensor of keys or queries, of these shapes, are of a row within a length: the
// others may be anything (FORMAT-5).
std::vector<bool> scales_in_use(const Problem& problem, const Shape& of, const Shape& scales,
                                bool of_keys);

// Rounds these inputs to what is stored times its scale: numbers beyond the range become its
// largest, and infinities NaN in a format without.
void round_to_scales(const Problem& problem, Inputs& inputs);

}  // namespace attest
