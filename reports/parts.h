// What is said of results that were compared in part: shapes in use, and cases with an excerpt.
#pragma once

#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// "Compared in part: 3 cases, of the least 1.6% of O, 0.2% of dK."; nothing if there are none.
std::vector<std::string> parts_text(const Record& record);

}  // namespace attest
