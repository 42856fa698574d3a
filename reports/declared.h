// What a testee declares, in words: for every page that people read, from the record's header.
#pragma once

#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// {"Limits", "head_dim 64 or 128; square"}
struct DeclaredFact {
  std::string what;
  std::string words;
  bool operator==(const DeclaredFact&) const = default;
};

// Whether it was probed, its formats, limits, what it never takes, what it says otherwise than the
// standard, arithmetic beyond the default column and the caps, and features that it does not
// declare; each only if there is something to say.
std::vector<DeclaredFact> declared_facts(const TesteeRecord& testee);

}  // namespace attest
