#include "harness/fuzz/draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "cases/fit.h"
#include "cases/generate.h"
#include "cases/laws.h"
#include "harness/fuzz/random_sizes.h"
#include "harness/laws/law.h"
#include "harness/process/tensors.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;

// Of a hundred problems, how many are made of the suite's, to how many a law is added, and how
// many are large.
constexpr int kAltered = 25, kWithLaw = 8, kLarge = 2;

// How far all tensors that have a layout reach in memory, in elements.
Index spans(const Problem& p) {
  Index elements = 0;
  for (const auto& tensors :
       {inputs_of(p, true), outputs_of(p, false, {}), outputs_of(p, true, {})}) {
    for (const Crossing& t : tensors) {
      if (t.layout) elements += t.layout->span(t.shape);
    }
  }
  return elements;
}
constexpr Index kMostElements = 1 << 20;

// The problem in some format that may be chosen.
Problem as_drawn(const Case& test_case, const Scope& scope) {
  Problem problem = test_case.problem;
  problem.dtype = scope.dtypes.front();
  return problem;
}

// Whether the testee declares what the variants of a problem need, and the law's own promises.
bool may_try(const laws::Law& law, const Case& test_case, const Scope& scope) {
  const Problem& p = test_case.problem;
  const Description& testee = scope.testee;
  const std::string name(law.name);
  if (laws::missing_promise({name}, p, testee, testee.arithmetic.at(p.dtype))) return false;
  if (law.name == "layouts" && !testee.has("strides")) return false;
  for (const std::string_view clause : clauses_of_variants(*find_law(law.name), p)) {
    for (const Feature* feature : features_with(clause)) {
      if (!testee.has(feature->name)) return false;
    }
  }
  return true;
}

}  // namespace

Draws::Draws(const Scope& scope, const std::vector<CaseWithEntry>& suite, std::uint64_t seed)
    : scope_(scope), seed_(seed) {
  // One problem may be many cases, of other formats and classes of numbers.
  std::set<std::string> known;
  for (const CaseWithEntry& each : suite) {
    const Case& c = each.test_case;
    if (c.excerpt > 0 || work_of(c.problem) > kMostWork / 2) continue;
    if (spans(c.problem) > kMostElements) continue;
    if (!undeclared(as_drawn(c, scope), scope.testee).empty()) continue;
    if (known.insert(json_text(each.entry.at("problem"))).second) pool_.push_back(&each.entry);
  }
}

json Draws::entry(Dice& dice, bool afresh) const {
  if (afresh || pool_.empty() || !dice.chance(kAltered)) return random_entry(scope_, dice);
  const json& entry = *dice.one_of(pool_);
  return altered_entry(scope_, entry, *dice.one_of(pool_), dice);
}

void Draws::add_law(json& entry, const Case& test_case, Dice& dice) const {
  const Inputs inputs = generate(test_case);
  std::vector<std::string> names;
  for (const laws::Law* law : laws::all_laws()) {
    if (may_try(*law, test_case, scope_) && laws::unmet(*law, test_case.problem, inputs).empty()) {
      names.emplace_back(law->name);
    }
  }
  if (!names.empty()) entry["laws"] = json::array({dice.one_of(names)});
}

bool Draws::fit(json& entry, Case& test_case) const {
  const CaseWithEntry base = {test_case, entry};
  const Fitted fit = fitted(base, scope_.testee.limits, scope_.testee.features);
  if (!fit.asked) return false;
  entry = entry_with_fit(base, Fit::parse(fit_of(fit.asked->id)));
  test_case = read_entry(entry, kFuzzStem);
  return !exclusion(test_case.problem, scope_.testee);
}

Drawn without_laws(const Drawn& drawn) {
  json entry = drawn.entry;
  entry.erase("laws");
  PreparedCase prepared(read_entry(entry, kFuzzStem), 1);
  return {.entry = std::move(entry), .prepared = std::move(prepared), .refused = drawn.refused};
}

Drawn Draws::draw(std::uint64_t number) const {
  constexpr int kPatience = 20;  // after which problems are drawn afresh, most of which are cases
  constexpr int kPatienceWithLimits = 400;  // after which one may be beyond them: it is unsupported
  const std::string of_problem = fmt::format("fuzz/seed={}/number={}", seed_, number);
  const bool wants_large = Dice(of_problem).chance(kLarge);
  for (int attempt = 0;; ++attempt) {
    Dice dice(fmt::format("{}/attempt={}", of_problem, attempt));
    const bool patient = attempt < kPatience, large = wants_large && patient;
    json made = large ? large_entry(scope_, dice) : entry(dice, !patient);
    made["name"] = fmt::format("seed{}_number{}", seed_, number);
    made["bits"] = of_problem;
    made["because"] = "A random problem.";
    try {
      Case test_case = read_entry(made, kFuzzStem);
      if (!undeclared(test_case.problem, scope_.testee).empty()) continue;
      const bool within = !exclusion(test_case.problem, scope_.testee);
      if (!within && !fit(made, test_case) && attempt < kPatienceWithLimits) continue;
      // The smallest that a testee takes may be large.
      const Index most = large || !within ? kMostWorkOfLarge : kMostWork;
      if (work_of(test_case.problem) > most) continue;
      if (spans(test_case.problem) > kMostElements) continue;
      if (dice.chance(kWithLaw)) {
        add_law(made, test_case, dice);
        test_case = read_entry(made, kFuzzStem);
      }
      return {.entry = std::move(made), .prepared = PreparedCase(test_case, 1), .refused = attempt};
    } catch (const InputError&) {
      // No case, or one that has no finite numbers of its class.
    }
  }
}

}  // namespace attest
