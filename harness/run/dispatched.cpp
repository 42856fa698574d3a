#include "harness/run/dispatched.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cases/fit.h"
#include "spec/contains.h"

namespace attest {
namespace {

constexpr std::size_t kWanted = 8;       // cases in each instance, where there are some to spare
constexpr std::size_t kLeastCited = 20;  // cases of a format, of a clause that some may lose
constexpr std::size_t kMostTries = 40;   // for one more, of each choice of numbers

class Meeting {
 public:
  Meeting(const Description& testee, const std::vector<AskedCase>& asked,
          const std::function<CaseWithEntry(std::size_t n)>& base_of,
          const std::function<bool(std::size_t n, Case fitted)>& move)
      : testee_(testee), asked_(asked), base_of_(base_of), move_(move) {
    for (const Dispatch& dispatch : testee.dispatch) {
      Table& table = tables_.emplace_back(Table{.dispatch = dispatch});
      for (const AskedCase& each : asked) {
        const auto& instance =
            table.instance_of.emplace_back(dispatch.instance_of(each.asked->problem));
        if (instance) ++table.cases_in[*instance];
      }
      for (DispatchClasses& classes : dispatch.instances()) {
        const auto declared = declared_of(classes, dispatch, testee);
        if (!declared) continue;
        Wanted wanted = {.features = declared->features};
        for (const Numbers numbers :
             {Numbers::all, Numbers::largest, Numbers::few_queries, Numbers::fewest_queries}) {
          const auto some = declared_of(classes, dispatch, testee, numbers);
          if (some) wanted.limits.push_back(some->limits);
        }
        wanted.classes = std::move(classes);
        table.wanted.push_back(std::move(wanted));
      }
    }
    for (std::size_t n = 0; n < asked.size(); ++n) {
      if (asked[n].is_movable) movable_.push_back(n);
      for (const std::string& each : asked[n].asked->clauses) {
        ++cited_[{asked[n].asked->problem.dtype, each}];
      }
    }
  }

  std::vector<DispatchMet> meet() {
    for (std::size_t count = 1; count <= kWanted; ++count) {
      for (Table& table : tables_) {
        for (Wanted& each : table.wanted) {
          if (each.given_up || table.cases_in[each.classes] >= count) continue;
          each.given_up = !meet(table, each, count);
        }
      }
    }
    std::vector<DispatchMet> all;
    for (Table& table : tables_) all.push_back(met_of(table));
    return all;
  }

 private:
  struct Wanted {
    DispatchClasses classes = {};
    std::vector<std::string> features;
    std::vector<KernelLimits> limits = {};  // by which of its numbers they admit
    bool given_up = false;
  };
  struct Table {
    const Dispatch& dispatch;
    std::vector<Wanted> wanted = {};
    std::vector<std::optional<DispatchClasses>> instance_of = {};  // by case
    std::map<DispatchClasses, std::size_t> cases_in = {};
  };

  static DispatchMet met_of(Table& table) {
    DispatchMet met = {.table = table.dispatch.name, .beyond = {}};
    for (const Wanted& each : table.wanted) {
      const std::size_t cases = table.cases_in[each.classes];
      if (cases == 0) met.beyond.push_back(table.dispatch.words(each.classes));
      if (cases > 0 && (met.met++ == 0 || cases < met.fewest)) met.fewest = cases;
    }
    return met;
  }

  // Whether some case that is elsewhere, among more than `count`, could be asked there.
  bool meet(const Table& table, const Wanted& wanted, std::size_t count) {
    for (std::size_t n = 0; n < wanted.limits.size(); ++n) {  // others come first each time
      if (meet(table, wanted, count, wanted.limits[(count + n) % wanted.limits.size()]))
        return true;
    }
    return false;
  }

  bool meet(const Table& table, const Wanted& wanted, std::size_t count,
            const KernelLimits& limits) {
    std::size_t tries = 0;
    // Again others, so that instances meet different features.
    for (std::size_t tried = 0; tried < movable_.size() && tries < kMostTries; ++tried) {
      const std::size_t place = (next_ + tried) % movable_.size(), n = movable_[place];
      if (!is_spare(n, count) || !may_meet(table.dispatch, wanted.classes, n)) continue;
      ++tries;
      KernelLimits of_case = limits;
      const Index heads = asked_[n].asked->problem.query_heads;
      if (const auto batches = batches_of(table.dispatch, wanted.classes, heads)) {
        of_case.always.push_back({.sizes = {{Size::batch, *batches}}});
      }
      Fitted fit = fitted(base_of_(n), of_case, wanted.features);
      if (!fit.asked || table.dispatch.instance_of(fit.asked->problem) != wanted.classes ||
          !may_lose(n, fit.asked->clauses) || exclusion(fit.asked->problem, testee_)) {
        continue;
      }
      const Case moved = *fit.asked;
      if (!move_(n, *std::move(fit.asked))) continue;
      move_to(moved, n);
      movable_.erase(movable_.begin() + static_cast<std::ptrdiff_t>(place));
      next_ = place;
      return true;
    }
    return false;
  }

  bool may_meet(const Dispatch& dispatch, const DispatchClasses& classes, std::size_t n) const {
    const Problem& p = asked_[n].asked->problem;
    if (dispatch.backward && !p.backward) return false;
    for (std::size_t point = 0; point < classes.size(); ++point) {
      if (!dispatch.points[point].may_bring(p, classes[point])) return false;
    }
    return true;
  }

  bool is_spare(std::size_t n, std::size_t count) const {
    return std::all_of(tables_.begin(), tables_.end(), [&](const Table& table) {
      const auto& instance = table.instance_of[n];
      return !instance || table.cases_in.at(*instance) > count;
    });
  }

  // Whether others cite each clause that the case then doesn't.
  bool may_lose(std::size_t n, const std::vector<std::string>& kept) const {
    const Case& c = *asked_[n].asked;
    return std::all_of(c.clauses.begin(), c.clauses.end(), [&](const std::string& clause) {
      return contains(kept, clause) || cited_.at({c.problem.dtype, clause}) > kLeastCited;
    });
  }

  void move_to(const Case& moved, std::size_t n) {
    const Problem& problem = moved.problem;
    for (const std::string& each : asked_[n].asked->clauses) --cited_[{problem.dtype, each}];
    for (const std::string& each : moved.clauses) ++cited_[{problem.dtype, each}];
    for (Table& table : tables_) {
      auto& instance = table.instance_of[n];
      if (instance) --table.cases_in[*instance];
      instance = table.dispatch.instance_of(problem);
      if (instance) ++table.cases_in[*instance];
    }
  }

  const Description& testee_;
  const std::vector<AskedCase>& asked_;
  const std::function<CaseWithEntry(std::size_t n)>& base_of_;
  const std::function<bool(std::size_t n, Case fitted)>& move_;
  std::vector<Table> tables_;
  std::vector<std::size_t> movable_;
  std::map<std::pair<DType, std::string>, std::size_t> cited_;  // cases, by format and clause
  std::size_t next_ = 0;
};

}  // namespace

std::vector<DispatchMet> meet_dispatch(
    const Description& testee, const std::vector<AskedCase>& asked,
    const std::function<CaseWithEntry(std::size_t n)>& base_of,
    const std::function<bool(std::size_t n, Case fitted)>& move) {
  return Meeting(testee, asked, base_of, move).meet();
}

}  // namespace attest
