#include "harness/command/selfcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "harness/command/progress.h"
#include "harness/command/session.h"
#include "harness/fuzz/draws.h"
#include "harness/run/asking.h"
#include "harness/run/run.h"
#include "harness/selfcheck/hosts.h"
#include "reports/files.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// Random problems that a testee takes, some of them fitted to it.
std::vector<Case> random_cases(const Testee& testee) {
  constexpr std::uint64_t kDrawn = 600, kEnough = 20;
  constexpr double kMostCost = 4e6;
  const Scope scope{.testee = testee.description, .dtypes = testee.description.dtypes};
  const std::vector<CaseWithEntry> none;
  const Draws draws(scope, none, 1);
  std::vector<Case> cases;
  for (std::uint64_t number = 0; number < kDrawn && cases.size() < kEnough; ++number) {
    const Drawn drawn = draws.draw(number);
    const Case& c = drawn.prepared.test_case();
    const bool beyond = exclusion(c.problem, testee.description).has_value();
    if (!beyond && cost_of(c) <= kMostCost) cases.push_back(c);
  }
  return cases;
}

class HostsChecker {
 public:
  HostsChecker(bool full, const TerminalOptions& terminal, const Session& session,
               const Catalogue& catalogue, const std::vector<Case>& cases,
               const std::filesystem::path& root)
      : session_(session),
        catalogue_(catalogue),
        cases_(cases),
        root_(root),
        full_(full),
        run_(session.run_options()),
        progress_({stderr, terminal}, terminal.loudness, 0) {
    run_.tries_again = false;  // what hangs is caught by that
  }

  HostCheck check(const std::string& host, const std::vector<Testee>& testees) {
    Catalogue catalogue = in_host(catalogue_, host, testees.front().description);
    if (catalogue.controls.empty()) throw InputError("", "the catalogue has no controls");
    const auto faultless = std::find_if(testees.begin(), testees.end(), [&](const Testee& each) {
      return each.kernel == catalogue.controls.front();
    });
    if (faultless == testees.end()) throw InputError("", host + " has no kernel without a fault");
    const Asking asking(cases_, {*faultless}, root_);
    HostCheck result{.name = host,
                     .cases = by_worth(asking.asked(faultless->name, cases_)),
                     .catalogue = {},
                     .mutants = catalogue_.mutants.size()};
    const auto random = random_cases(*faultless);
    const Shows shows = where_faults_show(random, cheap_ones(result.cases), catalogue, testees,
                                          run_, start_, interrupted);
    result.catalogue = of_shown(std::move(catalogue), shows);
    result.hunt = hunt(result.cases, result.catalogue, testees,
                       {.all = full_, .anywhere = true, .share_workers = true, .run = run_}, start_,
                       seen_, interrupted);
    std::ostringstream unread;
    const Record record = run(result.cases, {*faultless}, session_.header(), run_, start_, unread,
                              seen_, interrupted);
    for (const VerdictRecord& each : record.verdicts) {
      const Outcome outcome = each.verdict.outcome;
      if (!conforms(outcome) && outcome != Outcome::unsupported) result.failed.push_back(each);
    }
    return result;
  }

  void finish() { progress_.finish(); }

 private:
  const Session& session_;
  const Catalogue& catalogue_;
  const std::vector<Case>& cases_;
  const std::filesystem::path& root_;
  const bool full_;
  RunOptions run_;
  Progress progress_;
  const MakeExecutor start_ = [this](const Testee& testee) { return session_.start(testee); };
  const std::function<void(const VerdictRecord&)> seen_ = [this](const VerdictRecord& verdict) {
    progress_.add(verdict);
  };
};

}  // namespace

int selfcheck_hosts(const SelfcheckArguments& asked) {
  constexpr double kMutantSeconds = 3;
  constexpr std::size_t kMutantBytes = std::size_t(512) << 20;
  const auto start = std::chrono::steady_clock::now();
  const Installation installation = installation_for(asked.cases, asked.plugins);
  const auto [cases, complete] = selected_cases(asked.cases, installation);
  const Catalogue catalogue = load_catalogue(installation.test_plugins / "mutants.so");
  const Session session({.testees = {(installation.test_plugins / "hosts.so").string()},
                         .limits = {.call_seconds = kMutantSeconds, .memory_bytes = kMutantBytes}},
                        asked.recording, installation,
                        plan_for(asked.cases, installation, complete, cases.size()));
  HostsCheck check;
  HostsChecker checker(asked.full, asked.recording.terminal, session, catalogue, cases,
                       installation.cases);
  for (const auto& [host, testees] : by_host(session.testees())) {
    const auto& wanted = asked.only_hosts;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), host) == wanted.end()) continue;
    if (!interrupted()) check.hosts.push_back(checker.check(host, testees));
  }
  checker.finish();
  check.interrupted = interrupted();
  check.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_file(asked.recording.out / "hosts.json", json_text(to_json(check), 2) + "\n");
  fmt::print("{}", to_text(check));
  return exit_code_of(check);
}

}  // namespace attest
