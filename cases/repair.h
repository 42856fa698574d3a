// A problem of an entry that a program has changed, made whole again.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "spec/index.h"

namespace attest {

// Takes from the problem of an entry what can no longer stay after another field has changed.
void repair(nlohmann::json& problem);

// The longest of the lengths `lens`, "key_lens" or "query_lens"; 0 if there are none.
Index longest_of(const nlohmann::json& problem, const char* lens);

}  // namespace attest
