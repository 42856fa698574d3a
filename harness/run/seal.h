// The digests of a record (SPEC.md, chapter "Records", Digests): they show accidents and careless
// edits. Whoever means to forge a record can make them anew.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/record.h"

namespace attest {

// What the digests need of the line of a verdict.
struct SealedVerdict {
  std::string testee, case_id;  // by which they are sorted
  std::string found, line;      // SHA-256 of what was found, and of all that it says
  auto operator<=>(const SealedVerdict&) const = default;
};

// Of a line as it stands, and what it says.
SealedVerdict sealed(std::string_view line, const nlohmann::json& json);

// Makes them of the lines of a record, in any order of the verdicts.
class Seal {
 public:
  void add(SealedVerdict verdict) { verdicts_.push_back(std::move(verdict)); }
  // Any line.
  void add(std::string_view line, const nlohmann::json& json);
  Digests digests() const;

 private:
  std::vector<SealedVerdict> verdicts_;
  std::string others_;  // SHA-256 of each other line
};

// Writes them into the footer, which is otherwise as it will be written; `verdicts` are the lines
// that are written already, of all verdicts.
void seal(Record& record);
void seal(Record& record, Seal verdicts);

}  // namespace attest
