// What of an entry depends on its sizes, and follows when they change: lists of lengths, and the
// numbers of its mask.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "spec/problem.h"

namespace attest {

// As many as that, again from the first where there are too few.
void set_count(nlohmann::json& list, Index count);

// None more than that.
void cut_down(nlohmann::json& list, Index most);

// Lengths within the keys, and as many of them as there are batch elements; diagonals at that
// corner.
void adapt_mask(nlohmann::json& mask, const Problem& sizes, std::optional<Anchor> anchor);

// The lists of a mask, no longer than the batch, and within the keys.
void shorten_mask(nlohmann::json& mask, Index batch, Index keys);

// A list with the last ones gone that are too many, and none of the rest more than that.
void shorten(nlohmann::json& list, Index count, Index most);

}  // namespace attest
