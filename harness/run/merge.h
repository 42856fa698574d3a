// The records of the shards of a run put together: the record of the whole, but for times.
// Source: SPEC.md, chapter "Records", Merging.
#pragma once

#include <string>
#include <vector>

#include "spec/record.h"

namespace attest {

// A record as it was read and audited (harness/run/audit.h), and what to call it in messages.
struct Part {
  std::string name;
  Record record;
};

// Of all shards of one run, in any order; or of those that make the shard `whole` of it, as 1/10
// and 6/10 make 1/5. Throws InputError, with the name of the part, for a record that is truncated
// or inconsistent or no run's; for headers that differ in more than the shard; and for shards that
// are missing, doubled or of another part of the run.
Record merged(const std::vector<Part>& parts, const std::string& whole = "1/1");

}  // namespace attest
