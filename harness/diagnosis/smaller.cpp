#include "harness/diagnosis/smaller.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cases/entry.h"
#include "cases/repair.h"
#include "spec/feature.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

// A field of a problem, what a case lacks without it, and the features or clauses that speak of it.
struct Field {
  const char* key;
  const char* what;
  std::vector<const char*> features = {};
  std::vector<std::string> clauses = {};
};
const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"softcap", "a softcap", {"softcap"}},
      {"bias", "a bias", {"bias", "dbias"}},
      {"alibi", "ALiBi", {"alibi"}},
      {"sink", "a sink", {"sink"}},
      {"dropout", "dropout", {"dropout", "dropout-generated"}},
      {"mask", kAMask},
      {"key_lens", "key lengths", {}, {"MASK-5"}},
      {"query_lens", "query lengths", {}, {"MASK-6"}},
      {"layouts",
       "layouts of its own",
       {"strides", "transposed", "expanded"},
       {"LAYOUT-1", "LAYOUT-2"}},
      {"d_lse", "a gradient through LSE", {"dlse"}},
      {"scale", "a scale of its own", {"any-scale"}, {"SCORE-1"}},
      {"stored", "numbers of 8 bits", {"e4m3", "int8"}},
      {"value_dim", "values of another width", {"value-dim"}},
  };
  return all;
}

std::vector<std::string> clauses_of(const Field& field) {
  std::vector<std::string> clauses = field.clauses;
  for (const char* name : field.features) {
    for (const Feature::Demand& demand : find_feature(name)->demands()) {
      clauses.emplace_back(demand.clause);
    }
  }
  return clauses;
}

std::vector<std::string> clauses_of(const Mask& mask) {
  std::vector<std::string> clauses;
  for (const Feature* feature : needed_by({.mask = mask})) {
    if (!feature->in_mask) continue;
    for (const Feature::Demand& demand : feature->demands()) clauses.emplace_back(demand.clause);
  }
  return clauses.empty() ? std::vector<std::string>{"MASK-1"} : clauses;
}

// Padding in place of packed sequences or pages.
void pad(json& problem, const char* form) {
  const bool packed = problem.value("packed", false);
  problem.erase(form);
  problem["key_len"] = longest_of(problem, "key_lens");
  if (packed) problem["query_len"] = longest_of(problem, "query_lens");
}

struct Smaller {
  Relief relief;
  json entry;
};

std::vector<Smaller> smaller_than(const json& entry, const Problem& whole) {
  std::vector<Smaller> all;
  const auto add = [&](Relief relief, const std::function<void(json&)>& change) {
    json other = entry;
    change(other["problem"]);
    repair(other["problem"]);
    if (other != entry) all.push_back({std::move(relief), std::move(other)});
  };
  const json& problem = entry.at("problem");
  for (const Field& field : fields()) {
    if (!problem.contains(field.key)) continue;
    const bool is_mask = field.key == std::string_view("mask");
    add({field.what, is_mask ? clauses_of(whole.mask) : clauses_of(field)},
        [&](json& p) { p.erase(field.key); });
  }
  for (const auto& [key, what, clause] :
       {std::tuple{"packed", "packing", "LAYOUT-5"}, {"paging", "pages", "PAGE-1"}}) {
    if (!problem.contains(key)) continue;
    add({what, {clause}}, [form = key](json& p) { pad(p, form); });
  }
  for (const char* several : {"all_of", "any_of"}) {
    const auto mask = problem.find("mask");
    if (mask == problem.end() || !mask->is_object() || !mask->contains(several)) continue;
    for (std::size_t i = 0; i < whole.mask.parts.size(); ++i) {
      add({"part " + std::to_string(i + 1) + " of the mask", clauses_of(whole.mask.parts[i]), false,
           true},
          [&](json& p) {
            json& parts = p["mask"][several];
            parts.erase(i);
            if (parts.size() == 1) p["mask"] = json(parts[0]);
          });
    }
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
    add({each.second, {}}, [&](json& p) { p[each.first] = 1; });
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
std::optional<bool> passes(const json& entry, std::uint64_t seed, const Testee& testee,
                           Executor& executor, const RunOptions& options) {
  std::optional<Case> test_case;
  try {
    test_case = read_entry(entry, "smaller", seed);
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
  json entry;
  try {
    entry = entry_of(test_case);
  } catch (const InputError&) {
    return {};
  }
  std::vector<Relief> found;
  for (Smaller& smaller : smaller_than(entry, test_case.problem)) {
    if (interrupted()) break;
    const std::optional<bool> without =
        passes(smaller.entry, test_case.seed, testee, executor, options);
    if (!without) continue;
    smaller.relief.passes = *without;
    found.push_back(std::move(smaller.relief));
  }
  return found;
}

std::vector<nlohmann::json> entries_smaller_than(const CaseWithEntry& whole) {
  std::vector<nlohmann::json> entries;
  for (Smaller& smaller : smaller_than(whole.entry, whole.test_case.problem))
    entries.push_back(std::move(smaller.entry));
  return entries;
}

}  // namespace attest
