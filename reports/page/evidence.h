// The evidence of one verdict, in words, for the scripts of a page.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reports/digest.h"

namespace attest::page {

// Of what there is: "message", "blamed", "problem", "known", "diagnosis", "captured", "worst" (of
// each tensor its element, actual, exact, bound, ratio, rms error and what was compared),
// "slopes" (of each gradient both sums, how far they may be apart, and their ratio), "schedule",
// and "pictures".
nlohmann::json evidence_json(const Digest& digest, const VerdictRecord& record);

}  // namespace attest::page
