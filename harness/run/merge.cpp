#include "harness/run/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/fit.h"
#include "harness/run/audit.h"
#include "harness/run/conclude.h"
#include "harness/run/seal.h"
#include "harness/run/selection.h"
#include "spec/dtype.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

void check(bool holds, const std::string& why) {
  if (!holds) throw InputError("", why);
}

// Whether it is on one more form of the case that the one before it is on, by the same testee.
bool is_besides(const VerdictRecord* before, const VerdictRecord& v) {
  return before && before->testee == v.testee && base_id(before->case_id) == base_id(v.case_id);
}

void check_whole(const Part& part) {
  const Record& record = part.record;
  check(record.header.tier != kSearchTier,
        fmt::format("{} is of a random search, which has no shards", part.name));
  check(record.footer && record.footer->complete, fmt::format("{} is truncated", part.name));
  check(record.defects.empty(),
        fmt::format("{} is inconsistent: {}", part.name, fmt::join(record.defects, "; ")));
  Index on_cases = 0;
  const VerdictRecord* before = nullptr;
  for (const VerdictRecord& v : record.verdicts) {
    on_cases += !is_on_declaration(v) && !is_besides(before, v);
    before = &v;
  }
  const Index testees = std::ssize(record.header.testees);
  check(
      testees > 0 && on_cases % testees == 0 && on_cases / testees == record.header.cases.selected,
      fmt::format("{} is inconsistent: {} verdicts on {} cases by {} testees", part.name, on_cases,
                  record.header.cases.selected, testees));
}

// What the shards of a run have in common.
nlohmann::json without_shard(const Header& header) {
  nlohmann::json json = parse_json(to_line(header));
  json.erase("shard");
  json["cases"].erase("selected");
  for (auto& testee : json["testees"]) testee.erase("besides");
  return json;
}

void check_alike(const Part& one, const Part& other) {
  const nlohmann::json here = without_shard(one.record.header);
  const nlohmann::json there = without_shard(other.record.header);
  nlohmann::json keys = here;
  keys.update(there);
  const auto text = [](const nlohmann::json& json) {
    return json.is_structured() ? "" : fmt::format(" ({})", json.dump());
  };
  for (const auto& [key, either] : keys.items()) {
    const auto mine = here.value(key, nlohmann::json()), also = there.value(key, nlohmann::json());
    check(mine == also, fmt::format("{} and {} are of different runs: their headers differ in "
                                    "\"{}\"{}{}",
                                    one.name, other.name, key, text(mine), text(also)));
  }
}

// The shards of the parts, each as one of the whole that they are to make.
std::vector<std::string> shards_of(const std::string& whole, const std::vector<Part>& parts) {
  const Shard made = shard_named(whole);
  const std::size_t all = shard_named(parts.front().record.header.shard).count;
  check(all % made.count == 0, fmt::format("{} shards make no shard {}", all, whole));
  std::vector<std::string> shards;
  std::map<std::size_t, const Part*> found;
  for (const Part& part : parts) {
    const auto [i, n] = shard_named(part.record.header.shard);
    check(n == all,
          fmt::format("{} is of {} shards, and {} of {}", part.name, n, parts.front().name, all));
    check(i % made.count == made.index % made.count,
          fmt::format("{}, shard {}, is no part of shard {}", part.name, part.record.header.shard,
                      whole));
    const auto [place, is_new] = found.emplace(i, &part);
    check(is_new, fmt::format("{} and {} are the same shard, {}", place->second->name, part.name,
                              part.record.header.shard));
    shards.push_back(fmt::format("{}/{}", (i - made.index) / made.count + 1, all / made.count));
  }
  constexpr std::size_t kNamed = 8;
  const std::size_t missing = all / made.count - found.size();
  std::vector<std::size_t> named;
  for (std::size_t i = made.index; named.size() < std::min(missing, kNamed); i += made.count) {
    if (!found.contains(i)) named.push_back(i);
  }
  check(missing == 0,
        fmt::format("of {} shards there is no {}{}", all, fmt::join(named, ", "),
                    missing > kNamed ? fmt::format(" and {} more", missing - kNamed) : ""));
  return shards;
}

// Of each testee and format one verdict on what is declared: of the shard that has the first case
// of that format. Others are put in the order of the cases, each of which has one with each testee,
// or several in a row, of the forms that it is asked in.
class Verdicts {
 public:
  explicit Verdicts(const Header& whole) : cases_(static_cast<std::size_t>(whole.cases.selected)) {
    for (const TesteeRecord& testee : whole.testees) testees_.push_back(testee.name);
  }

  void add(const Record& record, const std::string& shard) {
    const auto places = shard_places(cases_.size(), shard);
    std::vector<const VerdictRecord*> declared;
    std::map<std::string, std::size_t> first;  // by format, the place of its first case
    std::size_t n = 0;
    const VerdictRecord* before = nullptr;
    for (const VerdictRecord& v : record.verdicts) {
      if (is_on_declaration(v)) {
        declared.push_back(&v);
        continue;
      }
      n += !is_besides(before, v);
      before = &v;
      const std::size_t place = places.at((n - 1) / testees_.size());
      first.emplace(v.dtype, place);
      cases_[place].push_back(&v);
    }
    for (const VerdictRecord* v : declared) {
      const auto testee = std::find(testees_.begin(), testees_.end(), v->testee);
      const auto [at, is_new] =
          declared_.emplace(std::pair(testee - testees_.begin(), dtype_named(v->dtype)),
                            std::pair(first[v->dtype], v));
      if (!is_new) at->second = std::min(at->second, std::pair(first[v->dtype], v));
    }
  }

  std::vector<VerdictRecord> in_order() const {
    std::vector<VerdictRecord> all;
    for (const auto& [of, verdict] : declared_) all.push_back(*verdict.second);
    for (const auto& of_case : cases_) {
      for (const VerdictRecord* v : of_case) all.push_back(*v);
    }
    return all;
  }

 private:
  std::vector<std::string> testees_;
  std::vector<std::vector<const VerdictRecord*>> cases_;
  std::map<std::pair<std::ptrdiff_t, std::optional<DType>>,
           std::pair<std::size_t, const VerdictRecord*>>
      declared_;
};

}  // namespace

Record merged(const std::vector<Part>& parts, const std::string& shard) {
  check(!parts.empty(), "there is no record to merge");
  for (const Part& part : parts) {
    check_whole(part);
    check_alike(parts.front(), part);
  }
  const std::vector<std::string> shards = shards_of(shard, parts);
  Record whole{.header = parts.front().record.header, .verdicts = {}, .footer = {}};
  whole.header.shard = shard;
  Index& all = whole.header.cases.selected = 0;
  for (const Part& part : parts) all += part.record.header.cases.selected;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Index selected = parts[i].record.header.cases.selected;
    const Index due = std::ssize(shard_places(static_cast<std::size_t>(all), shards[i]));
    check(selected == due, fmt::format("{} has {} cases; as shard {} of {} cases it has {}",
                                       parts[i].name, selected, shards[i], all, due));
  }
  Verdicts verdicts(whole.header);
  std::set<std::string> changed;
  double seconds = 0;
  std::map<std::string, double> stages;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const Record& part = parts[n].record;
    verdicts.add(part, shards[n]);
    const Footer& footer = *part.footer;
    for (std::size_t i = 0; n > 0 && i < whole.header.testees.size(); ++i) {
      whole.header.testees[i].besides += part.header.testees[i].besides;
    }
    changed.insert(footer.changed.begin(), footer.changed.end());
    seconds += footer.wall_s;
    for (const auto& [stage, time] : footer.stages) stages[stage] += time;
  }
  whole.verdicts = verdicts.in_order();
  whole.footer = conclude(whole.header, whole.verdicts);
  note_changes(*whole.footer, {changed.begin(), changed.end()});
  whole.footer->wall_s = seconds;
  whole.footer->stages = stages;
  seal(whole);
  return whole;
}

}  // namespace attest
