// The text of the standard: spec/SPEC.md itself, as it was when this was built.
#pragma once

#include <string_view>

namespace attest {

std::string_view standard_text();

// What it says of a clause, its heading left out; empty if it has none of that id.
std::string_view text_of_clause(std::string_view id);

}  // namespace attest
