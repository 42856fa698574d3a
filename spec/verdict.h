// A Verdict: what came of one case with one testee, with the evidence (SPEC.md, chapter
// "Verdicts").
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/index.h"
#include "spec/tensor_name.h"

namespace attest {

enum class Outcome {
  pass,
  warn,          // only a recommended clause is missed: conformant still
  fail,          // a required clause is broken; the reason says how
  unsupported,   // refused, with a reason, and not bound by its declaration
  inconclusive,  // nothing that was compared could have failed
  crash,
  timeout,
  protocol_error,  // replies that are malformed, late, doubled or not for this request
  harness_error,   // our fault
  not_run,
};

// Why a verdict is what it is: one of kReasons, or property:NAME.
using Reason = std::string;

inline constexpr std::array<std::string_view, 25> kReasons = {
    // A testee failed.
    "bound", "statistical", "nonfinite", "unwritten", "guard", "input_mutated", "nondeterministic",
    "wrong_refusal", "schedule", "memory", "threads", "beyond_caps", "swallowed",
    // It does not pass though nothing is wrong (CALL-1, EMPTY-5, NUM-2); beyond_caps again.
    "undeclared", "limits", "alike", "dialect", "not_judgeable", "not_called",
    // It was not tried.
    "gave_up", "fail_fast", "max_time", "no_memory", "no_vectors", "no_outputs"};

// What random roundings came to (NUMERICS.md, section 12); of a case that asks for it.
struct NoiseEvidence {
  double max_ratio = 0;  // distance / statistical bound
  Index worst = 0;       // where, in dense order
  double ratio = 0;      // rms of error / predicted
  double ratio_limit = 0;
  double bias = 0;        // mean of error / predicted
  double growth = 0;      // the same, counted away from 0
  double bias_limit = 0;  // of the magnitudes of both
  Index compared = 0;     // elements
};

// The element of a tensor that came closest to its bound, or went furthest beyond it.
struct TensorEvidence {
  double max_ratio = 0;           // distance / bound; infinity where the bound is 0 and was missed
  std::vector<Index> worst = {};  // [batch, head, position, channel]; empty for an empty tensor
  double actual = 0;
  double exact = 0;
  double bound = 0;
  double rms = 0;         // of actual - exact over all finite elements
  double mean = 0;        // of the same, with its sign
  Index compared = 0;     // elements
  Index unspecified = 0;  // elements that may be anything, and were left out
  Index elements = 0;     // that it has: more than both where a part of it was judged
  std::optional<NoiseEvidence> noise = {};
};

// A returned gradient, summed along a direction, beside the central difference of the exact loss
// along it (LAW-16).
struct SlopeEvidence {
  TensorName tensor;
  double analytic = 0, difference = 0;
  double allowed = 0;  // how far they may be apart
};

// What a call took that was given up for its time. Of the machine and the moment: no part of what
// two records of the same run have in common.
struct TimeEvidence {
  double wall_s = 0;
  double cpu_s = 0;   // of its busiest thread
  double idle_s = 0;  // in which none of its threads computed or waited for a processor
  bool busy = false;  // the machine had other work at half of the time
};

// The blocks that one call reported (SPEC.md, chapter "Schedule").
struct ScheduleEvidence {
  std::string pass;  // "forward", "backward"
  Index threads = 0;
  Index blocks = 0, masked = 0;
  double imbalance = 0;  // pairs of the busiest worker, in means of all
  // Whether the processor time of its threads, traced and untraced, is spread as the blocks say. If
  // not, or if that could not be told, the schedule is as reported.
  bool seen = false;
};

// A grid of letters that pages draw (harness/judge/pictures.h says what they stand for): where
// errors lie, which keys are seen, which worker did which block. No part of what two records of the
// same run have in common.
struct Picture {
  std::string kind;                       // "heat", "mask", "blocks"
  std::string of;                         // the tensor, the plane or the call, in words
  Index rows = 0, columns = 0;            // of what it shows; a letter may stand for many
  std::vector<std::string> letters = {};  // a text a row, all as long as each other
};

struct Verdict {
  Outcome outcome = Outcome::not_run;
  Reason reason = {};  // of warn and fail, a dialect, a format beyond the caps; empty otherwise
  std::string message = {};               // one sentence for a person
  std::vector<std::string> clauses = {};  // those of the case, and the broken one first on failure
  // The clause that a fault, or a warning, is blamed on; it decides nothing
  // (harness/judge/blame.h).
  std::string blamed = {};
  std::map<TensorName, TensorEvidence> tensors = {};  // that were judged
  std::vector<SlopeEvidence> slopes = {};
  std::vector<std::string> features = {};  // that the problem asks for; given with slopes
  std::vector<ScheduleEvidence> schedule = {};
  std::vector<Picture> pictures = {};  // of faults, and of schedules
  double wall_s = 0;
  // Of calls that were given up for their time; the second when the case was tried again alone.
  std::vector<TimeEvidence> time = {};
  std::string repro = {};     // the command that repeats this verdict
  std::string captured = {};  // what the testee printed, if it did not pass
};

std::string_view name(Outcome outcome);  // "PASS", "FAIL", "PROTOCOL_ERROR", ...
std::optional<Outcome> outcome_named(std::string_view name);

// Whether a testee stays conformant with it: PASS and WARN.
constexpr bool conforms(Outcome outcome) {
  return outcome == Outcome::pass || outcome == Outcome::warn;
}

// Whether it says nothing of the testee: not asked, or nothing could be told.
constexpr bool says_nothing(Outcome outcome) {
  return outcome == Outcome::unsupported || outcome == Outcome::inconclusive;
}

// Whether the testee broke a clause with it.
constexpr bool is_fault(Outcome outcome) {
  return outcome == Outcome::fail || outcome == Outcome::crash || outcome == Outcome::timeout ||
         outcome == Outcome::protocol_error;
}

}  // namespace attest
