#include "harness/process/worker.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "harness/process/captured.h"
#include "harness/process/descriptor.h"
#include "harness/process/processes.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using Kind = Reply::Kind;

WorkerExecutor rogue(const std::string& way, Isolation isolation = Isolation::none) {
  return WorkerExecutor(
      {.command = {ROGUE, way},
       .limits = {.start_seconds = 20, .call_seconds = 20, .memory_bytes = 1 << 30},
       .isolation = isolation});
}

Surroundings hiding(const std::vector<std::string>& files) {
  Surroundings around;
  hide(around, files);
  return around;
}

TEST(WorkerTest, HonestProgramIsAnsweredAgainAndAgain) {
  WorkerExecutor worker = rogue("honest");
  for (int i = 0; i < 3; ++i) {
    const Reply reply = worker.execute({{"op", "describe"}});
    EXPECT_TRUE(reply.ok()) << reply.message;
  }
}

TEST(WorkerTest, ReplyThatEndsTheWorkerIsItsLast) {
  WorkerExecutor worker = rogue("ends");
  const Reply first = worker.execute({{"op", "describe"}});
  EXPECT_EQ(first.kind, Kind::answered);
  EXPECT_EQ(first.body.at("message"), "the device is lost");
  EXPECT_TRUE(worker.settle().ok());
  const Reply second = worker.execute({{"op", "describe"}});
  EXPECT_EQ(second.kind, Kind::answered);
  EXPECT_NE(first.body.at("pid"), second.body.at("pid"));
}

// "S", "R" or "T", as the system tells it; empty of a process that there is not.
std::string state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(") ");
  return name_ends == text.npos ? "" : text.substr(name_ends + 2, 1);
}

// Of all processes that this one has started, once `wanted` is true of each, or after some seconds.
template <class Wanted>
std::vector<std::string> states_once(const Wanted& wanted) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    std::vector<std::string> states;
    for (const pid_t pid : family_of(getpid())) {
      if (pid != getpid()) states.push_back(state_of(pid));
    }
    const bool all = std::all_of(states.begin(), states.end(), wanted);
    if (all || std::chrono::steady_clock::now() - start > std::chrono::seconds(5)) return states;
  }
}

TEST(WorkerTest, WhoIsStillBetweenRequestsIsStoppedWithAllThatItStarted) {
  WorkerExecutor worker({.command = {ROGUE, "in_a_session"},
                         .limits = {.start_seconds = 20, .call_seconds = 20},
                         .still_between_requests = true});
  for (int i = 1; i < 3; ++i) {
    const Reply reply = worker.execute({{"op", "describe"}});
    ASSERT_TRUE(reply.ok()) << reply.message;
    EXPECT_GT(reply.wall_seconds.value_or(0), 0);
    EXPECT_TRUE(worker.is_stillness_told());
    // Itself, and a child in a session of its own for each request.
    const auto states = states_once([](const std::string& each) { return each == "T"; });
    EXPECT_THAT(states, AllOf(SizeIs(1 + i), Each("T")));
  }
  worker.renew();
  EXPECT_THAT(states_once([](const std::string& each) { return each.empty(); }), Each(""));
}

TEST(WorkerTest, WhoGoesOnByItselfWhenItIsStoppedIsTold) {
  WorkerExecutor worker({.command = {ROGUE, "wakes_itself"},
                         .limits = {.start_seconds = 20, .call_seconds = 20},
                         .still_between_requests = true});
  Reply reply;
  for (int requests = 0; reply.kind == Kind::answered && requests < 10; ++requests) {
    reply = worker.execute({{"op", "describe"}});
    if (reply.ok()) states_once([](const std::string& each) { return each != "T"; });
  }
  EXPECT_EQ(reply.kind, Kind::protocol_error);
  EXPECT_THAT(reply.message, HasSubstr("went on by itself between two requests"));
}

TEST(WorkerTest, OthersGoOnBetweenRequests) {
  WorkerExecutor worker = rogue("in_a_session");
  const Reply reply = worker.execute({{"op", "describe"}});
  ASSERT_TRUE(reply.ok()) << reply.message;
  EXPECT_FALSE(reply.wall_seconds);
  const auto states = states_once([](const std::string& each) { return each != "R"; });
  EXPECT_THAT(states, AllOf(SizeIs(2), Each(Not("T"))));
}

// A program of the shell that everybody may run.
std::string script(const std::string& name, const std::string& text) {
  const std::string file = testing::TempDir() + "/" + name;
  std::ofstream(file) << "#!/bin/sh\n" << text << "\n";
  std::filesystem::permissions(file, std::filesystem::perms(0755));
  return file;
}

TEST(WorkerTest, SanitizerStartsTheWorkerWhichHasItsDescriptors) {
  const std::string sanitizer = script("sanitizer.sh", "echo under $1 >&2; shift; exec \"$@\"");
  for (const Isolation isolation : {Isolation::none, strongest_isolation({sanitizer, ROGUE})}) {
    WorkerExecutor worker({.command = {ROGUE, "honest"},
                           .isolation = isolation,
                           .around = {.sanitizer = sanitizer_called(sanitizer + " watch")}});
    for (int i = 0; i < 2; ++i) {
      const Reply reply = worker.execute({{"op", "describe"}});
      EXPECT_TRUE(reply.ok()) << reply.message << reply.captured;
      EXPECT_EQ(reply.captured, i == 0 ? "under watch\n" : "");
    }
  }
}

TEST(WorkerTest, ReplyAsDeepAsAllowedIsRead) {
  const Reply reply = rogue("as_deep_as_allowed").execute({{"op", "describe"}});
  EXPECT_TRUE(reply.ok()) << reply.message;
}

struct Breach {
  const char* way;
  Kind kind;
  const char* message;
};

class BreachTest : public testing::TestWithParam<Breach> {};

TEST_P(BreachTest, IsNamedAndTheNextRequestMeetsAFreshProgram) {
  WorkerExecutor worker = rogue(GetParam().way);
  for (int i = 0; i < 2; ++i) {
    const Reply reply = worker.execute({{"op", "describe"}});
    EXPECT_EQ(reply.kind, GetParam().kind);
    EXPECT_THAT(reply.message, HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllWays, BreachTest,
    testing::Values(Breach{"wrong_nonce", Kind::protocol_error, "a reply to another request"},
                    Breach{"no_nonce", Kind::protocol_error, "a reply to another request"},
                    Breach{"no_json", Kind::protocol_error, "no JSON object"},
                    Breach{"no_object", Kind::protocol_error, "no JSON object"},
                    Breach{"key_twice", Kind::protocol_error, "the key \"batch\" twice"},
                    Breach{"doubled", Kind::protocol_error, "more than one reply"},
                    Breach{"absurd_length", Kind::protocol_error, "a malformed frame"},
                    Breach{"deep", Kind::protocol_error, "nests too deep"},
                    Breach{"one_deeper", Kind::protocol_error, "nests too deep"},
                    Breach{"half", Kind::crashed, "exited with status 0 in the middle"},
                    Breach{"exits", Kind::crashed, "exited with status 3 in the middle"},
                    Breach{"closes", Kind::protocol_error, "closed its end of the protocol"}),
    [](const auto& breach) {
      std::string name = breach.param.way;
      std::erase(name, '_');
      return name;
    });

TEST(WorkerTest, SilentProgramRunsIntoItsTimeLimit) {
  WorkerExecutor worker({.command = {ROGUE, "silent"}, .limits = {.start_seconds = 0.2}});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_EQ(reply.kind, Kind::timed_out);
  EXPECT_THAT(reply.message, HasSubstr("no reply within 0.2 s in which it was idle"));
  ASSERT_TRUE(reply.time);
  EXPECT_GE(reply.time->wall_s, reply.time->idle_s);
  EXPECT_LT(reply.time->cpu_s, 0.1);
}

TEST(WorkerTest, ProgramThatComputesRunsIntoTheLimitOfItsBusiestThread) {
  WorkerExecutor worker({.command = {ROGUE, "computes", "1000"}, .limits = {.start_seconds = 0.2}});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_EQ(reply.kind, Kind::timed_out);
  EXPECT_THAT(reply.message, HasSubstr("no reply within 0.2 s of its busiest thread"));
  EXPECT_GE(reply.time->cpu_s, 0.2);
}

// One processor for the worker and four threads that never rest: it gets a fifth of it.
TEST(WorkerTest, TimeThatOtherWorkTakesDoesNotCount) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // what is started here inherits it
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!done) continue;
    });
  }
  WorkerExecutor worker({.command = {ROGUE, "computes", "0.25"}, .limits = {.start_seconds = 0.5}});
  const auto start = std::chrono::steady_clock::now();
  const Reply reply = worker.execute({{"op", "describe"}});
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  done = true;
  for (std::thread& other : others) other.join();
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_TRUE(reply.ok()) << reply.message;
  EXPECT_GT(wall.count(), 0.5) << "or nothing was tried";
}

TEST(WorkerTest, TimeOfAProcessIsToldWhateverItCallsItself) {
  while (std::clock() < CLOCKS_PER_SEC / 20) continue;
  std::array<char, 16> before{};
  prctl(PR_GET_NAME, before.data());
  prctl(PR_SET_NAME, "a\nb) R 1");
  const double seconds = cpu_seconds({getpid()});
  prctl(PR_SET_NAME, before.data());
  EXPECT_GT(seconds, 0);
}

TEST(WorkerTest, ThreadsCountInTheMeanOverACall) {
  const auto running = [](const char* rounds, const char* threads) {
    WorkerExecutor worker(
        {.command = {ROGUE, "threads", rounds, threads}, .limits = {.start_seconds = 20}});
    const Reply reply = worker.measure({{"op", "forward"}});
    EXPECT_TRUE(reply.ok()) << reply.message;
    return reply.running_threads;
  };
  EXPECT_LE(running("8", "1"), 1.1) << "one after the other";
  EXPECT_GT(running("2", "8"), 2) << "at once, whether there are processors for them or not";
}

TEST(WorkerTest, CallThatIsMeasuredSaysSo) {
  WorkerExecutor worker = rogue("repeats");
  const nlohmann::json request = {{"op", "forward"}};
  EXPECT_FALSE(worker.execute(request).body.at("asked").contains("measured"));
  EXPECT_EQ(worker.measure(request).body.at("asked").at("measured"), true);
  EXPECT_FALSE(worker.execute(request).body.at("asked").contains("measured"));
}

TEST(WorkerTest, FolderAboveWhatIsReadOnlyStaysInItsPlace) {
  const std::filesystem::path folder = testing::TempDir() + "attest_above";
  std::filesystem::create_directories(folder / "inst" / "bin");
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  std::filesystem::permissions(folder / "inst", std::filesystem::perms::all);
  const Isolation strongest = strongest_isolation({ROGUE});
  if (!has_namespaces(strongest)) GTEST_SKIP() << "no namespaces here";
  for (const Isolation isolation : {strongest, Isolation::user_namespace}) {
    Surroundings around;
    around.read_only = {(folder / "inst" / "bin").string()};
    WorkerExecutor worker({.command = {ROGUE, "moves", (folder / "inst").string()},
                           .limits = {.start_seconds = 20},
                           .isolation = isolation,
                           .around = around});
    EXPECT_TRUE(worker.execute({{"op", "describe"}}).ok());
    EXPECT_TRUE(std::filesystem::exists(folder / "inst" / "bin"));
    EXPECT_FALSE(std::filesystem::exists(folder / "inst.gone"));
  }
  std::filesystem::remove_all(folder);
}

TEST(WorkerTest, ProgramThatEndedIsKnownThoughItsChildHoldsTheStream) {
  WorkerExecutor worker({.command = {ROGUE, "leaves_the_stream"}, .limits = {.start_seconds = 20}});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_EQ(reply.kind, Kind::crashed);
  EXPECT_THAT(reply.message, HasSubstr("exited with status 3"));
}

TEST(WorkerTest, ProcessInASessionOfItsOwnEndsWithItsWorker) {
  Descriptor child;
  {
    WorkerExecutor worker = rogue("in_a_session");
    const Reply reply = worker.execute({{"op", "describe"}});
    child = {static_cast<int>(syscall(SYS_pidfd_open, reply.body.at("child").get<pid_t>(), 0)),
             "pidfd_open"};
  }
  pollfd ended = {child.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 10'000), 1);
}

TEST(WorkerTest, SecondReplyIsKnownBeforeItMeetsTheNextCase) {
  WorkerExecutor worker = rogue("doubled_late");
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());
  const Reply late = worker.settle();
  EXPECT_EQ(late.kind, Kind::protocol_error);
  EXPECT_THAT(late.message, AnyOf(HasSubstr("a second reply to the request before"),
                                  HasSubstr("more than one reply")));
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());  // of a fresh program
}

TEST(WorkerTest, ReplyToAnEarlierRequestIsCalledThat) {
  WorkerExecutor worker = rogue("recalls");
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());
  const Reply late = worker.execute({{"op", "forward"}});
  EXPECT_EQ(late.kind, Kind::protocol_error);
  EXPECT_THAT(late.message, HasSubstr("a second reply to an earlier request"));
}

TEST(WorkerTest, WhatNobodyElseMayReadRunsInNamespacesToo) {
  const std::string own = testing::TempDir() + "attest_own";
  std::ofstream(own) << "library";
  std::filesystem::permissions(own, std::filesystem::perms::owner_read);
  if (!has_namespaces(strongest_isolation({ROGUE}))) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(strongest_isolation({ROGUE, own}), Isolation::user_namespace);
}

TEST(WorkerTest, HiddenFileIsEmptyToAWorkerAndItsFolderIsNot) {
  const std::string folder = testing::TempDir();
  const std::string record = folder + "attest_record", beside = folder + "attest_beside";
  std::ofstream(record) << "secret";
  std::ofstream(beside) << "library";
  const Isolation isolation = strongest_isolation({ROGUE, record, beside});
  if (!has_namespaces(isolation)) {
    GTEST_SKIP() << "no namespaces here";
  }
  const auto read = [&](const std::string& file) {
    WorkerExecutor worker({.command = {ROGUE, "reads", file},
                           .limits = {.start_seconds = 20},
                           .isolation = isolation,
                           .around = hiding({record, folder + "attest_nonexistent"})});
    return worker.execute({{"op", "describe"}}).body;
  };
  EXPECT_EQ(read(record).at("text"), "");
  EXPECT_EQ(read(beside).at("text"), "library");
  std::ifstream still(record);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(still), {}), "secret");
}

TEST(WorkerTest, FolderOfTheRecordCannotBeChangedOrMovedAway) {
  const std::filesystem::path folder = testing::TempDir() + "attest_out";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  const std::string record = folder / "results.jsonl";
  std::ofstream(record) << "secret";
  const Isolation strongest = strongest_isolation({ROGUE});
  if (!has_namespaces(strongest)) GTEST_SKIP() << "no namespaces here";
  for (const Isolation isolation : {strongest, Isolation::user_namespace}) {
    WorkerExecutor worker({.command = {ROGUE, "moves", folder},
                           .limits = {.start_seconds = 20},
                           .isolation = isolation,
                           .around = hiding({record, folder / "index.html"})});
    EXPECT_TRUE(worker.execute({{"op", "describe"}}).ok());
    EXPECT_TRUE(std::filesystem::exists(record));
    EXPECT_FALSE(std::filesystem::exists(folder / "index.html"));
    EXPECT_FALSE(std::filesystem::exists(folder.string() + ".gone"));
  }
  std::filesystem::remove_all(folder);
}

TEST(WorkerTest, WhatACaseLeavesRunningEndsWithIt) {
  WorkerExecutor worker = rogue("leaves_child");
  EXPECT_EQ(worker.execute({{"op", "describe"}}).body.at("requests"), 1);
  EXPECT_EQ(worker.execute({{"op", "forward"}}).body.at("requests"), 2);
  EXPECT_TRUE(worker.settle().ok());
  EXPECT_EQ(worker.execute({{"op", "forward"}}).body.at("requests"), 1);
}

TEST(WorkerTest, TooManyProcessesAreStopped) {
  WorkerExecutor worker(
      {.command = {ROGUE, "forks"}, .limits = {.start_seconds = 20, .processes = 100}});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_EQ(reply.kind, Kind::crashed);
  EXPECT_THAT(reply.message, HasSubstr("started more than 100 processes"));
}

TEST(WorkerTest, WhoeverAnswersOnceSettles) {
  WorkerExecutor worker = rogue("honest");
  EXPECT_TRUE(worker.settle().ok());  // nothing was asked, nobody is there
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());
  EXPECT_TRUE(worker.settle().ok());
}

TEST(WorkerTest, MemoryThatACaseFilledIsNotKept) {
  WorkerExecutor worker = rogue("honest");
  const std::size_t much = std::size_t(300) << 20;
  std::memset(worker.arena(much).inputs(), 1, much);
  EXPECT_GE(worker.arena(1).used(), much);
  EXPECT_TRUE(worker.execute({{"op", "forward"}}).ok());
  EXPECT_TRUE(worker.settle().ok());
  EXPECT_LT(worker.arena(1).used(), much);
}

// Less than the 64 MiB that the programs below take, and more than a program under a sanitizer has
// of its own: some 35 MiB with the shadow of all that it reads.
constexpr std::size_t kLimitMiB = 48;
constexpr Limits kLimits = {.start_seconds = 20, .memory_bytes = kLimitMiB << 20};

// What a program called with `way`, which takes 64 MiB, comes to under that limit.
Reply under_a_limit(const std::string& way) {
  WorkerExecutor worker({.command = {ROGUE, way}, .limits = kLimits});
  Arena& arena = worker.arena(1);
  std::memset(arena.inputs(), 0, std::size_t(64) << 20);
  std::memset(arena.outputs(), 0, std::size_t(64) << 20);
  return worker.execute({{"op", "describe"}});
}

TEST(WorkerTest, MemoryCountsWhereverItHides) {
  for (const char* way : {"private_memory", "shared_memory", "unmapped_memory"}) {
    const Reply reply = under_a_limit(way);
    EXPECT_EQ(reply.kind, Kind::out_of_memory) << way;
    EXPECT_THAT(reply.message, HasSubstr("more than 48 MiB"));
  }
}

TEST(WorkerTest, WhatItLeavesInSharedMemoryIsLimitedAndGoneWithIt) {
  const Isolation isolation = strongest_isolation({ROGUE});
  if (!has_namespaces(isolation)) GTEST_SKIP() << "no namespaces here";
  // A sanitizer makes its own memory large, which counts.
  constexpr std::size_t kRoomy = std::size_t(256) << 20;
  WorkerExecutor worker({.command = {ROGUE, "shared_files"},
                         .limits = {.start_seconds = 20, .memory_bytes = kRoomy},
                         .isolation = isolation});
  const Reply reply = worker.execute({{"op", "describe"}});
  ASSERT_TRUE(reply.ok()) << reply.message;
  EXPECT_LE(reply.body.at("bytes").get<std::size_t>(), kRoomy);
  EXPECT_FALSE(std::filesystem::exists("/dev/shm/attest_rogue0"));
}

TEST(WorkerTest, ArenaCountsForNobody) {
#ifdef WATCHED_TESTEES
  GTEST_SKIP() << "the thread sanitizer keeps a shadow of it, which counts";
#endif
  const Reply reply = under_a_limit("arena");
  EXPECT_TRUE(reply.ok()) << reply.message;
}

TEST(WorkerTest, ProgramThatIsNotThereSaysSo) {
  WorkerExecutor worker({.command = {"/nonexistent/worker"}});
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_EQ(reply.kind, Kind::crashed);
  EXPECT_THAT(reply.message, HasSubstr("could not be started"));
}

TEST(WorkerTest, WhatItPrintsIsCapturedUpTo64KiBItsBeginningAndItsEnd) {
  WorkerExecutor worker = rogue("prints");
  const Reply reply = worker.execute({{"op", "describe"}});
  EXPECT_TRUE(reply.ok());
  EXPECT_THAT(reply.captured, SizeIs(64 << 10));
  EXPECT_THAT(reply.captured, AllOf(StartsWith("first words"), EndsWith("last words")));
  // 2 * 64 KiB are never moved, and a megabyte is, some times.
  for (const std::size_t pieces : {60, 66, 70, 130, 200}) {
    Captured captured;
    for (std::size_t i = 0; i < pieces; ++i) captured.add(std::string(1024, 'x'));
    captured.add("end");
    const std::size_t printed = 1024 * pieces + 3;
    EXPECT_THAT(captured.text(), AllOf(SizeIs(std::min(printed, kCaptureBytes)), EndsWith("xend")));
    const std::size_t left_out = printed - kCaptureBytes + 47;  // and the line about it
    if (printed > kCaptureBytes) {
      EXPECT_THAT(captured.text(), HasSubstr(std::to_string(left_out) + " bytes left out"));
    }
  }
}

TEST(WorkerTest, NothingIsOpenInAWorkerButWhatItNeeds) {
  const std::ifstream secret("/proc/self/status");  // stands for whatever else a harness has open
  WorkerExecutor worker = rogue("descriptors");
  const Reply reply = worker.execute({{"op", "describe"}});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.body.at("open"), nlohmann::json({0, 1, 2, 3, 4, 5, 6}));
}

TEST(WorkerTest, OtherUserIsNobodyWithoutGroups) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  // The tree may lie where nobody else may look.
  const auto copy = std::filesystem::temp_directory_path() / fmt::format("rogue_{}", getpid());
  std::filesystem::copy_file(ROGUE, copy, std::filesystem::copy_options::overwrite_existing);
  WorkerExecutor worker({.command = {copy, "identity"},
                         .limits = {.start_seconds = 20, .call_seconds = 20},
                         .isolation = Isolation::other_user});
  const Reply reply = worker.execute({{"op", "describe"}});
  std::filesystem::remove(copy);
  ASSERT_TRUE(reply.ok()) << reply.message;
  EXPECT_EQ(reply.body.at("uid"), kNobody) << "unless another is named";
  EXPECT_EQ(reply.body.at("groups"), 0);
}

TEST(WorkerTest, GrowingTheArenaKeepsAWorkerThatAnswers) {
  WorkerExecutor worker = rogue("honest");
  EXPECT_TRUE(worker.execute({{"op", "describe"}}).ok());
  EXPECT_GE(worker.arena(std::size_t(200) << 20).capacity(), std::size_t(200) << 20);
  EXPECT_TRUE(worker.execute({{"op", "describe"}}).ok());
}

TEST(ProcessorTimeTest, IsNotToldOfThoseWhomNobodyWaitedFor) {
  constexpr double kSeconds = 0.1;
  std::array<int, 2> told = {}, leave = {};
  ASSERT_EQ(pipe(told.data()), 0);
  ASSERT_EQ(pipe(leave.data()), 0);
  struct sigaction unawaited = {}, before = {};
  unawaited.sa_handler = SIG_DFL;
  unawaited.sa_flags = SA_NOCLDWAIT;
  sigaction(SIGCHLD, &unawaited, &before);
  ProcessorTime time({getpid()});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  char byte = 0;
  if (child == 0) {
    while (clock() < kSeconds * CLOCKS_PER_SEC) continue;
    const bool fine = write(told[1], &byte, 1) == 1 && read(leave[0], &byte, 1) == 1;
    _exit(fine ? 0 : 1);
  }
  EXPECT_EQ(read(told[0], &byte, 1), 1);
  time.look({getpid(), child});
  EXPECT_EQ(write(leave[1], &byte, 1), 1);
  EXPECT_EQ(waitpid(child, nullptr, 0), -1) << "until it is gone";
  sigaction(SIGCHLD, &before, nullptr);
  for (const int each : {told[0], told[1], leave[0], leave[1]}) close(each);
  EXPECT_FALSE(time.seconds({getpid()}));
}

TEST(ProcessesTest, FileThatIsCalledAsADriverIsNoGpu) {
  const std::string file = testing::TempDir() + "nvidia0";
  std::ofstream held(file);
  EXPECT_FALSE(have_a_gpu({getpid()}));
}

TEST(ProcessesTest, StandStillOnceTheyAreStoppedWhateverTheirNameIs) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_NAME, "a\nb) T ");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<int> spins = 0;;) ++spins;
  }
  EXPECT_FALSE(stands_still(child));
  EXPECT_TRUE(start_of(child));
  int status = 0;
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(stands_still(child));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_TRUE(stands_still(child));
  EXPECT_FALSE(start_of(child));
}

}  // namespace
}  // namespace attest
