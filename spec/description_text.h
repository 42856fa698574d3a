// A declaration of arithmetic as whoever judges outputs has it at hand (attest_judge.h).
#pragma once

#include <string_view>

#include "spec/description.h"
#include "spec/dtype.h"

namespace attest {

// What `text` says of a kernel for `dtype`: the name of an arithmetic, or JSON: a whole
// description, the value of its key "arithmetic", or that of one format. Throws InputError for
// anything else, for a name that says nothing of that format, and for a format without bounds
// ("beyond_caps").
Description description_by(std::string_view text, DType dtype);

}  // namespace attest
