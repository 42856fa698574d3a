#include "harness/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <sstream>
#include <thread>

#include "harness/process/arena.h"
#include "harness/run/jobs.h"

namespace attest {
namespace {

using ::testing::ElementsAre;

// Answers every request with "refused"; or breaks our own side, where the test wants that.
class RefusingExecutor : public Executor {
 public:
  explicit RefusingExecutor(bool broken, std::function<bool()> interrupted = {})
      : broken_(broken), interrupted_(std::move(interrupted)) {}
  Reply execute(nlohmann::json) override {
    if (broken_) throw std::runtime_error("no more processes");
    if (interrupted_ && interrupted_()) return {.kind = Reply::Kind::interrupted};
    return {.body = {{"status", "refused"}, {"message", "not today"}}};
  }
  Arena& arena(std::size_t) override { return arena_; }

 private:
  bool broken_;
  std::function<bool()> interrupted_;
  Arena arena_{1 << 16};
};

std::vector<Case> cases(int count) {
  std::vector<Case> result;
  for (int i = 0; i < count; ++i) {
    Case c;
    c.id = "test/run/n=" + std::to_string(i) + "/dtype=f32/data=normal/s=1";
    c.clauses = {"MASK-1"};
    c.data = "normal";
    result.push_back(c);
  }
  return result;
}

Testee testee(const std::string& name) {
  Description description;
  description.dtypes = {DType::f32};
  return {.name = name,
          .spec = "./" + name + ".so",
          .kernel = name,
          .command = {},
          .description = std::move(description)};
}

Record run_all(
    int jobs, bool broken, std::ostream& out, int count = 40,
    const std::function<bool()>& interrupted = [] { return false; }) {
  Header header;
  header.testees = {{.name = "a"}, {.name = "b"}};
  return run(
      cases(count), {testee("a"), testee("b")}, header, {.jobs = jobs},
      [&](const Testee&) { return std::make_unique<RefusingExecutor>(broken, interrupted); }, out,
      [](const VerdictRecord&) {}, interrupted);
}

TEST(RunTest, EveryCaseHasOneVerdictWithEveryTesteeInOrderForAnyNumberOfJobs) {
  for (const int jobs : {1, 4}) {
    std::stringstream out;
    run_all(jobs, false, out);
    const Record record = read_record(out);
    ASSERT_EQ(record.verdicts.size(), 80u);
    for (std::size_t i = 0; i < 80; ++i) {
      EXPECT_EQ(record.verdicts[i].case_id, cases(40)[i / 2].id);
      EXPECT_EQ(record.verdicts[i].testee, i % 2 == 0 ? "a" : "b");
      EXPECT_EQ(record.verdicts[i].verdict.reason, "wrong_refusal");
    }
    ASSERT_TRUE(record.footer);
    EXPECT_EQ(record.footer->counts.at("FAIL"), 80);
    EXPECT_EQ(record.footer->exit_code, 1);
  }
}

// Notes who was called, in the order of the calls.
class NotingExecutor : public RefusingExecutor {
 public:
  NotingExecutor(std::string name, std::vector<std::string>& called, std::mutex& mutex)
      : RefusingExecutor(false), name_(std::move(name)), called_(called), mutex_(mutex) {}
  Reply execute(nlohmann::json request) override {
    const std::lock_guard lock(mutex_);
    called_.push_back(name_);
    return RefusingExecutor::execute(std::move(request));
  }

 private:
  std::string name_;
  std::vector<std::string>& called_;
  std::mutex& mutex_;
};

TEST(RunTest, CaseKeepsItsMemoryUntilItsLastTesteeIsJudged) {
  std::vector<std::string> called;
  std::mutex mutex;
  std::ostringstream out;
  const auto all = cases(40);
  run(
      all, {testee("a"), testee("b")}, Header(),
      {.jobs = 4, .memory = bytes_to_judge(all[0].problem)},
      [&](const Testee& t) { return std::make_unique<NotingExecutor>(t.name, called, mutex); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
  called.erase(std::unique(called.begin(), called.end()), called.end());
  EXPECT_EQ(called.size(), 80u);  // a, b, a, b: never two cases at a time
}

// Waits in a call until all testees are in one, or too long.
class MeetingExecutor : public RefusingExecutor {
 public:
  struct Meeting {
    std::mutex mutex;
    std::condition_variable arrived;
    int present = 0, expected = 0;
    bool met = false;
  };
  explicit MeetingExecutor(Meeting& meeting) : RefusingExecutor(false), meeting_(meeting) {}
  Reply execute(nlohmann::json request) override {
    std::unique_lock lock(meeting_.mutex);
    meeting_.met |= ++meeting_.present == meeting_.expected;
    meeting_.arrived.notify_all();
    meeting_.arrived.wait_for(lock, std::chrono::seconds(20), [&] { return meeting_.met; });
    --meeting_.present;
    return RefusingExecutor::execute(std::move(request));
  }

 private:
  Meeting& meeting_;
};

TEST(RunTest, TesteesAreTriedBesideEachOtherOnACaseThatTakesSeconds) {
  MeetingExecutor::Meeting meeting;
  meeting.expected = 3;
  std::vector<Case> all = cases(2);
  all[1].excerpt = 1;
  std::stringstream out;
  run(
      all, {testee("a"), testee("b"), testee("c")}, Header(), {.jobs = 4},
      [&](const Testee&) { return std::make_unique<MeetingExecutor>(meeting); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
  EXPECT_TRUE(meeting.met);
  std::string order;
  for (const VerdictRecord& v : read_record(out).verdicts) order += v.testee + v.case_id[11];
  EXPECT_EQ(order, "a0b0c0a1b1c1");
}

TEST(RunTest, OurOwnFailureBecomesAHarnessErrorAndTheRunGoesOn) {
  std::stringstream out;
  const Record record = run_all(2, true, out);
  ASSERT_EQ(record.verdicts.size(), 80u);
  EXPECT_EQ(record.verdicts[7].verdict.outcome, Outcome::harness_error);
  EXPECT_EQ(record.verdicts[7].verdict.message, "no more processes");
  EXPECT_EQ(record.footer->exit_code, 2);
}

// Fails on our side in the middle of every other call, whose reply is then still to come.
class FalteringExecutor : public RefusingExecutor {
 public:
  FalteringExecutor() : RefusingExecutor(false) {}
  Reply execute(nlohmann::json request) override {
    if (pending_) return {.kind = Reply::Kind::protocol_error, .message = "an earlier reply"};
    pending_ = (calls_++ % 2 == 0);
    if (pending_) throw std::runtime_error("no more descriptors");
    return RefusingExecutor::execute(std::move(request));
  }
  void renew() override { pending_ = false; }

 private:
  bool pending_ = false;
  int calls_ = 0;
};

TEST(RunTest, FailureOfOurOwnIsNotBlamedOnTheNextCase) {
  std::stringstream out;
  const Record record = run(
      cases(10), {testee("a")}, {}, {.jobs = 1},
      [](const Testee&) { return std::make_unique<FalteringExecutor>(); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
  for (const VerdictRecord& v : record.verdicts) {
    EXPECT_NE(v.verdict.outcome, Outcome::protocol_error) << v.case_id;
  }
}

// Has as many time-outs as it is told, of calls on a machine with other work or without.
class SlowExecutor : public RefusingExecutor {
 public:
  SlowExecutor(int time_outs, bool busy, int& calls)
      : RefusingExecutor(false), left_(time_outs), busy_(busy), calls_(calls) {}
  Reply execute(nlohmann::json request) override {
    ++calls_;
    if (left_ == 0) return RefusingExecutor::execute(std::move(request));
    --left_;
    const TimeEvidence time = {.wall_s = 3, .cpu_s = 1, .idle_s = 2, .busy = busy_};
    return {.kind = Reply::Kind::timed_out, .message = "late", .time = time};
  }

 private:
  int left_;
  bool busy_;
  int& calls_;
};

Record run_slowly(int count, int time_outs, bool busy, int& calls, RunOptions options = {}) {
  std::stringstream out;
  return run(
      cases(count), {testee("a")}, {}, options,
      [&](const Testee&) { return std::make_unique<SlowExecutor>(time_outs, busy, calls); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
}

// Has no memory for as many calls as it is told, in its own words. Notes the numbers of queries.
class PoorExecutor : public RefusingExecutor {
 public:
  PoorExecutor(int calls, std::string reason, std::vector<int>* asked = nullptr)
      : RefusingExecutor(false), left_(calls), reason_(std::move(reason)), asked_(asked) {}
  Reply execute(nlohmann::json request) override {
    if (asked_) asked_->push_back(request.at("problem").at("query_len"));
    if (left_ == 0) return RefusingExecutor::execute(std::move(request));
    --left_;
    return {.body = {{"status", "error"}, {"reason", reason_}, {"message", "of 80 GiB none"}}};
  }

 private:
  int left_;
  std::string reason_;
  std::vector<int>* asked_;
};

Verdict run_poorly(int calls, const std::string& reason) {
  std::stringstream out;
  return run(
             cases(1), {testee("a")}, {}, {},
             [&](const Testee&) { return std::make_unique<PoorExecutor>(calls, reason); }, out,
             [](const VerdictRecord&) {}, [] { return false; })
      .verdicts.at(0)
      .verdict;
}

TEST(RunTest, WhoLacksMemoryIsTriedAgainAloneAndThenNotJudged) {
  EXPECT_EQ(run_poorly(1, "no_memory").reason, "wrong_refusal") << "as the second try has it";
  const Verdict never = run_poorly(9, "no_memory");
  EXPECT_EQ(never.outcome, Outcome::not_run);
  EXPECT_EQ(never.reason, "no_memory");
  EXPECT_NE(never.message.find("of 80 GiB none"), std::string::npos);
  EXPECT_EQ(run_poorly(9, "no_time").reason, "wrong_refusal");
}

TEST(RunTest, WhatLacksMemoryIsTriedAgainWhenAllOthersHaveTheirVerdicts) {
  std::vector<Case> three = cases(3);
  for (int i = 0; i < 3; ++i) three[i].problem.query_len = 10 + i;
  std::vector<int> asked;  // by the number of queries
  std::stringstream out;
  const auto make = [&](const Testee&) {
    return std::make_unique<PoorExecutor>(asked.empty() ? 1 : 0, "no_memory", &asked);
  };
  const Record record = run(
      three, {testee("a")}, {}, {}, make, out, [](const VerdictRecord&) {}, [] { return false; });
  EXPECT_THAT(asked, ElementsAre(10, 11, 12, 10));
  EXPECT_EQ(record.verdicts.size(), 3u);
  for (const VerdictRecord& v : record.verdicts) EXPECT_EQ(v.verdict.reason, "wrong_refusal");
}

TEST(RunTest, WhatLacksMemoryBesideManyIsTriedBesideFewerFirst) {
  for (const auto& [jobs, tries] : {std::pair(1, 3), {16, 4}, {64, 5}}) {
    std::vector<int> asked;
    std::stringstream out;
    const auto make = [&](const Testee&) {
      return std::make_unique<PoorExecutor>(1, "no_memory", &asked);
    };
    run(
        cases(1), {testee("a")}, {}, {.jobs = jobs}, make, out, [](const VerdictRecord&) {},
        [] { return false; });
    EXPECT_EQ(asked.size(), tries) << jobs;
  }
}

TEST(RunTest, TimeOutOnABusyMachineIsTriedAgainAloneAndBothTimesAreKept) {
  int calls = 0;
  const Verdict again = run_slowly(1, 1, true, calls).verdicts.at(0).verdict;
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(again.reason, "wrong_refusal") << "as the second try has it";
  ASSERT_EQ(again.time.size(), 1u);
  EXPECT_EQ(again.time[0].idle_s, 2);

  const Verdict twice = run_slowly(1, 2, true, calls).verdicts.at(0).verdict;
  EXPECT_EQ(twice.outcome, Outcome::timeout);
  EXPECT_EQ(twice.time.size(), 2u);
}

TEST(RunTest, TimeOutOnAQuietMachineIsBelieved) {
  int calls = 0;
  const Verdict once = run_slowly(1, 1, false, calls).verdicts.at(0).verdict;
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(once.outcome, Outcome::timeout);
  EXPECT_EQ(once.time.size(), 1u);
}

TEST(RunTest, AfterSoManyTimeOutsTheRestOfATesteeIsNotRunAndTheRunIncomplete) {
  int calls = 0;
  const Record record = run_slowly(40, 40, false, calls, {.give_up_after = 3});
  EXPECT_EQ(calls, 3);
  ASSERT_EQ(record.verdicts.size(), 40u);
  EXPECT_EQ(record.footer->counts.at("TIMEOUT"), 3);
  EXPECT_EQ(record.footer->counts.at("NOT_RUN"), 37);
  EXPECT_EQ(record.verdicts.back().verdict.reason, "gave_up");
  EXPECT_NE(record.verdicts.back().verdict.repro, "");
  EXPECT_EQ(run_slowly(40, 40, false, calls, {.give_up_after = 0}).footer->counts.at("TIMEOUT"),
            40);
}

// The first calls end once as many are under way as there are jobs.
class SlowTogether : public RefusingExecutor {
 public:
  explicit SlowTogether(std::latch& all) : RefusingExecutor(false), all_(all) {}
  Reply execute(nlohmann::json) override {
    if (!all_.try_wait()) all_.arrive_and_wait();
    return {.kind = Reply::Kind::timed_out, .message = "late", .time = {}};
  }

 private:
  std::latch& all_;
};

TEST(RunTest, CallsUnderWayWhenATesteeIsGivenUpAddNoTimeOutToIt) {
  std::latch all(8);
  std::stringstream out;
  const Record record = run(
      cases(40), {testee("a")}, {}, {.jobs = 8, .workers = 8, .give_up_after = 3},
      [&](const Testee&) { return std::make_unique<SlowTogether>(all); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
  EXPECT_EQ(record.footer->counts.at("TIMEOUT"), 3);
  EXPECT_EQ(record.footer->counts.at("NOT_RUN"), 37);
}

TEST(RunTest, FailFastAndMaxTimeLeaveTheRestUntried) {
  int calls = 0;
  const Record failed = run_slowly(40, 40, false, calls, {.fail_fast = true});
  EXPECT_EQ(failed.footer->counts.at("NOT_RUN"), 39);
  EXPECT_EQ(failed.verdicts.back().verdict.reason, "fail_fast");
  EXPECT_EQ(failed.footer->exit_code, 1);
  const Record late = run_slowly(40, 0, false, calls, {.max_seconds = 1e-9});
  EXPECT_EQ(late.footer->counts.at("NOT_RUN"), 40);
  EXPECT_EQ(late.verdicts.back().verdict.reason, "max_time");
  EXPECT_EQ(late.footer->exit_code, 3);
}

TEST(RunTest, WhoWorksAloneHasNobodyBeside) {
  Floor floor;
  std::atomic<int> working = 0, most_beside = 0;
  const auto work = [&] {
    ++working;
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
    const int beside = working - 1;
    --working;
    return beside;
  };
  in_parallel(8, [&] {
    for (int i = 0; i < 100; ++i) {
      floor.among_others(work);
      if (i % 5 == 0) most_beside = std::max(most_beside.load(), floor.alone(work));
    }
  });
  EXPECT_EQ(most_beside, 0);
}

TEST(RunTest, InterruptedRunLeavesARecordWithoutFooter) {
  std::stringstream out;
  std::atomic<int> asked = 0;
  run_all(1, false, out, 40, [&] { return ++asked > 5; });
  const Record record = read_record(out);
  EXPECT_FALSE(record.footer);
  EXPECT_GT(record.verdicts.size(), 0u);
  EXPECT_LT(record.verdicts.size(), 80u);
  for (const VerdictRecord& v : record.verdicts) {
    EXPECT_EQ(v.verdict.reason, "wrong_refusal");  // what was broken off is no verdict
  }
}

TEST(RunTest, FormatBeyondTheCapsHasOneVerdictBeforeAllOthersIfItIsTried) {
  Testee beyond = testee("b");
  beyond.description.beyond_caps = {{DType::f32, "adds in f16"}, {DType::bf16, "as well"}};
  Header header;
  header.testees = {{.name = "a"}, {.name = "b"}};
  std::stringstream out;
  run(
      cases(3), {testee("a"), beyond}, header, {.jobs = 2, .from = "mine.json"},
      [&](const Testee&) { return std::make_unique<RefusingExecutor>(false); }, out,
      [](const VerdictRecord&) {}, [] { return false; });
  const Record record = read_record(out);
  ASSERT_EQ(record.verdicts.size(), 7u);
  const VerdictRecord& first = record.verdicts[0];
  EXPECT_EQ(first.case_id, "declaration/beyond_caps/dtype=f32");
  EXPECT_EQ(first.testee, "b");
  EXPECT_EQ(first.dtype, "f32");
  EXPECT_EQ(first.verdict.outcome, Outcome::fail);
  EXPECT_EQ(first.verdict.reason, "beyond_caps");
  EXPECT_EQ(first.verdict.clauses, std::vector<std::string>{"NUM-2"});
  EXPECT_THAT(first.verdict.message, testing::HasSubstr("adds in f16"));
  EXPECT_EQ(first.verdict.repro,
            "attest run --testee ./b.so --cases " + cases(1)[0].id + " --from mine.json");
  EXPECT_EQ(record.footer->counts.at("FAIL"), 1 + 6) << "refusals besides";
  EXPECT_EQ(record.footer->exit_code, 1);
}

TEST(RunTest, ReproLineIsQuotedForAShell) {
  Testee odd = testee("x");
  odd.spec = "exec:python3 'my kernel.py'";
  EXPECT_EQ(repro_line(cases(1)[0], odd, {}),
            "attest repro test/run/n=0/dtype=f32/data=normal/s=1 --testee 'exec:python3 '\\''my "
            "kernel.py'\\'''");
}

TEST(RunTest, ReproLineOfACaseOfOthersNamesItsFile) {
  EXPECT_EQ(repro_line(cases(1)[0], testee("x"), {.from = "/a/my cases.json"}),
            "attest repro test/run/n=0/dtype=f32/data=normal/s=1 --testee ./x.so --from "
            "'/a/my cases.json'");
}

}  // namespace
}  // namespace attest
