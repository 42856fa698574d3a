#include "harness/process/testee.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/process/target.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::StartsWith;

const Installation kInstallation = {.worker = WORKER, .plugins = BUNDLED, .cases = {}};

std::vector<Testee> find(const std::vector<std::string>& specs) {
  return find_testees(specs, kInstallation, {}, {});
}

// What the error for that spec says.
std::string complaint(const std::string& spec) {
  try {
    find({spec});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TesteeTest, BundledKernelsAreTheDefault) {
  const auto testees = find({});
  std::vector<std::string> names;
  for (const auto& testee : testees) names.push_back(testee.name);
  EXPECT_THAT(names, IsSupersetOf({"causal_balanced", "fa2", "naive"}));
  EXPECT_THAT(names, Contains(StartsWith("fa2/"))) << "an instruction set";
  EXPECT_EQ(testees.back().spec, "naive/textbook");
}

TEST(TesteeTest, BundledKernelIsNamedApartFromTheOthersOfItsFamily) {
  for (const char* name : {"naive", "naive/textbook"}) {
    const auto testees = find({name});
    ASSERT_EQ(testees.size(), 1u);
    EXPECT_EQ(testees[0].name, name);
    EXPECT_EQ(testees[0].spec, name);
  }
  const auto all = find({});
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [](const Testee& t) { return t.name == "naive/textbook"; }));
}

TEST(TesteeTest, PluginOfManyKernelsIsTakenWholeOrByOne) {
  const std::string path = std::string(PLUGINS) + "/mutants.so";
  EXPECT_GT(find({path}).size(), 20u);
  const auto one = find({path + ":mutant/top_left"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "mutant/top_left");
  EXPECT_EQ(one[0].spec, path + ":mutant/top_left");
}

TEST(TesteeTest, UnknownNameTellsWhichThereAre) {
  EXPECT_THAT(complaint("fa3"), AllOf(HasSubstr("fa3"), HasSubstr("did you mean fa2?")));
}

TEST(TesteeTest, MissingLibraryIsNamed) {
  EXPECT_THAT(complaint("./nothing.so"), HasSubstr("there is no library ./nothing.so"));
}

TEST(TesteeTest, MissingKernelTellsWhichThereAreOrOfManyTheNearest) {
  EXPECT_THAT(complaint("naive/fast"), AllOf(HasSubstr("no kernel naive/fast"),
                                             HasSubstr("there are naive, naive/textbook")));
  const std::string said = complaint(std::string(PLUGINS) + "/mutants.so:mutant/top_lift");
  EXPECT_THAT(said, AllOf(HasSubstr("no kernel mutant/top_lift"), HasSubstr("mutant/top_left")));
  EXPECT_LT(said.size(), 300u) << said;
}

TEST(TesteeTest, LibraryEndsBeforeTheFirstColonWhateverItsKernelIsCalled) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/mutants.so:x.softmax"),
              HasSubstr("no kernel x.softmax"));
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/mutants.so:"), HasSubstr("no kernel is named"));
  EXPECT_THAT(complaint("./x.so.1"), HasSubstr("no FILE.so"));
}

TEST(TesteeTest, KernelThatTheMachineCannotRunTellsWhatIsMissing) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/amx_emulated.so:amx_emulated/real"),
              HasSubstr("this kernel is absent here: tiles are emulated here"));
}

TEST(TesteeTest, OtherAbiVersionIsExplained) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/old_abi.so"),
              AllOf(HasSubstr("ABI version 2"), HasSubstr("speaks 1")));
}

TEST(TesteeTest, LibraryThatIsNoPluginIsExplained) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/no_symbol.so"),
              HasSubstr("exports no attest_plugin_get"));
}

TEST(TesteeTest, PluginThatDiesWhileLoadingIsToldWithWhatItPrinted) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/dies_loading.so"),
              AllOf(HasSubstr("signal 6"), HasSubstr("no device found")));
}

TEST(TesteeTest, ArithmeticBeyondTheCapsIsRefused) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/braggart.so"),
              AllOf(HasSubstr("/arithmetic/f32/exp_ulp"), HasSubstr("1000")));
}

TEST(TesteeTest, DescriptionThatSaysOneThingTwiceIsRefused) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/stutters.so"),
              HasSubstr("has the key \"batch\" twice"));
}

TEST(TesteeTest, FileThatIsNoLibraryIsExplained) {
  EXPECT_THAT(complaint(std::string(PLUGINS) + "/text.so"), HasSubstr("cannot load the library"));
}

TEST(TesteeTest, ProgramThatEndsAtOnceIsTold) {
  EXPECT_THAT(complaint("exec:true"), HasSubstr("exited with status 0"));
  EXPECT_THAT(complaint("exec:"), HasSubstr("needs a command"));
}

TEST(TesteeTest, SanitizerThatIsNotThereOrEndsAtOnceIsTold) {
  const auto complaint_under = [](const std::string& command) -> std::string {
    try {
      Surroundings around;
      around.sanitizer = sanitizer_called(command);
      find_testees({"naive"}, kInstallation, {}, around);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(complaint_under("/usr/bin/env"), "no error");
  EXPECT_EQ(complaint_under("no_such_sanitizer -q"),
            "--sanitizer: no_such_sanitizer is no program on the PATH");
  EXPECT_EQ(complaint_under("/no/such -q"), "--sanitizer: /no/such is no program");
  EXPECT_EQ(complaint_under("/"), "--sanitizer: / is no program");
  EXPECT_THAT(complaint_under("false -q"),
              AllOf(HasSubstr("exited with status 1"), HasSubstr("by --sanitizer "),
                    HasSubstr("false -q: does it run without?")));
}

TEST(TesteeTest, ProgramThatIsNotThereIsNamed) {
  EXPECT_THAT(complaint("exec:no_such_program --fast"),
              HasSubstr("no_such_program is no program on the PATH"));
  EXPECT_THAT(complaint("exec:/no/such/program"), HasSubstr("/no/such/program does not exist"));
  EXPECT_THAT(complaint("exec:/tmp"), HasSubstr("/tmp is a folder"));
}

TEST(TesteeTest, PythonFileIsRunByThePackagesWorkerInThatInterpreter) {
  const std::string folder = testing::TempDir() + "attest_python_target";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/mine.py";
  std::ofstream(file).put('\n');
  setenv("ATTEST_PYTHON", "/bin/true", 1);
  const Target target =
      parse_target(folder + "/../attest_python_target/mine.py:fast", kInstallation);
  EXPECT_EQ(target.base, file);
  EXPECT_EQ(target.kernel, "fast");
  EXPECT_EQ(target.prefix, "mine.py:");
  EXPECT_THAT(target.command, ElementsAre("/bin/true", "-m", "attest_attention.worker", file));
  EXPECT_THAT(target.files, ElementsAre("/bin/true", file));
  EXPECT_THAT(complaint(file), HasSubstr("has /bin/true the package attest_attention?"));
  EXPECT_THAT(complaint(file + ":"), HasSubstr("no kernel is named behind the colon"));
  setenv("ATTEST_PYTHON", "/no/such/python", 1);
  EXPECT_THAT(complaint(file), HasSubstr("there is no Python"));
  unsetenv("ATTEST_PYTHON");
  EXPECT_THAT(complaint("nothing.py"), HasSubstr("there is no file"));
}

TEST(TesteeTest, DescriptionEndsWhenItIsAskedTo) {
  EXPECT_THROW(find_testees({"fa2"}, kInstallation, {}, {}, [] { return true; }), Interrupted);
}

TEST(TesteeTest, SameTesteeTwiceIsAMistake) { EXPECT_THROW(find({"fa2", "fa2"}), InputError); }

}  // namespace
}  // namespace attest
