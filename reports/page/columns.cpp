#include "reports/page/columns.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "reports/page/code.h"
#include "reports/page/evidence.h"
#include "reports/page/growth.h"
#include "reports/text.h"
#include "spec/clause.h"
#include "spec/json_text.h"

namespace attest::page {
namespace {

using nlohmann::json;

constexpr std::size_t kMostWords = 4000;     // different sayings
constexpr std::size_t kMostBytes = 150;      // of each, at either end
constexpr std::size_t kMostEvidence = 1500;  // failures with their evidence
constexpr std::size_t kMostSchedules = 600;  // verdicts with theirs

// A command with the case left out, which \x01 stands for: so that most of a testee are the same.
std::string without_case(std::string repro, const std::string& case_id) {
  const std::size_t at = case_id.empty() ? repro.npos : repro.find(case_id);
  return at == repro.npos ? repro : repro.replace(at, case_id.size(), "\x01");
}

}  // namespace

// Words, each once, by number.
class Columns::Words {
 public:
  int number_of(const std::string& word) {
    const auto [at, is_new] = numbers_.try_emplace(word, static_cast<int>(list_.size()));
    if (is_new) list_.push_back(word);
    return at->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> list_;
};

// Lists of numbers, each once.
class Columns::Lists {
 public:
  int number_of(const std::vector<int>& list) {
    const auto [at, is_new] = numbers_.try_emplace(list, static_cast<int>(lists_.size()));
    if (is_new) lists_.push_back(list);
    return at->second;
  }
  const std::vector<std::vector<int>>& lists() const { return lists_; }

 private:
  std::map<std::vector<int>, int> numbers_;
  std::vector<std::vector<int>> lists_;
};

class Columns::Maker {
 public:
  Maker(const Record& record, const Digest& digest, const std::vector<FailureGroup>& groups)
      : record_(record), digest_(digest), groups_(groups) {
    for (const TesteeDigest& testee : digest.testees) testees_.number_of(testee.about.name);
    sort_verdicts();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const VerdictRecord* failure : groups[g].failures) {
        group_of_[failure] = static_cast<int>(g) + 1;
      }
    }
    words_.number_of("");
    for (const VerdictRecord* each : order_) add(*each);
  }

  std::size_t place_of(const VerdictRecord& verdict) const { return places_.at(&verdict); }
  std::size_t said_of(const Verdict& verdict) const { return said_.at(saying(verdict)); }

  json as_json() const {
    json clauses = json::array();
    for (const std::string& id : clauses_.list()) {
      const Clause* clause = find_clause(id);
      clauses.push_back({one_line(id), clause ? std::string(clause->title) : ""});
    }
    json tensors = json::array();
    for (int i = 0; i <= static_cast<int>(TensorName::sum); ++i) {
      tensors.push_back(std::string(name(static_cast<TensorName>(i))));
    }
    json outcomes = json::array();
    for (int i = 0; i <= static_cast<int>(Outcome::not_run); ++i) {
      outcomes.push_back(std::string(name(static_cast<Outcome>(i))));
    }
    return {{"testees", shown(testees_)},
            {"dtypes", shown(dtypes_)},
            {"outcomes", outcomes},
            {"tensors", tensors},
            {"clauses", clauses},
            {"clause_lists", clause_lists_.lists()},
            {"tensor_lists", tensor_lists_.lists()},
            {"because", shown(because_)},
            {"said", shown(words_)},
            {"repro", shown(repro_)},
            {"cases", cases_},
            {"verdicts", columns_},
            {"evidence", evidence()},
            {"slopes", slopes()},
            {"growth", growth(record_, digest_)}};
  }

 private:
  void sort_verdicts() {
    std::map<std::string, int> numbers;
    for (const std::string& name : testees_.list()) numbers[name] = testees_.number_of(name);
    for (const VerdictRecord& verdict : record_.verdicts) order_.push_back(&verdict);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](const VerdictRecord* a, const VerdictRecord* b) {
                       if (const int order = a->case_id.compare(b->case_id)) return order < 0;
                       return numbers[a->testee] < numbers[b->testee];
                     });
    for (std::size_t i = 0; i < order_.size(); ++i) places_[order_[i]] = i;
  }

  static std::string saying(const Verdict& v) {
    const std::string reason = v.reason.empty() || v.message.empty() ? v.reason : v.reason + ": ";
    return one_line(excerpt(reason + v.message, kMostBytes));
  }

  // The reason alone, where too much was said already.
  int said(const Verdict& v) {
    const std::string all = saying(v);
    const bool fits = words_.list().size() < kMostWords || said_.contains(all);
    const int number = words_.number_of(fits ? all : one_line(excerpt(v.reason, kMostBytes)));
    said_[all] = static_cast<std::size_t>(number);
    return number;
  }

  void begin_case(const VerdictRecord& first) {
    cases_["id"].push_back(one_line(first.case_id));
    cases_["dtype"].push_back(dtypes_.number_of(first.dtype));
    cases_["because"].push_back(because_.number_of(first.because));
    cases_["verdicts"].push_back(0);
  }

  void add(const VerdictRecord& record) {
    const Verdict& v = record.verdict;
    if (!last_ || last_->case_id != record.case_id) begin_case(record);
    last_ = &record;
    json& count = cases_["verdicts"].back();
    count = count.get<int>() + 1;
    std::vector<int> clauses, tensors, ratios;
    for (const std::string& id : cited_clauses(v)) clauses.push_back(clauses_.number_of(id));
    for (const auto& [tensor, e] : v.tensors) {
      if (e.compared == 0 && e.max_ratio == 0) continue;  // an empty tensor
      tensors.push_back(static_cast<int>(tensor));
      columns_["ratio"].push_back(code_of(e.max_ratio));
    }
    const auto put = [&](const char* column, int value) { columns_[column].push_back(value); };
    put("testee", testees_.number_of(record.testee));
    put("outcome", static_cast<int>(v.outcome));
    put("said", said(v));
    put("clauses", clause_lists_.number_of(clauses));
    put("tensors", tensor_lists_.number_of(tensors));
    put("time", code_of(v.wall_s));
    const bool fits = repro_.list().size() < kMostWords;
    put("repro", repro_.number_of(fits ? without_case(v.repro, record.case_id) : ""));
    const auto group = group_of_.find(&record);
    put("group", group == group_of_.end() ? 0 : group->second);
  }

  json evidence() const {
    std::set<const VerdictRecord*> all;
    for (const VerdictRecord* failure : told_first(groups_, kMostEvidence)) all.insert(failure);
    for (const TesteeDigest& testee : digest_.testees) {
      for (const auto& [key, worst] : testee.worst) all.insert(worst.verdict);
      for (const auto& [key, slope] : testee.slopes) all.insert(slope.verdict);
    }
    std::size_t schedules = 0;
    for (const VerdictRecord* each : order_) {
      if (each->verdict.schedule.empty() || schedules == kMostSchedules) continue;
      all.insert(each);
      ++schedules;
    }
    std::map<std::size_t, json> sorted;
    for (const VerdictRecord* each : all) sorted[place_of(*each)] = evidence_json(digest_, *each);
    json list = json::array();
    for (auto& [place, told] : sorted) {
      told["at"] = place;
      list.push_back(std::move(told));
    }
    return list;
  }

  json slopes() const {
    json list = json::array();
    for (std::size_t t = 0; t < digest_.testees.size(); ++t) {
      for (const auto& [key, slope] : digest_.testees[t].slopes) {
        list.push_back({t, one_line(key.first), static_cast<int>(key.second), slope.count,
                        code_of(slope.worst), place_of(*slope.verdict)});
      }
    }
    return list;
  }

  static json shown(const Words& words) {
    json list = json::array();
    for (const std::string& word : words.list()) {
      const std::size_t blank = word.find('\x01');
      list.push_back(blank == word.npos
                         ? clean(word)
                         : clean(word.substr(0, blank)) + "\x01" + clean(word.substr(blank + 1)));
    }
    return list;
  }

  const Record& record_;
  const Digest& digest_;
  const std::vector<FailureGroup>& groups_;
  std::vector<const VerdictRecord*> order_;
  std::unordered_map<const VerdictRecord*, std::size_t> places_;
  std::unordered_map<const VerdictRecord*, int> group_of_;
  std::unordered_map<std::string, std::size_t> said_;
  Words testees_, dtypes_, because_, words_, repro_, clauses_;
  Lists clause_lists_, tensor_lists_;
  const VerdictRecord* last_ = nullptr;
  json cases_ = {{"id", json::array()},
                 {"dtype", json::array()},
                 {"because", json::array()},
                 {"verdicts", json::array()}};
  json columns_ = {
      {"testee", json::array()},  {"outcome", json::array()}, {"said", json::array()},
      {"clauses", json::array()}, {"tensors", json::array()}, {"ratio", json::array()},
      {"time", json::array()},    {"repro", json::array()},   {"group", json::array()}};
};

Columns::Columns(const Record& record, const Digest& digest,
                 const std::vector<FailureGroup>& groups)
    : maker_(std::make_unique<Maker>(record, digest, groups)) {}
Columns::~Columns() = default;

std::size_t Columns::place_of(const VerdictRecord& verdict) const {
  return maker_->place_of(verdict);
}
std::size_t Columns::said_of(const Verdict& verdict) const { return maker_->said_of(verdict); }
std::string Columns::text() const { return json_text(maker_->as_json()); }

std::vector<const VerdictRecord*> told_first(const std::vector<FailureGroup>& groups,
                                             std::size_t most) {
  std::vector<const VerdictRecord*> told;
  for (std::size_t turn = 0; told.size() < most; ++turn) {
    bool some = false;
    for (const FailureGroup& group : groups) {
      if (turn >= group.failures.size() || told.size() == most) continue;
      told.push_back(group.failures[turn]);
      some = true;
    }
    if (!some) break;
  }
  return told;
}

}  // namespace attest::page
