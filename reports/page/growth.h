// How errors grow with the length of the sequences, beside the bounds.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reports/digest.h"

namespace attest::page {

// Lists of testee, tensor, dtype (both as in Digest), length, error and bound (code.h): of normal
// inputs, of each length the worst element that lies furthest from its exact value, beyond what its
// own rounding takes: as that is held to the bound. Of lengths beyond 16 a quarter of an octave has
// one point. The length is what a case's id says of it, sq or sk; the record has no other word of a
// case that passes.
nlohmann::json growth(const Record& record, const Digest& digest);

// The number of the piece of an octave that a length lies in.
int piece_of(Index length);

// The longest of the lengths that an id names; 0 if it names none.
Index length_in(std::string_view case_id);

}  // namespace attest::page
