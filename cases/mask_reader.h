// Masks as case files write them (MASK-1 to MASK-8).
//
//   "full"   "causal"   "causal bottom_right offset=3"   "window -16..4"   "window *..0
//   bottom_right"
//   {"all_of": ["causal", {"dense": {"pattern": "random", "percent": 50, "axes": "bqk"}}]}
//   {"any_of": [...]}
//   {"dense": {"rows": ["x..", "xx."]}}          one string a query, x: may attend
//
// Text is the notation of to_string(Mask); without an anchor it means top_left. "axes" names the
// axes of a dense table that have their full size (default: all, bhqk); the others broadcast.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "spec/problem.h"

namespace attest {

// Throws InputError for anything but the notation above.
Mask parse_mask(std::string_view text);

// `sizes` gives the shape of dense tables; `seed` is the text from which random ones are made.
// Throws InputErrors with pointers below `pointer`.
Mask read_mask(const nlohmann::json& value, const std::string& pointer, const Problem& sizes,
               std::string_view seed);

}  // namespace attest
