// A type has a name of its own within its namespace: of two, a program that links both takes the
// destructor of one for the other's, and no linker says so (C++, [basic.def.odr]).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace attest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Where each type is defined, by its whole name; a namespace without one hides what is in it.
using Definitions = std::map<std::string, std::vector<std::string>>;

void find_types(const std::string& path, std::istream& text, Definitions& types) {
  static const std::regex opens("^namespace ?([a-z_:]*) ?\\{"), closes("^\\}  // namespace"),
      defines("^(struct|class|enum class|enum|union) ([A-Za-z0-9_]+)[^;:]*( :[^:;]*)?\\{");
  std::vector<std::string> within;
  std::smatch found;
  for (std::string line; std::getline(text, line);) {
    if (std::regex_search(line, found, opens)) {
      within.push_back(found[1]);
    } else if (std::regex_search(line, closes) && !within.empty()) {
      within.pop_back();
    } else if (std::regex_search(line, found, defines)) {
      std::string name;
      bool hidden = false;
      for (const std::string& each : within) {
        hidden |= each.empty();
        name += each + "::";
      }
      if (!hidden) types[name + found[2].str()].push_back(path);
    }
  }
}

std::vector<std::string> defined_twice(const Definitions& types) {
  std::vector<std::string> names;
  for (const auto& [name, paths] : types) {
    if (paths.size() > 1) names.push_back(name + " in " + paths[0] + " and " + paths[1]);
  }
  return names;
}

TEST(OneDefinitionTest, NoTwoTypesShareAName) {
  const std::filesystem::path root = ATTEST_SOURCE_DIR;
  Definitions types;
  for (const char* layer : {"spec", "reference", "impl", "cases", "reports", "harness"}) {
    for (const auto& each : std::filesystem::recursive_directory_iterator(root / layer)) {
      const std::string path = each.path().lexically_relative(root).generic_string();
      // What plug-ins include on their side of the border has its own Problem.
      if (path.starts_with("spec/kernel/")) continue;
      if (!path.ends_with(".h") && !path.ends_with(".cpp")) continue;
      std::ifstream text(each.path());
      find_types(path, text, types);
    }
  }
  EXPECT_GT(types.size(), 200u) << "the tree was found";
  EXPECT_THAT(defined_twice(types), IsEmpty());
}

TEST(OneDefinitionTest, FindsTwoOfOneName) {
  Definitions types;
  std::istringstream a(
      "namespace attest {\nstruct Setting {\n};\nstruct Once {};\n}  // namespace attest\n");
  std::istringstream b(
      "namespace attest {\nnamespace {\nstruct Once {};\n}  // namespace\n"
      "struct Setting : Base {\n};\nstruct Once;\n}  // namespace attest\n");
  std::istringstream c("namespace attest::laws {\nclass Once {\n}  // namespace attest::laws\n");
  find_types("a.h", a, types);
  find_types("b.h", b, types);
  find_types("c.h", c, types);
  EXPECT_THAT(defined_twice(types), ElementsAre("attest::Setting in a.h and b.h"));
}

}  // namespace
}  // namespace attest
