// index.html: one page, readable offline, without script. From the top: the conclusion for whoever
// has a minute, then verdicts, profiles, failures, and the matrices for whoever has to find out
// why.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/declared.h"
#include "reports/digest.h"
#include "reports/groups.h"
#include "reports/html_matrices.h"
#include "reports/html_parts.h"
#include "reports/markup.h"
#include "reports/reports.h"
#include "reports/standing.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/json_text.h"
#include "spec/profile.h"

namespace attest {
namespace html {
namespace {

Markup facts(const Record& record, const Digest& d) {
  const Header& h = record.header;
  Markup filters = "all of the tier";
  if (!h.filters.empty()) {
    filters = Markup();
    for (const std::string& filter : h.filters) filters += code(filter) + Markup(" ");
  }
  return element(
      "dl", {{"class", "facts"}},
      fact("Suite", fmt::format("Attest {}, commit {}", h.suite_version, h.suite_commit)),
      fact("Run", fmt::format("tier {}, seed {}, shard {}", h.tier, h.seed, h.shard)),
      fact("Cases", filters),
      h.from.empty() ? Markup() : fact("Not the suite's own, but from", code(h.from)),
      h.shapes.empty() ? Markup() : fact("Shapes", list_text(h.shapes, "")),
      fact("Profiles asked for", list_text(h.profiles, "those declared")),
      fact("Isolation", h.isolation.empty() ? "not recorded" : h.isolation),
      fact("Digest of the verdicts", record.footer ? record.footer->digests.verdicts : "none"),
      fact("Wall time", record.footer ? duration_text(d.wall_s) : "unknown: the run did not end"));
}

Markup bar(const Counts& counts) {
  Markup pieces;
  const auto all = static_cast<double>(total(counts));
  for (const auto& [outcome, count] : counts) {
    pieces +=
        element("span", {{"class", tone(outcome)},
                         {"style", fmt::format("flex: {:.4f}", static_cast<double>(count) / all)},
                         {"title", fmt::format("{} {}", count, name(outcome))}});
  }
  return element("div", {{"class", "bar"}}, pieces);
}

Markup verdicts(const Digest& d) {
  if (d.testees.empty()) return quiet("No testee.");
  Markup head = title("Testee") + title("");
  for (const Outcome outcome : d.outcomes) head += number_title(name(outcome));
  head += number_title("Time");
  Markup rows;
  for (const TesteeDigest& testee : d.testees) {
    Markup row = id_cell(testee.about.name) + element("td", {}, bar(testee.counts));
    for (const Outcome outcome : d.outcomes) {
      const Index count = count_of(testee.counts, outcome);
      const bool shout = count > 0 && outcome != Outcome::pass;
      row += element("td", {{"class", fmt::format("number {}", shout ? tone(outcome) : "")}},
                     std::to_string(count));
    }
    rows += element("tr", {}, row, number(duration_text(testee.wall_s)));
  }
  return table(head, rows);
}

Markup profiles(const Digest& d) {
  if (d.profiles.empty()) return quiet("No profile was judged.");
  Markup head = title("Testee") + title("Profile");
  for (const std::string& dtype : d.dtypes) head += title(dtype);
  Markup rows;
  for (const TesteeDigest& testee : d.testees) {
    for (const std::string& name : judged_profiles(d, testee.about.name)) {
      const Profile* profile = find_profile(name);
      const std::string about = profile ? std::string(profile->about) : "";
      Markup row = id_cell(testee.about.name) + element("td", {{"title", about}}, name);
      for (const std::string& dtype : d.dtypes) {
        const ProfileRecord* p = find_profile_record(d, testee.about.name, name, dtype);
        if (!p) {
          row += element("td", {{"class", "mute"}}, "–");
          continue;
        }
        const Met met = is_met(*p);
        row += element(
            "td",
            {{"class", met == Met::plainly ? "good"
                       : met == Met::no    ? "bad"
                                           : "warn"},
             {"title",
              fmt::format("{} of {} demanded cases passed{}", p->passed, p->demanded,
                          p->left_out == 0 ? "" : fmt::format(", {} not asked", p->left_out))}},
            standing_text(*p));
      }
      rows += element("tr", {}, row);
    }
  }
  return quiet(
             "A profile is a named set of clauses. It is met in a format when every case that it "
             "demands was run and passed; with arithmetic beyond the default only if it was "
             "claimed, or "
             "asked for, with +declared behind its name.") +
         table(head, rows);
}

Markup evidence_table(const Digest& d, const std::map<TensorName, TensorEvidence>& tensors) {
  Markup rows;
  for (const TensorName tensor : d.tensors) {
    const auto at = tensors.find(tensor);
    if (at == tensors.end()) continue;
    const TensorEvidence& e = at->second;
    const bool within = e.max_ratio <= 1;
    rows += element(
        "tr", {}, id_cell(element_text(tensor, e)), number(number_text(e.actual)),
        number(number_text(e.exact)), number(number_text(e.bound)),
        element("td", {{"class", within ? "number" : "number bad"}}, ratio_text(e.max_ratio)),
        number(ratio_text(e.rms)),
        number(e.elements > e.compared ? fmt::format("{} of {}", e.compared, e.elements)
                                       : std::to_string(e.compared)));
  }
  return table(title("Worst element") + number_title("actual") + number_title("exact") +
                   number_title("bound") + number_title("ratio") + number_title("rms error") +
                   number_title("compared"),
               rows);
}

Markup clause_phrase(const std::string& id) {
  const Clause* clause = find_clause(id);
  return code(id) + Markup(clause ? fmt::format(" {}", clause->title) : "");
}

Markup failure_details(const Digest& d, std::size_t number) {
  const VerdictRecord& record = *d.failures[number];
  const Verdict& v = record.verdict;
  Markup summary =
      badge(v.outcome) + Markup(" ") + code(record.testee) + Markup(": ") + code(record.case_id);
  if (const std::string clause = headline_clause(v); !clause.empty()) {
    summary += Markup(v.outcome == Outcome::fail ? " breaks " : " on ") + element("b", {}, clause);
  }
  if (!v.message.empty()) summary += Markup(": ") + Markup(excerpt(v.message));
  if (known_of(d, record)) summary += Markup(" (known)");

  Markup list = fact("Testee", code(record.testee)) + fact("Format", record.dtype);
  if (!v.reason.empty()) list += fact("Reason", v.reason);
  if (const KnownFailure* known = known_of(d, record)) list += fact("Known", known_text(*known));
  for (const std::string& id : cited_clauses(v)) list += fact("Clause", clause_phrase(id));
  if (!record.problem.empty()) list += fact("Problem", record.problem);
  if (!record.because.empty()) list += fact("The case hunts", record.because);
  if (const auto at = d.diagnoses.find(&record); at != d.diagnoses.end()) {
    list += fact("Diagnosis", diagnosis_text(*at->second));
  }
  list += fact("Time", duration_text(v.wall_s));
  Markup body = element("dl", {{"class", "facts"}}, list);
  if (!v.tensors.empty()) body += evidence_table(d, v.tensors);
  if (!v.repro.empty()) {
    body += Markup("Repeat it with") +
            element("pre", {}, element("code", {{"class", "repro"}}, v.repro));
  }
  if (!v.captured.empty()) {
    body += Markup("What the testee printed") + element("pre", {}, excerpt(v.captured));
  }
  return element("details", {{"class", "failure"}, {"id", anchor(number)}},
                 element("summary", {}, summary), element("section", {}, body));
}

Markup failures(const Digest& d) {
  if (d.failures.empty()) return quiet("None.");
  Markup out;
  for (std::size_t i = 0; i < d.failures.size(); ++i) out += failure_details(d, i);
  return out;
}

// Verdicts of one outcome, under what was said with them and why.
Markup grouped_by_message(const TesteeDigest& testee, Outcome outcome) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const VerdictRecord* record : testee.verdicts) {
    if (record->verdict.outcome != outcome) continue;
    const Verdict& v = record->verdict;
    const bool said = !v.message.empty();
    const std::string reason = v.reason.empty() || !said ? v.reason : v.reason + ": ";
    groups[reason + excerpt(v.message)].push_back(record->case_id);
  }
  Markup out;
  for (const auto& [message, cases] : groups) {
    Markup items;
    for (const std::string& id : cases) items += element("li", {}, code(id));
    out +=
        element("details", {},
                element("summary", {}, badge(outcome), " ", code(testee.about.name), ": ",
                        message.empty() ? "no reason given" : message,
                        fmt::format(" ({})", count_text(static_cast<Index>(cases.size()), "case"))),
                element("ul", {}, items));
  }
  return out;
}

Markup refusals_and_warnings(const Digest& d) {
  Markup out;
  for (const Outcome outcome : {Outcome::warn, Outcome::unsupported}) {
    for (const TesteeDigest& testee : d.testees) out += grouped_by_message(testee, outcome);
  }
  return out.empty() ? quiet("None.") : out;
}

std::string largest_ratio(const Verdict& verdict) {
  std::string found;
  double largest = -1;
  for (const auto& [tensor, e] : verdict.tensors) {
    if (!worse(e.max_ratio, largest)) continue;
    largest = e.max_ratio;
    found = fmt::format("{} {}", name(tensor), ratio_text(e.max_ratio));
  }
  return found;
}

Markup all_verdicts(const Digest& d) {
  Markup out;
  for (const TesteeDigest& testee : d.testees) {
    std::map<std::string, std::vector<const VerdictRecord*>> topics;
    for (const VerdictRecord* record : testee.verdicts) {
      topics[record->case_id.substr(0, record->case_id.find('/'))].push_back(record);
    }
    for (const auto& [topic, records] : topics) {
      Counts counts;
      Markup rows;
      for (const VerdictRecord* record : records) {
        const Verdict& v = record->verdict;
        ++counts[v.outcome];
        rows += element("tr", {}, id_cell(record->case_id),
                        element("td", {{"class", tone(v.outcome)}}, std::string(name(v.outcome))),
                        number(largest_ratio(v)), number(duration_text(v.wall_s)));
      }
      out += element(
          "details", {},
          element("summary", {}, code(testee.about.name), " ", topic, ": ", counts_text(counts)),
          table(title("Case") + title("Outcome") + number_title("Largest ratio") +
                    number_title("Time"),
                rows));
    }
  }
  return out.empty() ? quiet("None.") : out;
}

Markup declared(const TesteeRecord& about) {
  Markup out;
  for (const auto& [what, words] : declared_facts(about)) out += fact(what, words);
  return out;
}

Markup testees(const Digest& d) {
  Markup out;
  for (const TesteeDigest& testee : d.testees) {
    const TesteeRecord& about = testee.about;
    const std::string arithmetic = json_text(about.arithmetic, 2);
    out += element("details", {},
                   element("summary", {}, code(about.name), " ", about.version, " ", about.vendor),
                   element("dl", {{"class", "facts"}},
                           fact("Profiles declared", list_text(about.profiles, "none")),
                           fact("Features", list_text(about.features, "none")), declared(about)),
                   "Arithmetic as declared", element("pre", {}, arithmetic));
  }
  return out.empty() ? quiet("None.") : out;
}

Markup outcome_meanings() {
  const auto entry = [](Outcome outcome, std::string_view meaning) {
    return element("dt", {}, badge(outcome)) + element("dd", {}, meaning);
  };
  return element(
      "details", {}, element("summary", {}, "What the outcomes mean"),
      element("dl", {{"class", "facts"}},
              entry(Outcome::pass, "every element lies within its proven bound"),
              entry(Outcome::warn, "only a recommended clause is missed: conformant still"),
              entry(Outcome::fail, "a required clause is broken"),
              entry(Outcome::unsupported,
                    "the case was not asked: the testee doesn't declare what it needs, or limits "
                    "it; or it declares a dialect for rows that see no key, or arithmetic beyond "
                    "the caps, and all else is right"),
              entry(Outcome::inconclusive, "nothing that was compared could have failed"),
              entry(Outcome::crash, "the testee's process died"),
              entry(Outcome::timeout, "the testee did not answer in time"),
              entry(Outcome::protocol_error,
                    "the testee's answer was malformed, late, doubled or "
                    "for another request"),
              entry(Outcome::harness_error, "Attest's own fault: no verdict on the testee"),
              entry(Outcome::not_run, "the run ended before this case")));
}

Markup navigation(const Digest& d) {
  const auto link = [](const char* id, const std::string& text) {
    return element("a", {{"href", fmt::format("#{}", id)}}, text) + Markup("\n");
  };
  return element("nav", {}, link("verdicts", "Verdicts"), link("profiles", "Profiles"),
                 link("failures", fmt::format("Failures ({})", d.failures.size())),
                 link("clauses", "Clauses"), link("ratios", "Worst ratios"),
                 link("slopes", "Gradients"), link("refusals", "Warnings and refusals"),
                 link("all", "All verdicts"), link("testees", "Testees"));
}

Markup body(const Record& record) {
  const Digest d = digest(record);
  Markup notes;
  for (const std::string& note : d.notes) notes += element("p", {}, note);
  return element("body", {}, element("h1", {}, "Attest report"),
                 element("p", {{"class", fmt::format("conclusion {}", tone(d))}}, d.sentence),
                 notes, facts(record, d), navigation(d),
                 section("verdicts", "Verdicts", verdicts(d) + outcome_meanings()),
                 section("profiles", "Profiles", profiles(d)),
                 section("failures", fmt::format("Failures ({})", d.failures.size()), failures(d)),
                 section("clauses", "Clauses", clause_matrix(d)),
                 section("ratios", "Worst ratios", worst_ratios(d)),
                 section("slopes", "Gradients against finite differences", slopes(d)),
                 section("refusals", "Warnings and refusals", refusals_and_warnings(d)),
                 section("all", "All verdicts", all_verdicts(d)),
                 section("testees", "Testees", testees(d)));
}

}  // namespace
}  // namespace html

std::string to_html(const Record& record) {
  return html::page("Attest report", html::body(record));
}

}  // namespace attest
