// The digest of a record: what every report says, whatever its format.
//
// Counts, clauses, worst ratios and failures come from the verdicts; profiles and the conclusion
// from the footer. A record that lacks its footer, whose footer counts other verdicts than there
// are, or that has defects (harness/run/audit.h), concludes nothing, whatever it says.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spec/record.h"

namespace attest {

using Counts = std::map<Outcome, Index>;  // of outcomes that occur

enum class State {
  complete,
  incomplete,    // the run says itself that it did not do all it should
  truncated,     // no footer: the run did not end
  inconsistent,  // it contradicts itself, or is not as it was written
};

// One clause and one testee.
struct ClauseDigest {
  Counts counts = {};                      // of the cases that cite the clause
  Index broken = 0;                        // failures that name it as the broken one
  Index missed = 0;                        // warnings that do
  std::vector<std::size_t> failures = {};  // those cases that failed, as places in Digest::failures
};

// The verdict in which a tensor came closest to its bound, or went furthest beyond it.
struct Worst {
  const VerdictRecord* verdict;
  const TensorEvidence* evidence;
};

// Of all gradients of a name along directions, in problems that have a feature.
struct SlopeDigest {
  Index count = 0;
  double worst = -1;                       // how far apart, as a share of what is allowed
  const VerdictRecord* verdict = nullptr;  // of the worst
  const SlopeEvidence* evidence = nullptr;
};

struct TesteeDigest {
  TesteeRecord about;
  Counts counts = {};
  Counts known = {};  // of them, failures that were known
  double wall_s = 0;
  std::map<std::string, ClauseDigest> clauses = {};
  std::map<std::pair<TensorName, std::string>, Worst> worst = {};         // by tensor and dtype
  std::map<std::pair<std::string, TensorName>, SlopeDigest> slopes = {};  // by feature and tensor
  std::vector<const VerdictRecord*> verdicts = {};

  // The worst of a tensor over all dtypes; null if it was never compared.
  const Worst* worst_of(TensorName tensor) const;
};

// Points into its record, which must outlive it.
struct Digest {
  State state = State::complete;
  std::string conclusion;  // "conformant", "no failure", "not conformant", "incomplete"
  std::string sentence;    // the conclusion with its ground, for a person
  std::vector<std::string> notes = {};  // what every page says beside: what was not contained, ...
  int exit_code = 3;
  double wall_s = 0;
  Counts counts = {};
  Counts known = {};  // of them, failures that were known
  std::map<const VerdictRecord*, const KnownFailure*> known_failures = {};
  std::map<const VerdictRecord*, const Diagnosis*> diagnoses = {};  // that say something
  std::vector<TesteeDigest> testees = {};           // those of the header first, in its order
  std::vector<const VerdictRecord*> failures = {};  // in the order of the record, NOT_RUN last
  std::vector<ProfileRecord> profiles = {};
  std::vector<Outcome> outcomes = {};     // that occur
  std::vector<std::string> clauses = {};  // that are cited, in the order of the standard
  std::set<TensorName> tensors = {};      // that were compared
  std::vector<std::string> dtypes = {};
};

Digest digest(const Record& record);

// All that is neither conformant nor a refusal.
constexpr bool is_failure(Outcome outcome) {
  return !conforms(outcome) && outcome != Outcome::unsupported;
}

// What was known of a verdict; null if nothing was.
const KnownFailure* known_of(const Digest& digest, const VerdictRecord& verdict);

// "known: FAIL (bound), https://..."
std::string known_text(const KnownFailure& known);

// Whether a ratio is worse than another; NaN is worse than anything.
bool worse(double ratio, double than);

// What a verdict cites, each clause once, the broken one first.
std::vector<std::string> cited_clauses(const Verdict& verdict);

// The clause to be read first: the blamed one, or the first that is cited; empty if there is none.
std::string headline_clause(const Verdict& verdict);

Index count_of(const Counts& counts, Outcome outcome);
Index total(const Counts& counts);
Index failures_in(const Counts& counts);

// The profile's record for a dtype; null if it was not judged.
const ProfileRecord* find_profile_record(const Digest& digest, const std::string& testee,
                                         const std::string& profile, const std::string& dtype);

// The profiles that were judged for a testee, in their order.
std::vector<std::string> judged_profiles(const Digest& digest, const std::string& testee);

std::string_view name(State state);

}  // namespace attest
