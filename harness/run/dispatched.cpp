#include "harness/run/dispatched.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cases/fit.h"

namespace attest {
namespace {

constexpr std::size_t kWanted = 4;  // cases in each instance
// For one more, of each choice of numbers; for the first.
constexpr std::size_t kMostTries = 40, kMostTriesForOne = 160;
constexpr double kAllowed = 0x1p27;  // work of a form: a second of the reference

class Meeting {
 public:
  Meeting(const Description& testee, const std::vector<AskedCase>& asked,
          const std::function<CaseWithEntry(std::size_t n)>& base_of,
          const std::function<bool(std::size_t n, Case fitted)>& add)
      : testee_(testee), asked_(asked), base_of_(base_of), add_(add) {
    for (const Dispatch& dispatch : testee.dispatch) {
      Table& table = tables_.emplace_back(Table{.dispatch = dispatch});
      for (const AskedCase& each : asked) note(table, each.asked->problem);
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
      if (asked[n].may_be_fitted && shows_some(asked[n].asked->problem)) bases_.push_back(n);
    }
  }

  std::vector<DispatchMet> meet(const std::function<bool()>& interrupted) {
    for (std::size_t count = 1; count <= kWanted; ++count) {
      for (Table& table : tables_) {
        for (Wanted& each : table.wanted) {
          if (interrupted()) break;
          if (each.given_up || table.cases_in[each.classes] >= count) continue;
          each.given_up = !add_one(table, each, count);
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

  // What has no results shows nothing of its instance.
  static bool shows_some(const Problem& problem) { return element_count(problem.o_shape()) > 0; }

  static void note(Table& table, const Problem& problem) {
    if (!shows_some(problem)) return;
    if (const auto instance = table.dispatch.instance_of(problem)) ++table.cases_in[*instance];
  }

  // Whether some case could be asked there.
  bool add_one(const Table& table, const Wanted& wanted, std::size_t count) {
    for (std::size_t n = 0; n < wanted.limits.size(); ++n) {  // others come first each time
      if (add_one(table, wanted, wanted.limits[(count + n) % wanted.limits.size()], count))
        return true;
    }
    return false;
  }

  bool add_one(const Table& table, const Wanted& wanted, const KernelLimits& limits,
               std::size_t count) {
    const std::size_t most = count == 1 ? kMostTriesForOne : kMostTries;
    std::size_t tries = 0;
    // Again others, so that instances meet different features.
    for (std::size_t tried = 0; tried < bases_.size() && tries < most; ++tried) {
      const std::size_t place = (next_ + tried) % bases_.size(), n = bases_[place];
      if (!may_meet(table.dispatch, wanted.classes, n)) continue;
      ++tries;
      KernelLimits of_case = limits;
      const Index heads = asked_[n].asked->problem.query_heads;
      if (const auto batches = batches_of(table.dispatch, wanted.classes, heads)) {
        of_case.always.push_back({.sizes = {{Size::batch, *batches}}});
      }
      Fitted fit = fitted(base_of_(n), of_case, wanted.features, kAllowed);
      if (!fit.asked || table.dispatch.instance_of(fit.asked->problem) != wanted.classes ||
          exclusion(fit.asked->problem, testee_)) {
        continue;
      }
      const Problem problem = fit.asked->problem;
      if (!add_(n, *std::move(fit.asked))) continue;
      for (Table& each : tables_) note(each, problem);
      next_ = place + 1;
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

  const Description& testee_;
  const std::vector<AskedCase>& asked_;
  const std::function<CaseWithEntry(std::size_t n)>& base_of_;
  const std::function<bool(std::size_t n, Case fitted)>& add_;
  std::vector<Table> tables_;
  std::vector<std::size_t> bases_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<DispatchMet> meet_dispatch(const Description& testee,
                                       const std::vector<AskedCase>& asked,
                                       const std::function<CaseWithEntry(std::size_t n)>& base_of,
                                       const std::function<bool(std::size_t n, Case fitted)>& add,
                                       const std::function<bool()>& interrupted) {
  return Meeting(testee, asked, base_of, add).meet(interrupted);
}

}  // namespace attest
