#include "harness/run/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "cases/fit.h"
#include "cases/shapes.h"
#include "harness/run/conclude.h"
#include "harness/run/seal.h"
#include "harness/run/selection.h"
#include "harness/run/sha256.h"
#include "spec/json_reader.h"
#include "spec/profile.h"
#include "spec/read_file.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

bool is_search(const Header& header) { return header.tier == kSearchTier; }

// "3 verdicts are doubled: a, b, c"; the first few by name.
std::string listed(const std::string& what, const std::vector<std::string>& which) {
  constexpr std::size_t kNamed = 3;
  const std::size_t named = std::min(kNamed, which.size());
  return fmt::format("{}: {}{}", what,
                     fmt::join(which.begin(), which.begin() + std::ptrdiff_t(named), ", "),
                     which.size() > named ? fmt::format(" and {} more", which.size() - named) : "");
}

std::string pair_text(const VerdictRecord& v) {
  return fmt::format("{} of {}", v.case_id, v.testee);
}

void look_for_doubles(Record& record) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  std::vector<std::string> doubled;
  for (const VerdictRecord& v : record.verdicts) {
    if (!seen.emplace(v.testee, v.case_id).second) doubled.push_back(pair_text(v));
  }
  if (!doubled.empty()) record.defects.push_back(listed("verdicts are doubled", doubled));
}

void look_for_strangers(Record& record) {
  std::set<std::string> known, strangers;
  for (const TesteeRecord& t : record.header.testees) {
    if (!known.insert(t.name).second) {
      record.defects.push_back(fmt::format("the testee {} stands twice in the header", t.name));
    }
  }
  for (const VerdictRecord& v : record.verdicts) {
    if (!known.contains(v.testee)) strangers.insert(v.testee);
  }
  if (!strangers.empty()) {
    record.defects.push_back(listed("verdicts are of testees that the header does not have",
                                    {strangers.begin(), strangers.end()}));
  }
}

// A run that ended has one verdict on each case with each testee.
void look_for_cases(Record& record, const Expectation& expected) {
  const bool ended = record.footer && record.footer->complete;
  std::map<std::string_view, std::set<std::string_view>> had;  // by testee
  std::set<std::pair<std::string_view, std::string_view>> seen;
  std::map<std::string_view, Index> besides;  // more forms of cases
  for (const TesteeRecord& t : record.header.testees) had[t.name];
  for (const VerdictRecord& v : record.verdicts) {
    if (is_on_declaration(v) || !seen.emplace(v.testee, v.case_id).second) continue;
    const bool is_first = had[v.testee].insert(base_id(v.case_id)).second;  // fitted or not
    besides[v.testee] += !is_first;
  }
  for (const TesteeRecord& t : record.header.testees) {
    if (ended ? besides[t.name] == t.besides : besides[t.name] <= t.besides) continue;
    record.defects.push_back(
        fmt::format("{} has verdicts on {} forms beside its cases, of {} that it was asked", t.name,
                    besides[t.name], t.besides));
  }
  if (!expected.ids) {
    record.unverified.push_back(
        fmt::format("which cases the run should have: {}", expected.why_not));
    for (const auto& [testee, ids] : had) {
      if (!ended || static_cast<Index>(ids.size()) == record.header.cases.selected) continue;
      record.defects.push_back(fmt::format("{} has verdicts on {} cases, of {} that were selected",
                                           testee, ids.size(), record.header.cases.selected));
    }
    return;
  }
  const std::set<std::string_view> wanted(expected.ids->begin(), expected.ids->end());
  std::vector<std::string> unknown, missing;
  for (const auto& [testee, ids] : had) {
    for (const std::string_view id : ids) {
      if (!wanted.contains(id)) unknown.push_back(fmt::format("{} of {}", id, testee));
    }
    for (const std::string_view id : wanted) {
      if (ended && !ids.contains(id)) missing.push_back(fmt::format("{} of {}", id, testee));
    }
  }
  if (!unknown.empty()) {
    record.defects.push_back(listed("verdicts are on cases that the run did not have", unknown));
  }
  if (!missing.empty()) record.defects.push_back(listed("verdicts are missing", missing));
}

Footer concluded_again(const Record& record) {
  if (!is_search(record.header)) return conclude(record.header, record.verdicts);
  std::map<std::string, Index> tried;
  for (const SearchRecord& search : record.searches) {
    for (const auto& [outcome, count] : search.tried) tried[outcome] += count;
  }
  return conclude_search(tried, record.verdicts);
}

// What a run checks before it begins.
void check_profiles(const Header& header) {
  const auto check = [](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!find_profile(name)) throw InputError("", fmt::format("there is no profile {}", name));
    }
  };
  if (header.profiles != std::vector<std::string>{kNoProfile}) check(header.profiles);
  for (const TesteeRecord& t : header.testees) check(t.profiles);
}

void conclude_again(Record& record) {
  const Footer& said = *record.footer;
  Footer again;
  try {
    check_profiles(record.header);
    again = concluded_again(record);
  } catch (const InputError& error) {
    record.defects.push_back(
        fmt::format("nothing can be concluded from its header: {}", error.what()));
    return;
  }
  note_changes(again, said.changed);
  const auto differ = [&](const std::string& what, const auto& here, const auto& there) {
    if (here == there) return;
    record.defects.push_back(
        fmt::format("its footer says {} \"{}\", its verdicts say \"{}\"", what, here, there));
  };
  if (said.complete || said.conclusion != "incomplete") {
    differ("the conclusion", said.conclusion, again.conclusion);
    differ("the exit code", said.exit_code, again.exit_code);
  }
  differ("the cases passed", said.judged, again.judged);
  differ("the known failures", said.known, again.known);
  if (said.known_amiss != again.known_amiss) {
    record.defects.push_back("its footer says other things of known failures than its verdicts do");
  }
  std::erase_if(again.counts, [](const auto& each) { return each.second == 0; });
  if (said.counts != again.counts || said.tried != again.tried) {
    record.defects.push_back("its footer counts other outcomes than its verdicts have");
  }
  // The other keys of their lines are those of a conclusion, compared above.
  const auto profiles_of = [](const Footer& footer) {
    return to_line(Footer{.counts = {}, .profiles = footer.profiles});
  };
  if (profiles_of(said) != profiles_of(again)) {
    record.defects.push_back("its footer has other standings of profiles than its verdicts give");
  }
}

// Of the cases that there are, those that a header selects.
Expectation selected(const std::vector<Case>& all, const Header& header) {
  Expectation expected{.ids = std::vector<std::string>()};
  for (const Case& c : select(all, {.tier = tier_named(header.tier),
                                   .filters = header.filters,
                                   .seed = header.seed,
                                   .shard = header.shard})) {
    expected.ids->push_back(c.id);
  }
  return expected;
}

Expectation expected_shapes(const Header& header, const Suite& suite) {
  try {
    const auto files = files_of_shapes(header.shapes, suite.cases);
    if (sha256_of_files(files) == header.cases.digest) {
      return selected(cases_of(load_shapes(header.shapes, suite.cases, header.seed)), header);
    }
  } catch (const InputError& error) {
    return {.ids = {}, .why_not = error.what()};
  }
  return {.ids = {}, .why_not = "the shapes are not those of the run"};
}

}  // namespace

bool is_on_declaration(const VerdictRecord& verdict) {
  return verdict.case_id.starts_with("declaration/");
}

Expectation expected_cases(const Header& header, const Suite& suite) {
  if (!header.shapes.empty()) return expected_shapes(header, suite);
  const fs::path root = header.from.empty() ? suite.cases : fs::path(header.from);
  if (!fs::exists(root)) {
    return {.ids = {}, .why_not = fmt::format("there is no {} here", root.string())};
  }
  if (sha256_of_cases(root) != header.cases.digest) {
    return {.ids = {},
            .why_not = fmt::format("the case files in {} are not those of the run", root.string())};
  }
  return selected(load_cases(root, header.seed), header);
}

void note_defects(Record& record) {
  if (!record.footer) return;
  const std::vector<std::string>& changed = record.footer->changed;
  record.defects.insert(record.defects.end(), changed.begin(), changed.end());
}

void audit(Record& record, const Digests& digests, const Expectation& expected) {
  look_for_doubles(record);
  look_for_strangers(record);
  if (!is_search(record.header)) look_for_cases(record, expected);
  if (!record.footer) return;  // it is truncated, which is said elsewhere
  conclude_again(record);
  note_defects(record);
  if (record.footer->digests.verdicts != digests.verdicts) {
    record.defects.push_back("its verdicts are not those that its digest was made of");
  } else if (record.footer->digests != digests) {
    record.defects.push_back(
        "something was changed in it since it was written: its digest differs");
  }
}

Record read_and_audit(const fs::path& file, const Suite& suite) {
  check_is_file(file);
  std::ifstream in(file, std::ios::binary);
  Seal seal;
  Record record;
  try {
    record = read_record(
        in, [&](std::string_view line, const nlohmann::json& json) { seal.add(line, json); });
  } catch (const InputError& error) {
    throw InputError("", fmt::format("{}: {}", file.string(), error.what()));
  }
  Expectation expected;
  if (!is_search(record.header)) {
    try {
      expected = expected_cases(record.header, suite);
    } catch (const InputError& error) {
      record.defects.push_back(fmt::format("its header selects no cases: {}", error.what()));
      return record;
    }
  }
  const Header& header = record.header;
  if (header.cases.bundled && header.from.empty() && header.suite_version == suite.version &&
      header.suite_commit == suite.commit && header.cases.digest != suite.bundled) {
    record.defects.push_back("its header calls cases the suite's own that are not");
  }
  audit(record, seal.digests(), expected);
  return record;
}

}  // namespace attest
