// What was told, as a declaration; and where it differs from what the testee declares itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/probe/probe.h"

namespace attest {

// In the form of a description, marked `probed`: it claims no profile, and meets none until its
// author takes the mark off. What could not be told is left out. `left_out` gets what was told and
// may not be declared, and why.
nlohmann::ordered_json declaration_of(const Testee& testee, const Probed& probed,
                                      std::vector<std::string>& left_out);

struct Contradiction {
  std::string key, declared, seen, inputs;
};
std::vector<Contradiction> contradictions(const Description& own, const Answers& answers);

}  // namespace attest
