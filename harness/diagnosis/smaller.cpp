#include "harness/diagnosis/smaller.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cases/entry.h"
#include "cases/fit.h"
#include "cases/repair.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

// A field of a problem, what a case lacks without it, and the clause where no feature has it.
struct Field {
  const char* key;
  const char* what;
  const char* feature;  // whose clauses speak of it; null: `clause` does
  const char* clause;
};
constexpr Field kFields[] = {
    {"softcap", "a softcap", "softcap", ""},
    {"bias", "a bias", "bias", ""},
    {"alibi", "ALiBi", "alibi", ""},
    {"sink", "a sink", "sink", ""},
    {"dropout", "dropout", "dropout", ""},
    {"mask", "a mask", nullptr, "MASK-1"},
    {"key_lens", "key lengths", nullptr, "MASK-5"},
    {"query_lens", "query lengths", nullptr, "MASK-6"},
    {"layouts", "layouts of its own", nullptr, "LAYOUT-1"},
    {"d_lse", "a gradient through LSE", nullptr, "GRAD-5"},
    {"scale", "a scale of its own", nullptr, "SCORE-1"},
    {"value_dim", "values of another width", nullptr, "SHAPE-1"},
};

std::vector<std::string> clauses_of(const Field& field) {
  const Feature* feature = field.feature ? find_feature(field.feature) : nullptr;
  if (!feature) return {field.clause};
  std::vector<std::string> clauses;
  for (const Feature::Demand& demand : feature->demands()) clauses.emplace_back(demand.clause);
  return clauses;
}

struct Smaller {
  Relief relief;
  json entry;
};

std::vector<Smaller> smaller_than(const json& entry) {
  std::vector<Smaller> all;
  const auto add = [&](Relief relief, const std::function<void(json&)>& change) {
    json other = entry;
    change(other["problem"]);
    repair(other["problem"]);
    if (other != entry) all.push_back({std::move(relief), std::move(other)});
  };
  const json& problem = entry.at("problem");
  for (const Field& field : kFields) {
    if (!problem.contains(field.key)) continue;
    add({field.what, clauses_of(field)}, [&](json& p) { p.erase(field.key); });
  }
  const Index heads = problem.value("query_heads", Index(1));
  if (problem.value("key_heads", Index(1)) != heads) {
    add({"fewer key heads than query heads", {"HEAD-1", "HEAD-2"}},
        [&](json& p) { p["key_heads"] = heads; });
  }
  for (const auto& each : {std::pair{"batch", "several batch elements"},
                           {"query_len", "several queries"},
                           {"key_len", "several keys"},
                           {"head_dim", "several channels"}}) {
    if (problem.value(each.first, Index(1)) < 2) continue;
    add({each.second, {"SHAPE-1"}}, [&](json& p) { p[each.first] = 1; });
  }
  for (const auto& [key, plain, what] :
       {std::tuple{"hidden", "plain", "NaN or large numbers in what is hidden"},
        {"data", "normal", "numbers of its class"}}) {
    json other = entry;
    other[key] = key == std::string_view("data") ? json::array({plain}) : json(plain);
    if (entry.contains(key) && other != entry) all.push_back({{what, {}}, std::move(other)});
  }
  return all;
}

// Nothing if it cannot be told: no case, or one that is not judged.
std::optional<bool> passes(const json& entry, const Testee& testee, Executor& executor,
                           const RunOptions& options) {
  std::optional<Case> test_case;
  try {
    test_case = read_entry(entry, "smaller");
  } catch (const InputError&) {
    return std::nullopt;
  }
  PreparedCase prepared(*test_case, 1);
  const Outcome outcome = verdict_on(prepared, testee, executor, options).outcome;
  if (conforms(outcome)) return true;
  return is_fault(outcome) ? std::optional(false) : std::nullopt;
}

}  // namespace

std::vector<Relief> reliefs(const Case& test_case, const Testee& testee, Executor& executor,
                            const RunOptions& options, const std::function<bool()>& interrupted) {
  if (test_case.seed != 1 || base_id(test_case.id) != test_case.id) return {};
  json entry;
  try {
    entry = entry_of(test_case);
  } catch (const InputError&) {
    return {};
  }
  std::vector<Relief> found;
  for (Smaller& smaller : smaller_than(entry)) {
    if (interrupted()) break;
    if (passes(smaller.entry, testee, executor, options) == true) {
      found.push_back(std::move(smaller.relief));
    }
  }
  return found;
}

std::vector<nlohmann::json> entries_smaller_than(const CaseWithEntry& whole) {
  std::vector<nlohmann::json> entries;
  for (Smaller& smaller : smaller_than(whole.entry)) entries.push_back(std::move(smaller.entry));
  return entries;
}

}  // namespace attest
