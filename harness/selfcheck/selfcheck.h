// The suite's check of itself, `attest selfcheck`: that no broken kernel passes, tried on mutants,
// and that no correct kernel fails, tried on kernels that are right in as many ways as there are.
// This is what is told of it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/selfcheck/hunt.h"
#include "reports/catches.h"

namespace attest {

// What became of the legitimate kernels.
struct Trust {
  std::size_t kernels = 0, cases = 0;
  bool all = false;                          // whether these are all cases of the tier
  std::map<std::string, Index> counts = {};  // of verdicts, by outcome name
  // What is neither conformant nor an honest refusal nor undecided.
  std::vector<VerdictRecord> failed = {};
  bool interrupted = false;
};

// From a run of the legitimate kernels on `cases` cases.
Trust trust_of(const Record& record, std::size_t cases);

// So many of the cases, from all over the list.
std::vector<Case> sample(const std::vector<Case>& cases, std::size_t count);

// What was checked; what was not is absent.
struct Selfcheck {
  Catalogue catalogue = {};
  bool all_catches = false;  // --full: every case was tried, whatever caught a mutant before
  bool diagnosed = false;    // --blame: clauses are blamed by the diagnosis too
  bool filtered = false;     // not all cases of the tier were there to be tried
  std::vector<Case> cases = {};
  std::optional<Hunt> hunt = {};
  std::optional<Trust> trust = {};
  double wall_s = 0;
};

// Briefly: without what caught each mutant.
std::string to_text(const Selfcheck& check, bool briefly = false);
nlohmann::json to_json(const Selfcheck& check);
std::string to_html(const Selfcheck& check);  // a page by itself

// Its picture, a column a mutant: a row a format, caught or not; below, a row an outcome and
// reason, with what it caught first. There must be a hunt.
CatchTable checks_and_mutants(const Selfcheck& check);

// Conformant if every mutant is caught in every dtype that it concerns, no control is accused and
// no legitimate kernel fails, and of those diagnosed 95 of 100 are blamed right; incomplete if
// nothing was tried, or, because of a filter, not every mutant.
int exit_code_of(const Selfcheck& check);

}  // namespace attest
