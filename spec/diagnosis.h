// "Did you mean": what diagnosis.json says of groups of like failures, as far as reports tell it.
// It lies beside a record, is no part of it, and decides no verdict. Source: SPEC.md, chapter
// "Records"; its schema: diagnosis.schema.json.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace attest {

inline constexpr const char* kDiagnosis = "diagnosis.json";

struct Diagnosis {
  std::string testee;
  std::string case_id;                           // the simplest of the group
  std::string headline = {};                     // "O is exactly what no scale (SCORE-1) gives"
  std::vector<std::string> admitted_by = {};     // `"grouped_gradients": "rounded"`
  std::vector<std::string> passes_without = {};  // "a softcap"
  std::string blamed = {};                       // "SCORE-2"; empty if nothing is
};

// "within its bounds with ... declared": empty if no declaration admits what failed.
std::string admitted_text(const std::vector<std::string>& declarations);

// "O is exactly what no scale (SCORE-1) gives", "passes without a softcap", "blamed on SCORE-1";
// none if nothing is known but what is blamed.
std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);

// In one line, with semicolons between.
std::string diagnosis_text(const Diagnosis& diagnosis);

// Throws InputError for what is no diagnosis.json.
std::vector<Diagnosis> read_diagnoses(std::istream& in);

}  // namespace attest
