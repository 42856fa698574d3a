#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
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
std::optional<Finding> call_all(Subject& subject, const std::vector<Problem>& problems) {
  subject.calling.executor.renew();  // nothing is kept of the case itself
  for (const Problem& problem : problems) {
    Case other = subject.test_case();
    other.problem = problem;
    other.hidden = Hidden::plain;
    const Trial trial = try_out(subject.calling, problem, generate(other), Placement::end_flush);
    if (trial.stopped) return trial.stopped;
  }
  return std::nullopt;
}

// The case, and then with one tensor after the other laid out otherwise, as far as the testee takes
// that: two calls that follow each other differ in the strides of one tensor alone. Its numbers
// stay the same, and a gap leaves rows as aligned as is usual.
std::vector<std::pair<Problem, std::string>> other_strides(const Description& testee,
                                                           const Problem& own) {
  std::vector<std::pair<Problem, std::string>> steps = {{own, ""}};
  for (const TensorName tensor : laid_out(own)) {
    const std::string order = own.layouts[tensor].order(), usual = "bhsd";
    for (const std::string& text : {order + " gap=16", order == usual ? "bshd" : usual}) {
      Problem next = steps.back().first;
      next.layouts[tensor] = Layout::parse(text);
      if (next == steps.back().first || left_out(testee, next)) continue;
      steps.emplace_back(next, fmt::format(" of {}", name(tensor)));
      break;
    }
  }
  return steps;
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

// An ordinary call has been right by now, so it is this that the testee cannot.
std::optional<Finding> blamed(std::optional<Finding> finding, std::string_view clause,
                              std::string_view how) {
  if (finding && finding->outcome == Outcome::fail) {
    finding->clause = clause;
    finding->message = fmt::format("{}: {}", how, finding->message);
  }
  return finding;
}

std::optional<Finding> check_new_shapes(Subject& subject) {
  std::vector<Problem> shapes = other_shapes(subject.test_case());
  std::erase_if(shapes, [&](const Problem& each) { return left_out(subject.testee, each); });
  if (!shapes.empty()) {
    auto finding = call_all(subject, shapes);
    if (!finding) finding = try_again(subject, "");
    if (finding) return blamed(std::move(finding), "DEV-4", "after other shapes");
  }
  auto steps = other_strides(subject.testee, subject.problem());
  if (steps.size() > 1) {
    steps.emplace_back(subject.problem(), "");
    subject.calling.executor.renew();
    for (const auto& [problem, of] : steps) {
      const Trial trial =
          try_out(subject.calling, problem, subject.prepared.inputs(), Placement::end_flush);
      auto finding = trial.stopped ? trial.stopped : check_whole(subject, trial, trial);
      if (!finding) finding = check_bounds(subject, trial, trial);
      if (finding) return blamed(std::move(finding), "DEV-4", "after other strides" + of);
    }
  }
  if (!shapes.empty() || steps.size() > 1) return std::nullopt;
  return Finding{.outcome = Outcome::unsupported,
                 .reason = "limits",
                 .message = "no other shape or stride can be made of it within the limits"};
}

}  // namespace

std::optional<Finding> check_device(Subject& subject) {
  const DeviceCheck& about = *find_device_check(subject.test_case().check);
  if (about.check == Check::new_shapes) return check_new_shapes(subject);
  return blamed(try_again(subject, about.feature), about.clause, about.feature);
}

}  // namespace attest
