// What went wrong with a testee, before it becomes a verdict.
#pragma once

#include <optional>
#include <string>

#include "harness/process/executor.h"
#include "spec/verdict.h"

namespace attest {

struct Finding {
  Outcome outcome;
  Reason reason = {};
  std::string message;
  std::string clause = {};                // the one it breaks, if not simply those of the case
  std::optional<TimeEvidence> time = {};  // of a time-out
};

// A FAIL that cites the clause which that reason always breaks, if there is one.
Finding failure(const Reason& reason, const std::string& message);
// One that cites `clause`, or, of a sentence such as "DROP-3.6", its clause: the message names it.
Finding failure(const Reason& reason, const std::string& message, const std::string& clause);

// What a reply other than "ok" means. `pass` is the request, in a word for the message.
Finding finding_of(const Reply& reply, const std::string& pass);

// A text of a reply; empty if there is none, whatever stands there instead.
std::string text_of(const Reply& reply, const char* key);

}  // namespace attest
