// index.html: one page, readable offline. From the top: the conclusion for whoever has a minute,
// then verdicts, profiles, clauses, failures, and pictures for whoever has to find out why. What is
// counted and what failed stands in the page, and is there without script; all verdicts lie in it
// compressed, and the scripts of page/ show them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/declared.h"
#include "reports/digest.h"
#include "reports/groups.h"
#include "reports/html_failures.h"
#include "reports/html_matrices.h"
#include "reports/html_parts.h"
#include "reports/markup.h"
#include "reports/page/columns.h"
#include "reports/page/files.h"
#include "reports/page/packed.h"
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

// How many verdicts of each outcome, each leading to them.
Markup tiles(const Digest& d) {
  Markup list;
  for (const auto& [outcome, count] : d.counts) {
    const std::string words(name(outcome));
    list += element("li", {},
                    element("a",
                            {{"href", cases_link({{"outcome", words}})},
                             {"class", fmt::format("tile {}", tone(outcome))}},
                            element("b", {}, std::to_string(count)), " ", words));
  }
  return list.empty() ? Markup() : element("ul", {{"class", "tiles"}}, list);
}

Markup verdicts(const Digest& d) {
  if (d.testees.empty()) return quiet("No testee.");
  Markup head = title("Testee") + title("Share");
  for (const Outcome outcome : d.outcomes) head += number_title(name(outcome));
  head += number_title("Time");
  Markup rows;
  for (const TesteeDigest& testee : d.testees) {
    Markup row = id_cell(testee.about.name) + element("td", {}, bar(testee.counts));
    for (const Outcome outcome : d.outcomes) {
      const Index count = count_of(testee.counts, outcome);
      const bool shout = count > 0 && outcome != Outcome::pass;
      row += element(
          "td", {{"class", fmt::format("number {}", shout ? tone(outcome) : "")}},
          count == 0 ? Markup("0")
                     : cases_anchor(
                           {{"testee", testee.about.name}, {"outcome", std::string(name(outcome))}},
                           fmt::format("{}: {} {}", testee.about.name, count, name(outcome)),
                           std::to_string(count)));
    }
    rows += element("tr", {}, row, number(duration_text(testee.wall_s)));
  }
  return table("Verdicts of each testee", head, rows);
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
         table("Profiles", head, rows);
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
                   "Arithmetic as declared", block(arithmetic));
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
  return element(
      "nav", {{"aria-label", "Sections"}}, link("top", "Top"), link("verdicts", "Verdicts"),
      link("profiles", "Profiles"), link("clauses", "Clauses"),
      link("failures", fmt::format("Failures ({})", d.failures.size())), link("cases", "Cases"),
      link("ratios", "Ratios"), link("growth", "Growth"), link("slopes", "Gradients"),
      link("schedules", "Schedules"), link("refusals", "Refusals"), link("testees", "Testees"));
}

Markup top(const Record& record, const Digest& d) {
  Markup notes;
  for (const std::string& note : d.notes) notes += element("p", {}, note);
  return element(
      "header", {{"id", "top"}}, element("h1", {}, "Attest report"),
      element("p", {{"class", fmt::format("conclusion {}", tone(d))}}, d.sentence), tiles(d), notes,
      element("details", {}, element("summary", {}, "About this run"), facts(record, d)));
}

// What a script fills; until then, and where none runs, it says so.
Markup filled_by_script(const char* id, std::string_view what) {
  return element("div", {{"id", id}, {"class", "filled"}}, quiet(what));
}

Markup pictures(const char* id) {
  return filled_by_script(id, "Drawn by the script of this page.");
}

Markup licence() {
  if (page::chart_library().text.empty()) return quiet("Made without a chart library.");
  return element("details", {}, element("summary", {}, "The licence of Chart.js, which draws"),
                 block(page::chart_licence().text));
}

Markup sections(const Record& record, const Digest& d, const page::Columns& columns,
                const std::vector<FailureGroup>& groups) {
  return section("verdicts", "Verdicts", verdicts(d) + outcome_meanings()) +
         section("profiles", "Profiles", profiles(d)) +
         section("clauses", "Clauses", clause_matrix(d)) +
         section("failures", fmt::format("Failures ({})", d.failures.size()),
                 failures(d, groups, columns)) +
         section("cases", "Cases",
                 filled_by_script(
                     "browser", fmt::format("{} are listed here by the script of this "
                                            "page; results.jsonl has them too.",
                                            count_text(std::ssize(record.verdicts), "verdict")))) +
         section("ratios", "Error over bound", worst_ratios(d) + pictures("distributions")) +
         section("growth", "Error over length", pictures("growths")) +
         section("slopes", "Gradients against finite differences",
                 slopes(d) + pictures("differences")) +
         section("schedules", "Schedules", pictures("workers")) +
         section("refusals", "Warnings and refusals", refusals_and_warnings(d, columns)) +
         section("testees", "Testees", testees(d));
}

// The verdicts are no element of their own; no script of the page runs before it is there.
Markup body(const Record& record, const Markup& scripts) {
  const Digest d = digest(record);
  const std::vector<FailureGroup> groups = failure_groups(d);
  const page::Columns columns(record, d, groups);
  return element("body", {}, navigation(d),
                 element("main", {}, top(record, d), sections(record, d, columns, groups)),
                 element("footer", {}, licence()),
                 element("script", {{"type", "application/base64"}, {"id", "data"}},
                         page::packed(columns.text())),
                 scripts);
}

}  // namespace
}  // namespace html

std::string to_html(const Record& record) {
  const page::Scripts scripts = page::all_scripts();
  return html::page("Attest report", html::body(record, scripts.elements), scripts);
}

}  // namespace attest
