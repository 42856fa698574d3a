// Masks as case files write them (MASK-1 to MASK-13).
//
//   "full"   "causal"   "causal bottom_right offset=3"   "window -16..4"   "window *..0
//   bottom_right" "prefix 5"   "dilated 3 bottom_right"
//   {"all_of": ["causal", {"dense": {"pattern": "random", "percent": 50, "axes": "bqk"}}]}
//   {"any_of": [...]}
//   {"dense": {"rows": ["x..", "xx."]}}          one string a query, x: may attend
//   {"block_sparse": {"block": [16, 32], "pattern": "checkerboard", "axes": "h"}}
//   {"prefix": [5, 3]}                           one for each batch element
//   {"segments": {"pattern": "documents", "length": 20}}
//   {"segments": {"query": [0, 0, 1], "key": [0, 1, 1, -1]}}
//
// Text is the notation of to_string(Mask); without an anchor it means top_left. "axes" names the
// axes of a table that have their full size (default: all that may broadcast); the others
// broadcast.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "spec/problem.h"

namespace attest {

class ObjectReader;

// Throws InputError for anything but the notation above.
Mask parse_mask(std::string_view text);

// `sizes` gives the shape of tables; `seed` is the text from which random ones are made. Throws
// InputErrors with pointers below `pointer`.
Mask read_mask(const nlohmann::json& value, const std::string& pointer, const Problem& sizes,
               std::string_view seed);

// The parts of the notation that others use too: a table {"pattern": ...} or {"rows": [...]} of
// that shape, the shape that "axes" leaves of `whole`, and a list of integers.
DenseMask read_table(const nlohmann::json& value, const std::string& pointer, const Shape& shape,
                     std::string_view seed);
Shape read_axes(ObjectReader& reader, std::string_view all, const Shape& whole);
std::vector<Index> read_integers(const nlohmann::json& value, const std::string& pointer);

}  // namespace attest
