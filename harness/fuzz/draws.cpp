#include "harness/fuzz/draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "cases/fit.h"
#include "cases/generate.h"
#include "cases/laws.h"
#include "harness/fuzz/random_sizes.h"
#include "harness/laws/law.h"
#include "harness/process/tensors.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;

// Of a hundred problems, how many are made of the suite's, to how many a law is added, and how
// many are large.
constexpr int kAltered = 25, kWithLaw = 8, kLarge = 2;
// And how many are drawn for an instance of the testee's own dispatch.
constexpr int kAimed = 75;

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

// Makes of a problem beyond the testee's limits one within them; false if it stays beyond.
bool fit_to(const Description& testee, json& entry, Case& test_case) {
  const CaseWithEntry base = {test_case, entry};
  const Fitted fit = fitted(base, testee.limits, testee.features);
  if (!fit.asked) return false;
  entry = entry_with_fit(base, Fit::parse(fit_of(fit.asked->id)));
  test_case = read_entry(entry, kFuzzStem);
  return !exclusion(test_case.problem, testee);
}

// What the testee would declare if it had that instance alone; none if nothing is left of it.
struct Aimed {
  Description testee;
  std::vector<DType> dtypes = {};
};
std::optional<Aimed> aimed(const Aim& aim, const Scope& scope) {
  auto declared = declared_of(aim.instance, *aim.dispatch, scope.testee);
  if (!declared) return std::nullopt;
  Aimed aimed = {*std::move(declared)};
  for (const DType dtype : scope.dtypes) {
    if (contains(aimed.testee.dtypes, dtype)) aimed.dtypes.push_back(dtype);
  }
  if (aimed.dtypes.empty()) return std::nullopt;
  return aimed;
}

std::vector<Aim> aims_of(const Scope& scope) {
  std::vector<Aim> aims;
  for (const Dispatch& dispatch : scope.testee.dispatch) {
    for (DispatchClasses& each : dispatch.instances()) {
      Aim aim = {&dispatch, std::move(each)};
      if (aimed(aim, scope)) aims.push_back(std::move(aim));
    }
  }
  return aims;
}

}  // namespace

Draws::Draws(const Scope& scope, const std::vector<CaseWithEntry>& suite, std::uint64_t seed)
    : scope_(scope), seed_(seed), aims_(aims_of(scope)) {
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

std::string Draws::name_of(std::uint64_t number) const {
  return fmt::format("fuzz/seed={}/number={}", seed_, number);
}

const Aim* Draws::aim_of(std::uint64_t number) const {
  if (aims_.empty()) return nullptr;
  Dice dice(name_of(number) + "/aim");
  return dice.chance(kAimed) ? &dice.one_of(aims_) : nullptr;
}

json Draws::entry(const Scope& scope, Dice& dice, bool afresh) const {
  if (afresh || pool_.empty() || !dice.chance(kAltered)) return random_entry(scope, dice);
  const json& entry = *dice.one_of(pool_);
  return altered_entry(scope, entry, *dice.one_of(pool_), dice);
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

Drawn without_laws(const Drawn& drawn) {
  json entry = drawn.entry;
  entry.erase("laws");
  PreparedCase prepared(read_entry(entry, kFuzzStem), 1);
  return {.entry = std::move(entry), .prepared = std::move(prepared), .refused = drawn.refused};
}

Drawn Draws::draw(std::uint64_t number) const {
  constexpr int kPatience = 20;  // after which problems are drawn afresh, most of which are cases
  // After which one may be beyond its limits, and is unsupported, or in another instance.
  constexpr int kPatienceWithLimits = 400;
  const std::string of_problem = name_of(number);
  const bool wants_large = Dice(of_problem).chance(kLarge);
  const Aim* const aim = aim_of(number);
  auto instance = aim ? aimed(*aim, scope_) : std::nullopt;
  const std::size_t own_limits = instance ? instance->testee.limits.always.size() : 0;
  for (int attempt = 0;; ++attempt) {
    const bool aims = aim && attempt < kPatienceWithLimits;
    const Scope scope = aims ? Scope{instance->testee, instance->dtypes, scope_.finite} : scope_;
    Dice dice(fmt::format("{}/attempt={}", of_problem, attempt));
    const bool patient = attempt < kPatience, large = wants_large && patient;
    json made = large ? large_entry(scope, dice) : entry(scope, dice, !patient);
    made["name"] = fmt::format("seed{}_number{}", seed_, number);
    made["bits"] = of_problem;
    made["because"] = "A random problem.";
    try {
      Case test_case = read_entry(made, kFuzzStem);
      if (!undeclared(test_case.problem, scope.testee).empty()) continue;
      if (aims) {
        instance->testee.limits.always.resize(own_limits);
        const auto batches =
            batches_of(*aim->dispatch, aim->instance, test_case.problem.query_heads);
        if (batches) instance->testee.limits.always.push_back({.sizes = {{Size::batch, *batches}}});
      }
      const bool within = !exclusion(test_case.problem, scope.testee);
      if (!within && !fit_to(scope.testee, made, test_case) && attempt < kPatienceWithLimits) {
        continue;
      }
      // The smallest that a testee takes may be large.
      const Index most = large || !within ? kMostWorkOfLarge : kMostWork;
      if (work_of(test_case.problem) > most) continue;
      if (spans(test_case.problem) > kMostElements) continue;
      if (dice.chance(kWithLaw)) {
        add_law(made, test_case, dice);
        test_case = read_entry(made, kFuzzStem);
      }
      if (aims && aim->dispatch->instance_of(test_case.problem) != aim->instance) continue;
      return {.entry = std::move(made), .prepared = PreparedCase(test_case, 1), .refused = attempt};
    } catch (const InputError&) {
      // No case, or one that has no finite numbers of its class.
    }
  }
}

}  // namespace attest
