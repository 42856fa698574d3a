// The clauses that a case cites: those that its entry names, and those of all that it needs or
// tries.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/case.h"

namespace attest {

// The clauses of an entry. Throws InputError for what is no list of clauses.
std::vector<std::string> read_clauses(const nlohmann::json& list, const std::string& pointer);

// What a case must cite: the clauses of the features that its problem needs, and of what else it
// tries.
std::vector<std::string> implied_clauses(const Case& test_case);

// Adds those to what it cites already.
void cite_implied(Case& test_case);

}  // namespace attest
