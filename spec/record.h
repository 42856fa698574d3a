// The record of a run, results.jsonl: a header, one line a verdict (and, of a random search, one a
// testee), a footer. It is the only primary record; every report is made from it. Without its
// footer a record is truncated, and the run incomplete. Numbers that JSON lacks are the strings
// "inf", "-inf" and "nan". Source: SPEC.md, chapter "Records".
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/diagnosis.h"
#include "spec/verdict.h"

namespace attest {

inline constexpr int kRecordSchema = 2;
inline constexpr const char* kNotStarted = "not started";  // an isolation: outputs were judged
inline constexpr const char* kNoFailure = "no failure";    // a conclusion

// What the cases of a run meet of a table of a testee's dispatch.
struct DispatchRecord {
  std::string table;
  Index instances = 0;  // that the rest of the declaration leaves possible
  Index met = 0;        // those that cases are in
  Index fewest = 0;     // cases in one of those
};

struct TesteeRecord {
  std::string name;
  std::string spec = {};       // the --testee that names it alone
  std::string isolation = {};  // what --require-isolation calls it; "none": accidental faults only
  std::map<std::string, std::string> files = {};  // that it is made of: SHA-256 by path
  std::string version = {};
  std::string vendor = {};
  std::vector<std::string> profiles = {};  // as declared
  std::vector<std::string> features = {};
  std::vector<std::string> dtypes = {};
  nlohmann::json arithmetic = nlohmann::json::object();  // as declared
  std::map<std::string, std::string> beyond_caps = {};   // by dtype, in the testee's words
  nlohmann::json limits = nlohmann::json::object();      // as declared
  nlohmann::json dialect = nlohmann::json::object();     // likewise: lse, empty_rows, window
  bool probed = false;                                   // its declaration was, and is not adopted
  std::vector<DispatchRecord> dispatch = {};
  Index besides = 0;  // forms of the run's cases that its dispatch asks for, each with a verdict
};

// With what a testee meets a profile whose declaration was probed: with that nobody meets one.
inline constexpr std::string_view kProbedDeclaration = "a declaration that was probed";

// Whether it was kept from writing the record itself.
bool is_contained(const TesteeRecord& testee);

// The cases of a run.
struct CasesRecord {
  std::string digest = {};  // SHA-256 of what sha256sum says of their files
  bool bundled = false;     // whether those are the files that belong to this program
  Index selected = 0;       // by tier, filters and shard
  Index complete = 0;  // of the tier that a conclusion needs: standard, or full if that was run
};

// A failure that whoever runs the suite knows of (--known).
struct KnownFailure {
  std::string cases;        // a pattern of ids
  std::string testee = {};  // empty: any
  Outcome outcome = Outcome::fail;
  std::string reason = {};
  std::string link = {};  // where more is told of it
};

// What testees were given, as the options of that name say.
struct OptionsRecord {
  int threads = 1;
  double start_limit = 60, call_limit = 60;  // seconds
  Index memory_limit = 8192;                 // MiB
  std::vector<std::string> env = {};         // names of variables that passed besides
  bool allow_network = false;
  std::string require_isolation = "none";
  std::string sanitizer = {};  // the command that started workers, if one did
};

struct Header {
  int schema = kRecordSchema;
  std::string suite_version;
  std::string suite_commit = {};  // "unknown" where it was not built from a git tree
  CasesRecord cases = {};
  std::vector<TesteeRecord> testees;
  std::string tier;
  std::uint64_t seed = 0;
  std::string shard = "1/1";
  std::vector<std::string> filters = {};  // the --cases patterns; empty: all cases of the tier
  std::string from = {};                  // a file or folder of other cases than the suite's own
  std::vector<std::string> shapes = {};   // --shapes: presets and files; then there are no others
  std::string vectors = {};               // a folder of outputs that were judged, in place of calls
  std::string isolation = {};             // how testees were kept apart, the least of them
  std::vector<std::string> uncontained = {};  // what of whom was not kept from where, in words
  std::vector<std::string> profiles = {};     // asked for; empty: those that each testee declares
  std::vector<KnownFailure> known = {};
  OptionsRecord options = {};
};

struct VerdictRecord {
  std::string case_id;
  std::string testee;
  std::string dtype;
  std::string because = {};  // what the case hunts
  std::string problem = {};  // in a line; of what does not pass
  Verdict verdict;
};

// How a testee stands to one profile, in one dtype.
struct ProfileRecord {
  std::string testee;
  std::string profile;  // as claimed or asked for; " (O-only)" behind it if no LSE is returned
  std::string dtype;
  bool met = false;
  bool complete = false;  // every case that the profile demands in this tier was run
  Index demanded = 0;     // cases
  Index left_out = 0;     // of them, outside its declaration, or not judgeable under it
  Index passed = 0;
  Index asked() const { return demanded - left_out; }
  // What of the arithmetic declared lies beyond the default column, in words: a profile is met with
  // it only where it was claimed or asked for as "+declared".
  std::vector<std::string> with = {};
  // Where cases were fitted, or not asked: the features that were missing, with the number of cases
  // that need each; whether all that was asked lay within limits; and the clauses of which fewer
  // than 3 distinct cases are left to say that they are met.
  std::map<std::string, Index> needs = {};
  bool within_limits = false;
  std::map<std::string, Index> thin = {};
};

// What a random search with one testee came to, of which only what was found has verdicts.
struct SearchRecord {
  std::string testee;
  std::uint64_t seed = 0;             // of its problems
  std::uint64_t first = 0, next = 0;  // the numbers of the problems tried; `next` is the first that
                                      // was not
  std::map<std::string, Index> tried = {};         // problems by outcome name
  std::map<std::string, Index> inconclusive = {};  // those that said nothing, by why
};

// SHA-256 of what a record holds, in hexadecimal digits (harness/run/seal.h).
struct Digests {
  std::string verdicts = {};  // what was found: the same for the parts of a run put together
  std::string record = {};    // all of it
  bool operator==(const Digests&) const = default;
};

struct Footer {
  std::map<std::string, Index> counts;  // by outcome name
  std::vector<ProfileRecord> profiles = {};
  // "conformant", "not conformant", "incomplete"; "no failure" where nothing failed that was not
  // known, in a run that cannot show more.
  std::string conclusion = {};
  int exit_code = 3;
  double wall_s = 0;
  // Where the time of all jobs went, in seconds by stage (harness/process/stage.h); empty unless
  // that was asked for.
  std::map<std::string, double> stages = {};
  bool complete = true;
  // Of a random search: all problems that were tried, by outcome name. Empty for a run.
  std::map<std::string, Index> tried = {};
  Index judged = 0;                           // cases that a testee passed
  Index known = 0;                            // verdicts that failed as was known
  std::vector<std::string> known_amiss = {};  // what was known and is not so, in words
  // Files of testees that were others at the end than at the beginning, in words.
  std::vector<std::string> changed = {};
  Digests digests = {};
};

struct Record {
  Header header;
  std::vector<VerdictRecord> verdicts;
  std::vector<SearchRecord> searches = {};
  std::optional<Footer> footer;  // none: truncated
  // Of whoever held it to what it should be (harness/run/audit.h), in words; no part of the file.
  std::vector<std::string> defects = {};     // why nothing can be concluded from it
  std::vector<std::string> unverified = {};  // what could not be looked into
  // Of diagnosis.json beside it; no part of the file either.
  std::vector<Diagnosis> diagnoses = {};
};

// One line of results.jsonl each, without the newline.
std::string to_line(const Header& header);
std::string to_line(const VerdictRecord& verdict);
std::string to_line(const SearchRecord& search);
std::string to_line(const Footer& footer);
// What such a line says.
nlohmann::json to_json(const VerdictRecord& verdict);

// Reads a results.jsonl. A last line that was cut off is dropped, as a truncated record's; any
// other malformed line throws InputError with its number. Blank lines, NUL bytes, and a footer that
// is not as to_line writes it, become `defects`. `seen` is told of each line that is
// kept, as it stands and what it says.
Record read_record(
    std::istream& in,
    const std::function<void(std::string_view line, const nlohmann::json& json)>& seen = {});

// A double as JSON, and back: non-finite numbers are strings.
nlohmann::json number_to_json(double value);
double number_from_json(const nlohmann::json& json);

}  // namespace attest
