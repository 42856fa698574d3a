// What a testee finds around it, seen from inside.
#include "harness/process/surroundings.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/process/descriptor.h"
#include "harness/process/worker.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class SurroundingsTest : public testing::Test {
 protected:
  // What the program of tests called like that says.
  nlohmann::json said(const std::vector<std::string>& way, const Surroundings& around,
                      Isolation isolation) {
    std::vector<std::string> command = {ROGUE};
    command.insert(command.end(), way.begin(), way.end());
    WorkerExecutor worker({.command = command,
                           .limits = {.start_seconds = 20},
                           .isolation = isolation,
                           .around = around});
    const Reply reply = worker.execute({{"op", "describe"}});
    EXPECT_TRUE(reply.ok()) << reply.message << reply.captured;
    return reply.body;
  }
  nlohmann::json said(const std::vector<std::string>& way, const Surroundings& around = {}) {
    return said(way, around, strongest_);
  }
  // Those with namespaces that there are here.
  std::vector<Isolation> with_namespaces() const {
    if (!has_namespaces(strongest_)) return {};
    return {strongest_, Isolation::user_namespace};
  }

  Isolation strongest_ = strongest_isolation({ROGUE});
};

TEST_F(SurroundingsTest, VariablesPassByNameAndSecretsDoNot) {
  setenv("ATTEST_TEST_SECRET", "token", 1);
  setenv("OMP_NUM_THREADS", "3", 1);
  const auto body = said({"variables", "ATTEST_TEST_SECRET", "OMP_NUM_THREADS", "PATH"});
  EXPECT_TRUE(body.at("ATTEST_TEST_SECRET").is_null());
  EXPECT_EQ(body.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(body.at("PATH"), std::getenv("PATH"));
}

TEST_F(SurroundingsTest, VariablesNamedBesidesPassToo) {
  setenv("ATTEST_TEST_WANTED", "yes", 1);
  EXPECT_THAT(passed_variables({"ATTEST_TEST_W*"}), Contains("ATTEST_TEST_WANTED=yes"));
  EXPECT_THAT(passed_variables({"ATTEST_TEST"}), Not(Contains(StartsWith("ATTEST_TEST_"))));
}

TEST_F(SurroundingsTest, DevicesAreThoseOfTheVariableOrElseOfTheSystem) {
  const fs::path root = fs::path(testing::TempDir()) / "devices";
  fs::remove_all(root);
  EXPECT_THAT(visible_devices(root), IsEmpty());
  fs::create_directories(root / "dev");
  for (const char* name : {"nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "null", "nvidia0a"}) {
    std::ofstream(root / "dev" / name) << "";
  }
  EXPECT_THAT(visible_devices(root), ElementsAre("0", "1"));
  setenv("CUDA_VISIBLE_DEVICES", "GPU-5e3a,3", 1);
  EXPECT_THAT(visible_devices(root), ElementsAre("GPU-5e3a", "3"));
  EXPECT_THAT(seeing("3", {"A=b", "CUDA_VISIBLE_DEVICES=GPU-5e3a,3"}),
              ElementsAre("A=b", "CUDA_VISIBLE_DEVICES=3"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(SurroundingsTest, HomeIsEmptyAndWritableAndSharedByTheWorkersOfACommand) {
  Surroundings around;
  around.homes = std::make_shared<Homes>(false);
  const auto first = said({"litters"}, around), second = said({"litters"}, around);
  EXPECT_THAT(first.at("found"), Each(nlohmann::json("tmp")));
  EXPECT_EQ(first.at("HOME"), true);
  EXPECT_EQ(first.at("TMPDIR"), true);
  EXPECT_THAT(second.at("found"), Contains(nlohmann::json("litter")));
  const fs::path folder = around.homes->folder();
  EXPECT_TRUE(fs::exists(folder));
  around.homes.reset();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(SurroundingsTest, HomesThatAreKeptAreThereAfterwards) {
  fs::path folder;
  {
    Homes homes(true);
    homes.of({"mine"}, Isolation::none);
    folder = homes.folder();
  }
  EXPECT_TRUE(fs::exists(folder));
  fs::remove_all(folder);
}

TEST_F(SurroundingsTest, HomeOfAnotherTesteeIsNotThere) {
  for (const Isolation isolation : with_namespaces()) {
    Surroundings around;
    around.homes = std::make_shared<Homes>(false);
    const std::string other = around.homes->of({"another"}, isolation).string();
    EXPECT_EQ(said({"files", other}, around, isolation).at(other), false);
  }
}

// Of root's testees. The system counts the processes of a user.
TEST_F(SurroundingsTest, ProcessesOfOneTesteeKeepNoOtherFromStarting) {
#ifdef WATCHED_TESTEES
  GTEST_SKIP() << "the thread sanitizer gives each a thread, which counts";
#endif
  const std::vector<std::string> first = {ROGUE, "crowds", "30"}, second = {ROGUE, "crowds", "31"};
  const uid_t one = user_for(first), other = user_for(second);
  if (one == kNobody) GTEST_SKIP() << "only root has users to give";
  EXPECT_NE(one, other);
  EXPECT_EQ(one, user_for(first)) << "for all workers of a testee";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &before), 0);
  const rlimit few = {40, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &few), 0);
  Surroundings around;
  around.homes = std::make_shared<Homes>(false);
  const auto worker = [&](const std::vector<std::string>& command) {
    return WorkerExecutor({.command = command,
                           .limits = {.start_seconds = 20},
                           .isolation = strongest_,
                           .user = user_for(command),
                           .around = around});
  };
  WorkerExecutor crowd = worker(first), beside = worker(second);
  const Reply many = crowd.execute({{"op", "describe"}});
  const Reply more = beside.execute({{"op", "describe"}});
  setrlimit(RLIMIT_NPROC, &before);
  ASSERT_TRUE(many.ok() && more.ok()) << many.message << more.message << more.captured;
  EXPECT_EQ(many.body.at("born"), 30);
  EXPECT_EQ(more.body.at("born"), 31);
}

TEST_F(SurroundingsTest, UserWithoutANameIsGivenOne) {
  EXPECT_THAT(at_home({"PATH=/bin"}, "/tmp/x"), Contains("USER=nobody"));
  EXPECT_THAT(at_home({"PATH=/bin"}, "/tmp/x"), Contains("LOGNAME=nobody"));
  EXPECT_THAT(at_home({"USER=me"}, "/tmp/x"), Not(Contains("USER=nobody")));
}

TEST_F(SurroundingsTest, InstalledPackagesOfTheUserAreStillFound) {
  setenv("HOME", "/home/somebody", 1);
  unsetenv("PYTHONUSERBASE");
  EXPECT_THAT(at_home({}, "/tmp/x"), Contains("PYTHONUSERBASE=/home/somebody/.local"));
  EXPECT_THAT(at_home({"PYTHONUSERBASE=/opt"}, "/tmp/x"), Contains("PYTHONUSERBASE=/opt"));
}

TEST_F(SurroundingsTest, SharedMemoryCanBeUsed) {
  for (const Isolation isolation : with_namespaces()) {
    EXPECT_EQ(said({"semaphore"}, {}, isolation).at("made"), true) << describe(isolation);
  }
}

TEST_F(SurroundingsTest, WhatIsReadOnlyStaysAsItIs) {
  const std::string file = testing::TempDir() + "attest_library";
  std::ofstream(file) << "library";
  fs::permissions(file, fs::perms::all);
  for (const Isolation isolation : with_namespaces()) {
    Surroundings around;
    around.read_only = {file};
    said({"rewrites", file}, around, isolation);
    std::ifstream still(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(still), {}), "library");
  }
}

TEST_F(SurroundingsTest, WhoIsToKeepNothingWritesAtHomeAlone) {
  const std::string file = testing::TempDir() + "attest_kept";
  for (const Isolation isolation : with_namespaces()) {
    Surroundings around;
    around.homes = std::make_shared<Homes>(false);
    for (const bool keeps_nothing : {false, true}) {
      around.keeps_nothing = keeps_nothing;
      std::ofstream(file) << "before";
      fs::permissions(file, fs::perms::all);
      said({"rewrites", file}, around, isolation);
      std::ifstream after(file);
      const std::string text(std::istreambuf_iterator<char>(after), {});
      EXPECT_EQ(text == "before", keeps_nothing) << text;
    }
    said({"litters"}, around, isolation);
    EXPECT_THAT(said({"litters"}, around, isolation).at("found"),
                Contains(nlohmann::json("litter")));
  }
}

TEST_F(SurroundingsTest, NetworkIsThereOnlyWhereItIsAllowed) {
  const Descriptor server(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(server.get(), any, size), 0);
  ASSERT_EQ(listen(server.get(), 8), 0);
  ASSERT_EQ(getsockname(server.get(), any, &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  for (const Isolation isolation : with_namespaces()) {
    Surroundings around;
    EXPECT_EQ(said({"connects", port}, around, isolation).at("connected"), false);
    around.network = true;
    EXPECT_EQ(said({"connects", port}, around, isolation).at("connected"), true);
  }
}

TEST_F(SurroundingsTest, CommandLineOfTheHarnessIsNotSeen) {
  for (const Isolation isolation : with_namespaces()) {
    const auto body = said({"reads", "/proc/1/cmdline"}, {}, isolation);
    EXPECT_EQ(body.at("text"), std::string("attest-sandbox\0", 15));
  }
}

}  // namespace
}  // namespace attest
