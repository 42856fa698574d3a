// Records to make reports of: a realistic run, a hostile one, and the odd ones at the edges.
#pragma once

#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// Two testees, about 300 cases, five failures of fa2, refusals, a warning; not conformant.
Record realistic_record();

// A run in which everything passed.
Record conformant_record();

// The same, but fa2's bf16 has arithmetic beyond the default column: claimed so, and conformant; or
// not, and refused.
Record declared_record(bool claimed);

// The conformant one, but fa2 is narrow: it claims forward-core within its limits, and meets it so.
Record narrow_record();

// The realistic record, with all its failures known.
Record known_record();

// The conformant one, of the smoke tier and with a testee that nothing contains.
Record smoke_record();

// Each outcome once; every string a testee controls tries to break out of its report.
Record hostile_record();

// No verdict, no testee, nothing.
Record empty_record();

// The realistic record without its footer.
Record truncated_record();

// Sets the footer's counts to those of the verdicts.
void count(Record& record);

// A record with these verdicts, of one testee "naive", complete and counted.
Record record_of(std::vector<VerdictRecord> verdicts, const std::string& conclusion);

// As a run of 20 testees on 8500 cases leaves it: 170,000 verdicts, 3000 of them failures, each
// with its own words. No sample: it takes a while.
Record large_record();

// What a page says and marks up, without its style sheet, its own scripts and the data that they
// read: a script that slipped in stays.
std::string shown_of(std::string page);

struct Sample {
  std::string name;
  Record record;
};
std::vector<Sample> samples();

}  // namespace attest
