// The digests of a record (SPEC.md, chapter "Records", Digests): they show accidents and careless
// edits. Whoever means to forge a record can make them anew.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "spec/record.h"

namespace attest {

// Makes them of the lines of a record, in any order of the verdicts.
class Seal {
 public:
  // A line as it stands, and what it says.
  void add(std::string_view line, const nlohmann::json& json);
  Digests digests() const;

 private:
  struct VerdictLine {
    std::string testee, case_id;  // by which they are sorted
    std::string found, line;      // SHA-256 of what was found, and of all that it says
    auto operator<=>(const VerdictLine&) const = default;
  };
  std::vector<VerdictLine> verdicts_;
  std::string others_;  // SHA-256 of each other line
};

// Writes them into the footer, which is otherwise as it will be written.
void seal(Record& record);

}  // namespace attest
