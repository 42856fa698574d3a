// Pictures of a case for the record, as grids of letters, so coarse that they take little room:
// where errors lie, which keys are seen, and which worker did which block.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/judge/schedule.h"
#include "reference/working.h"
#include "spec/problem.h"
#include "spec/verdict.h"

namespace attest {

// Of a tensor: a row a batch element and head, a column a position. A letter is the largest error
// over bound there: a digit d from d / 10 up to (d + 1) / 10, 'a' beyond 1 up to 2, 'b' up to 4,
// and so on to 'y'; 'z' for more and for what is not finite; '.' where nothing was compared.
Picture heat_picture(TensorName tensor, const std::vector<std::uint64_t>& bits, DType dtype,
                     const Shape& shape, const Expected& expected, Rounding rounding);
char heat_letter(double ratio);

// Of a mask: a row a query, a column a key; '#' seen, '.' hidden, '+' both. Of a part that holds
// many pairs some are looked at. What a bias of -inf hides counts as seen.
Picture mask_picture(const Problem& problem, Index batch, Index head);

// Gives a fault such a picture, of the batch element and head where it is worst.
void add_mask_picture(const Problem& problem, Verdict& verdict);

// Of blocks: a row a query of each batch element and head, a column a key; a letter is the worker
// of the block that covers the middle: '0' to '9', 'a' to 'z', and again; '.' where there is none.
Picture blocks_picture(const Problem& problem, const std::vector<Block>& blocks,
                       const ScheduleEvidence& about);

}  // namespace attest
