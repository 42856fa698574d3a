// The matrices of the HTML page, for whoever has to find out why: clauses by testee, the worst
// element of each tensor, gradients beside differences.
#pragma once

#include "reports/digest.h"
#include "reports/markup.h"

namespace attest::html {

Markup clause_matrix(const Digest& d);
Markup worst_ratios(const Digest& d);
Markup slopes(const Digest& d);

}  // namespace attest::html
