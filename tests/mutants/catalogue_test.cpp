// The catalogue of wrong kernels says of each what it must, and once.
#include "tests/mutants/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "spec/clause.h"
#include "spec/dtype.h"
#include "tests/mutants/rare.h"

namespace attest::mutants {
namespace {

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string source_of(const std::string& folder) {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".cpp" || name.ends_with("_test.cpp")) continue;
    std::ifstream in(entry.path());
    text += std::string(std::istreambuf_iterator<char>(in), {});
  }
  return text;
}

TEST(CatalogueTest, HasEachNameOnce) {
  std::set<std::string> names;
  for (const Fault& fault : kFaults) EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
  EXPECT_GE(std::count_if(kFaults.begin(), kFaults.end(), is_mutant), 180);
}

TEST(CatalogueTest, SaysOfFaultsThatExistWhatShowsThem) {
  for (const Rare& rare : kRare) {
    EXPECT_TRUE(std::any_of(kFaults.begin(), kFaults.end(), [&](const Fault& fault) {
      return is_mutant(fault) && fault.name == rare.fault;
    })) << rare.fault;
  }
}

// A report may be restated by several mutants, but not be expressible and not.
TEST(CatalogueTest, PutsNoReportAmongBothMutantsAndWhatCannotBeExpressed) {
  std::set<std::string> restated;
  for (const Fault& fault : kFaults) {
    for (const std::string& id : words(fault.id)) restated.insert(id);
    EXPECT_EQ(std::string_view(fault.id).empty(), std::string_view(fault.reference).empty())
        << fault.name;
  }
  std::set<std::string> others;
  for (const Inexpressible& report : kInexpressible) {
    EXPECT_TRUE(others.insert(report.id).second) << report.id;
    EXPECT_FALSE(restated.contains(report.id)) << report.id;
  }
}

TEST(CatalogueTest, NamesClausesAndFormatsThatExist) {
  for (const Fault& fault : kFaults) {
    if (!is_mutant(fault)) continue;
    EXPECT_FALSE(words(fault.clauses).empty()) << fault.name;
    for (const std::string& id : words(fault.clauses)) {
      EXPECT_TRUE(find_clause(id)) << fault.name << ": " << id;
    }
    EXPECT_FALSE(words(fault.dtypes).empty()) << fault.name;
    for (const std::string& dtype : words(fault.dtypes)) {
      EXPECT_TRUE(dtype_named(dtype)) << fault.name << ": " << dtype;
    }
  }
}

TEST(CatalogueTest, HasMutantsOfEveryClassAndOfNoOther) {
  std::map<std::string, int> kinds;
  for (const Fault& fault : kFaults) ++kinds[fault.kind];
  EXPECT_EQ(kinds["control"], 4);
  const std::vector<std::string> listed = words(kKinds);
  for (const std::string& kind : listed) EXPECT_GE(kinds[kind], 1) << kind;
  EXPECT_EQ(kinds.size(), listed.size() + 2) << "beside these: control, harmless";
}

// What is not there to be switched is the same kernel under another name.
TEST(CatalogueTest, HasNoFaultThatNoKernelKnows) {
  const std::string source = source_of(SOURCE);
  for (const Fault& fault : kFaults) {
    if (std::string_view(fault.kind) == "control") continue;
    EXPECT_NE(source.find("\"" + std::string(fault.name) + "\""), std::string::npos) << fault.name;
  }
}

}  // namespace
}  // namespace attest::mutants
