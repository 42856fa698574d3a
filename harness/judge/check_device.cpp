#include <fmt/format.h>

#include <vector>

#include "cases/device_check.h"
#include "cases/generate.h"
#include "harness/judge/checks.h"
#include "harness/judge/memory.h"

namespace attest {
namespace {

// As many heads again, where the problem has tables of so many.
Problem with_more_heads(Problem p) {
  for (auto* const shape : {&p.bias_shape, &p.slopes_shape}) {
    if (*shape && (**shape)[1] == p.query_heads) (**shape)[1] *= 2;
  }
  p.query_heads *= 2;
  p.key_heads *= 2;
  return p;
}

// The first differs in all sizes, for what is kept of the first call alone; the last is shorter,
// for what is kept of the one before. None of what has tables of sizes of its own.
std::vector<Problem> other_shapes(const Case& c) {
  if (!c.extras.slopes.empty() || !c.extras.bias_allows.allowed.empty()) return {};
  const auto shorter = with_lengths(c.problem, [](Index length) { return (length + 1) / 2; });
  const auto longer = lengthened(c.problem, 2);
  if (!shorter || !longer) return {};
  return {with_more_heads(*longer), *longer, with_more_heads(c.problem), *shorter};
}

// Calls whose results nobody looks at, in the worker that has the case next.
std::optional<Finding> call_other_shapes(Subject& subject) {
  int called = 0;
  subject.calling.executor.renew();  // nothing is kept of the case itself
  for (const Problem& problem : other_shapes(subject.test_case())) {
    if (left_out(subject.testee, problem)) continue;
    Case other = subject.test_case();
    other.problem = problem;
    other.hidden = Hidden::plain;
    const Trial trial = try_out(subject.calling, problem, generate(other), Placement::end_flush);
    if (trial.stopped) return trial.stopped;
    ++called;
  }
  if (called > 0) return std::nullopt;
  return Finding{.outcome = Outcome::unsupported,
                 .reason = "limits",
                 .message = "no other shape can be made of it within the limits"};
}

// The case in both placements, as always, but in that mode.
std::optional<Finding> try_again(Subject& subject, std::string_view mode) {
  Calling calling = subject.calling;
  calling.mode = mode;
  const auto trial = [&](Placement placement) {
    return try_out(calling, subject.problem(), subject.prepared.inputs(), placement);
  };
  const Trial first = trial(Placement::end_flush);
  if (first.stopped) return first.stopped;
  const Trial second = trial(Placement::start_flush);
  if (second.stopped) return second.stopped;
  if (auto finding = check_whole(subject, first, second)) return finding;
  return check_bounds(subject, first, second);
}

}  // namespace

std::optional<Finding> check_device(Subject& subject) {
  const DeviceCheck& about = *find_device_check(subject.test_case().check);
  const bool of_shapes = about.check == Check::new_shapes;
  std::optional<Finding> finding = of_shapes ? call_other_shapes(subject) : std::nullopt;
  if (!finding) finding = try_again(subject, of_shapes ? "" : about.feature);
  // An ordinary call has been right by now, so it is this that it cannot.
  if (finding && finding->outcome == Outcome::fail) {
    finding->clause = about.clause;
    finding->message =
        fmt::format("{}: {}", of_shapes ? "after other shapes" : about.feature, finding->message);
  }
  return finding;
}

}  // namespace attest
