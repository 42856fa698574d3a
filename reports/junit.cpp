// junit.xml: a suite a testee, a test case a case, for the pages that build servers make of it.
//
// What is unsupported is skipped; what could not be judged (crash, timeout, protocol and harness
// errors, not run) is an error; FAIL and INCONCLUSIVE are failures. A run that is not conformant is
// never green: where no test case says so, one is added that does.
#include <fmt/format.h>

#include "reports/digest.h"
#include "reports/markup.h"
#include "reports/reports.h"
#include "reports/text.h"

namespace attest {
namespace {

enum class Kind { passed, skipped, failure, error };

Kind kind_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
    case Outcome::warn:
      return Kind::passed;
    case Outcome::unsupported:
      return Kind::skipped;
    case Outcome::fail:
    case Outcome::inconclusive:
      return Kind::failure;
    default:
      return Kind::error;
  }
}

// A failure that was known is skipped, whatever it is.
Index count_kind(const Counts& counts, const Counts& known, Kind kind) {
  Index sum = kind == Kind::skipped ? total(known) : 0;
  for (const auto& [outcome, count] : counts) {
    if (kind_of(outcome) == kind) sum += count - count_of(known, outcome);
  }
  return sum;
}

std::string seconds(double value) { return fmt::format("{:.6f}", value); }

std::string headline(const Verdict& verdict) {
  std::string text(name(verdict.outcome));
  if (!verdict.reason.empty()) text += fmt::format(" ({})", verdict.reason);
  if (!verdict.message.empty()) text += ": " + excerpt(verdict.message);
  return text;
}

std::string explanation(const VerdictRecord& record) {
  const Verdict& verdict = record.verdict;
  std::string text = headline(verdict) + "\n";
  if (!verdict.clauses.empty()) {
    text += fmt::format("clauses: {}\n", list_text(cited_clauses(verdict), ""));
  }
  if (!record.because.empty()) text += fmt::format("the case hunts: {}\n", record.because);
  for (const auto& [tensor, evidence] : verdict.tensors) {
    text += evidence_text(tensor, evidence) + "\n";
  }
  if (!verdict.repro.empty()) text += fmt::format("repeat with: {}\n", verdict.repro);
  return text;
}

// "naive.mask" for mask/causal/...: pages of build servers fold by it.
std::string class_name(const VerdictRecord& record) {
  return fmt::format("{}.{}", record.testee, record.case_id.substr(0, record.case_id.find('/')));
}

Markup test_case(const Digest& d, const VerdictRecord& record) {
  const Verdict& verdict = record.verdict;
  const KnownFailure* const known = known_of(d, record);
  Markup content;
  switch (known ? Kind::skipped : kind_of(verdict.outcome)) {
    case Kind::passed:
      if (verdict.outcome == Outcome::warn) {
        content = element("system-out", {}, explanation(record));
      }
      break;
    case Kind::skipped:
      content =
          element("skipped", {{"message", known ? known_text(*known) : excerpt(verdict.message)}});
      break;
    case Kind::failure:
      content = element("failure", {{"message", headline(verdict)}, {"type", verdict.reason}},
                        explanation(record));
      break;
    case Kind::error:
      content = element(
          "error", {{"message", headline(verdict)}, {"type", std::string(name(verdict.outcome))}},
          explanation(record));
      break;
  }
  if (!verdict.captured.empty()) {
    content += element("system-err", {}, excerpt(verdict.captured));
  }
  return element("testcase",
                 {{"classname", class_name(record)},
                  {"name", record.case_id},
                  {"time", seconds(verdict.wall_s)}},
                 content);
}

Markup property(std::string_view name, const std::string& value) {
  return element("property", {{"name", std::string(name)}, {"value", value}});
}

Markup suite(const Digest& d, const TesteeDigest& testee, const Header& header) {
  Markup content = element(
      "properties", {}, property("suite_version", header.suite_version),
      property("testee_version", testee.about.version), property("vendor", testee.about.vendor),
      property("tier", header.tier), property("seed", std::to_string(header.seed)),
      property("shard", header.shard), property("filters", list_text(header.filters, "")),
      property("from", header.from), property("isolation", header.isolation),
      property("uncontained", list_text(header.uncontained, "")),
      property("conclusion", d.sentence));
  for (const VerdictRecord* record : testee.verdicts) content += test_case(d, *record);
  return element(
      "testsuite",
      {{"name", testee.about.name},
       {"tests", std::to_string(total(testee.counts))},
       {"failures", std::to_string(count_kind(testee.counts, testee.known, Kind::failure))},
       {"errors", std::to_string(count_kind(testee.counts, testee.known, Kind::error))},
       {"skipped", std::to_string(count_kind(testee.counts, testee.known, Kind::skipped))},
       {"time", seconds(testee.wall_s)}},
      content);
}

Markup suite_of_conclusion(const Digest& digest) {
  return element(
      "testsuite",
      {{"name", "attest"}, {"tests", "1"}, {"failures", "0"}, {"errors", "1"}, {"skipped", "0"}},
      element("testcase", {{"classname", "attest"}, {"name", "conclusion"}},
              element("error",
                      {{"message", digest.sentence}, {"type", std::string(name(digest.state))}},
                      digest.sentence)));
}

}  // namespace

std::string to_junit_xml(const Record& record) {
  const Digest d = digest(record);
  Markup suites;
  for (const TesteeDigest& testee : d.testees) suites += suite(d, testee, record.header);
  const bool red = failures_in(d.counts) > total(d.known);
  const bool silent = d.conclusion != "conformant" && d.conclusion != kNoFailure && !red;
  const Index added = d.state != State::complete || silent ? 1 : 0;
  if (added == 1) suites += suite_of_conclusion(d);
  const Markup root =
      element("testsuites",
              {{"name", "attest"},
               {"tests", std::to_string(total(d.counts) + added)},
               {"failures", std::to_string(count_kind(d.counts, d.known, Kind::failure))},
               {"errors", std::to_string(count_kind(d.counts, d.known, Kind::error) + added)},
               {"skipped", std::to_string(count_kind(d.counts, d.known, Kind::skipped))},
               {"time", seconds(d.wall_s)}},
              suites);
  return (Markup::raw("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") + root).str();
}

}  // namespace attest
