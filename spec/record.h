// The record of a run, results.jsonl: a header, one line a verdict (and, of a random search, one a
// testee), a footer. It is the only primary record; every report is made from it. Without its
// footer a record is truncated, and the run incomplete. Numbers that JSON lacks are the strings
// "inf", "-inf" and "nan".
#pragma once

#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/verdict.h"

namespace attest {

inline constexpr int kRecordSchema = 1;

struct TesteeRecord {
  std::string name;
  std::string version = {};
  std::string vendor = {};
  std::vector<std::string> profiles = {};  // as declared
  std::vector<std::string> features = {};
  std::vector<std::string> dtypes = {};
  nlohmann::json arithmetic = nlohmann::json::object();  // as declared
  std::map<std::string, std::string> beyond_caps = {};   // by dtype, in the testee's words
};

struct Header {
  int schema = kRecordSchema;
  std::string suite_version;
  std::vector<TesteeRecord> testees;
  std::string tier;
  std::uint64_t seed = 0;
  std::string shard = "1/1";
  std::vector<std::string> filters = {};   // the --cases patterns; empty: all cases of the tier
  std::string from = {};                   // a file or folder of other cases than the suite's own
  std::string isolation = {};              // how testees were kept apart
  std::vector<std::string> profiles = {};  // asked for; empty: those that each testee declares
};

struct VerdictRecord {
  std::string case_id;
  std::string testee;
  std::string dtype;
  std::string because = {};  // what the case hunts
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
  Index passed = 0;
  // What of the arithmetic declared lies beyond the default column, in words: a profile is met with
  // it only where it was claimed or asked for as "+declared".
  std::vector<std::string> with = {};
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

struct Footer {
  std::map<std::string, Index> counts;  // by outcome name
  std::vector<ProfileRecord> profiles = {};
  // "conformant", "not conformant", "incomplete"; "passed" where no profile was asked for and every
  // case that ran passed.
  std::string conclusion = {};
  int exit_code = 3;
  double wall_s = 0;
  bool complete = true;
  // Of a random search: all problems that were tried, by outcome name. Empty for a run.
  std::map<std::string, Index> tried = {};
};

struct Record {
  Header header;
  std::vector<VerdictRecord> verdicts;
  std::vector<SearchRecord> searches = {};
  std::optional<Footer> footer;  // none: truncated
};

// One line of results.jsonl each, without the newline.
std::string to_line(const Header& header);
std::string to_line(const VerdictRecord& verdict);
std::string to_line(const SearchRecord& search);
std::string to_line(const Footer& footer);

// Reads a results.jsonl. A last line that was cut off is dropped, as a truncated record's; any
// other malformed line throws InputError with its number.
Record read_record(std::istream& in);

// A double as JSON, and back: non-finite numbers are strings.
nlohmann::json number_to_json(double value);
double number_from_json(const nlohmann::json& json);

}  // namespace attest
