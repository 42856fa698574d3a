// The failures of the page, by groups of like ones; refusals and warnings.
#pragma once

#include <vector>

#include "reports/digest.h"
#include "reports/groups.h"
#include "reports/markup.h"
#include "reports/page/columns.h"

namespace attest::html {

// Of each group its first ones in full, so many of all; the rest is in the table of cases.
Markup failures(const Digest& d, const std::vector<FailureGroup>& groups,
                const page::Columns& columns);

// What was said with them, and of how many cases.
Markup refusals_and_warnings(const Digest& d, const page::Columns& columns);

}  // namespace attest::html
