// Hostile calls at random places of a long run: it ends, every case has one verdict, the right one,
// and the next case nothing of it. ATTEST_SOAK is the number of cases, 1000 unless it is set, and
// ATTEST_SOAK_JOBS that of jobs, else 2.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "harness/process/testee.h"
#include "harness/run/run.h"
#include "tests/harness/plugins/hostile.h"

namespace attest {
namespace {

using hostile::Deed;

struct Consequence {
  Outcome outcome;
  Reason reason = {};
};

Consequence consequence(Deed deed) {
  switch (deed) {
    case Deed::nothing:
    case Deed::dawdles:
    case Deed::resizes_memory:
    case Deed::breaks_in:
    case Deed::floods:
    case Deed::leaves_child:
    case Deed::uses_up_descriptors:
      return {Outcome::pass};
    case Deed::segfault:
    case Deed::kills_itself:
    case Deed::kills_all:
    case Deed::exits:
    case Deed::aborts:
    case Deed::forks:
      return {Outcome::crash};
    case Deed::stops_itself:
    case Deed::hangs:
      return {Outcome::timeout};
    case Deed::babbles:
    case Deed::hangs_up:
      return {Outcome::protocol_error};
    case Deed::overwrites_input:
      return {Outcome::fail, "input_mutated"};
    case Deed::hoards:
      return {Outcome::fail, "memory"};
    case Deed::writes_behind:
    case Deed::writes_before:
    case Deed::reads_behind:
    case Deed::opens_guard:
    case Deed::closes_guard_again:
      return {Outcome::fail, "guard"};
    case Deed::writes_elsewhere:
    case Deed::writes_late:
      return {Outcome::fail, "bound"};
    case Deed::returns_nan:
      return {Outcome::fail, "nonfinite"};
    case Deed::writes_nothing:
      return {Outcome::fail, "unwritten"};
    case Deed::fails:
      return {Outcome::fail, "wrong_refusal"};
  }
  return {Outcome::harness_error};
}

constexpr std::uint64_t kSeldom = 9;  // of those deeds: one in five hundred calls is theirs

// One in four calls is hostile; those that take until they are given up are few. What kills all
// that its user may is done in namespaces alone.
Deed deed_at(std::uint64_t place, bool namespaces) {
  std::uint64_t bits = (place + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 31)) * 0xbf58476d1ce4e5b9u;
  bits ^= bits >> 29;
  if (bits % 4 != 0) return Deed::nothing;
  const auto deed = static_cast<Deed>(bits / 4 % hostile::kDeeds);
  const bool slow = consequence(deed).outcome == Outcome::timeout;
  const bool contained = namespaces || deed != Deed::kills_all;
  return !contained || (slow && bits / 128 % kSeldom != 0) ? Deed::nothing : deed;
}

Case case_at(std::uint64_t place, Deed deed) {
  Case c;
  c.id = "soak/" + std::to_string(place) + "/dtype=f32/data=normal/s=1";
  c.clauses = {"SCORE-1"};
  c.data = "normal";
  c.problem = {.dtype = DType::f32,
               .query_len = 1 + static_cast<Index>(place % 7),
               .key_len = 1 + static_cast<Index>(place % 5),
               .head_dim = 4,
               .value_dim = 4,
               .scale = hostile::scale_of(deed)};
  return c;
}

std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(SoakTest, EveryCaseHasItsOwnVerdictWhateverHappenedBeforeIt) {
  const std::uint64_t count = number_in("ATTEST_SOAK", 1000);
  const Crew crew = crew_for(static_cast<int>(number_in("ATTEST_SOAK_JOBS", 2)));
  const Limits limits = {.call_seconds = 1, .memory_bytes = std::size_t(64) << 20, .processes = 30};
  harden_this_process();  // as the command does
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  const auto testees = find_testees({HOSTILE}, installation, limits, {});
  const Isolation isolation = weakest_isolation(testees);
  fmt::print("isolation: {}\n", name_of(isolation));
  std::vector<Deed> deeds;
  std::vector<Case> cases;
  for (std::uint64_t place = 0; place < count; ++place) {
    deeds.push_back(deed_at(place, has_namespaces(isolation)));
    cases.push_back(case_at(place, deeds.back()));
  }
  Header header;
  header.testees.push_back({.name = "hostile", .dtypes = {"f32"}});
  std::ostringstream out;
  const Record record = run(
      cases, testees, header,
      {.jobs = crew.jobs, .workers = crew.workers, .limits = limits, .give_up_after = 0},
      [&](const Testee& t) {
        return std::make_unique<WorkerExecutor>(worker_options(t, limits, {}));
      },
      out, [](const VerdictRecord&) {}, [] { return false; });

  ASSERT_TRUE(record.footer);
  ASSERT_EQ(record.verdicts.size(), count);
  for (std::uint64_t place = 0; place < count; ++place) {
    const VerdictRecord& v = record.verdicts[place];
    const Consequence expected = consequence(deeds[place]);
    EXPECT_EQ(v.case_id, cases[place].id);
    if (deeds[place] == Deed::writes_late) {  // where and when it hits is a matter of time
      EXPECT_THAT(v.verdict.outcome, testing::AnyOf(Outcome::pass, Outcome::fail));
      continue;
    }
    EXPECT_EQ(v.verdict.outcome, expected.outcome)
        << "deed " << static_cast<int>(deeds[place]) << ": " << v.verdict.message;
    EXPECT_EQ(v.verdict.reason, expected.reason) << v.verdict.message;
  }
}

}  // namespace
}  // namespace attest
