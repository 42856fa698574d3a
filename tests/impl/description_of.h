// What a kernel says of itself, read.
#pragma once

#include <nlohmann/json.hpp>

#include "spec/attest_plugin.h"
#include "spec/description.h"
#include "spec/json_text.h"

namespace attest {

inline Description description_of(const attest_kernel& kernel) {
  return parse_description(parse_json(kernel.describe(&kernel)));
}

}  // namespace attest
