// reports/CRITERIA.md is of the catalogue that it says, and README.md says the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "tests/documents/document.h"
#include "tests/mutants/catalogue.h"

namespace attest::documents {
namespace {

// What a text says of a catalogue, everywhere that it does.
std::set<std::size_t> numbers_in(const std::string& text, const std::string& pattern) {
  std::set<std::size_t> found;
  const std::regex expression(pattern);
  for (auto at = std::sregex_iterator(text.begin(), text.end(), expression);
       at != std::sregex_iterator(); ++at) {
    found.insert(std::stoul((*at)[1]));
  }
  return found;
}

std::set<std::size_t> mutants_in(const std::string& page) {
  return numbers_in(page, "\\b(\\d+) mutants");
}

// Mutants, each once for each format: those that Attest, which judges all, is given.
std::set<std::size_t> judged_in(const std::string& page) {
  return numbers_in(page, "\\| Attest \\| \\d+ of (\\d+) ");
}

// How many there are now; and the same, each once for each format.
std::size_t mutants_now() {
  return static_cast<std::size_t>(
      std::count_if(mutants::kFaults.begin(), mutants::kFaults.end(), mutants::is_mutant));
}
std::size_t judged_now() {
  std::size_t count = 0;
  for (const mutants::Fault& fault : mutants::kFaults) {
    if (mutants::is_mutant(fault)) count += words_of(fault.dtypes).size();
  }
  return count;
}

bool is_consistent(const std::string& page) {
  const auto told = mutants_in(page), given = judged_in(page);
  if (told.size() != 1 || given.size() != 1) return false;
  return (*told.begin() == mutants_now()) == (*given.begin() == judged_now());
}

TEST(CriteriaPageTest, IsOfTheCatalogueThatItSays) {
  const std::string page = contents("reports/CRITERIA.md");
  EXPECT_TRUE(is_consistent(page)) << testing::PrintToString(mutants_in(page)) << " mutants, in "
                                   << testing::PrintToString(judged_in(page)) << " formats";
}

TEST(CriteriaPageTest, OfAnotherCatalogueThanItSaysIsSeen) {
  const std::string page = contents("reports/CRITERIA.md");
  const std::size_t told = *mutants_in(page).begin();
  const auto with = [&](const std::string& before, std::size_t mutants) {
    return std::regex_replace(page, std::regex(fmt::format("{}{} mutants", before, told)),
                              fmt::format("{}{} mutants", before, mutants));
  };
  ASSERT_EQ(with("", told), page);
  EXPECT_FALSE(is_consistent(with("had ", told + 1))) << "in one place";
  const std::size_t other = told == mutants_now() ? told + 1 : mutants_now();
  EXPECT_FALSE(is_consistent(with("", other))) << "everywhere";
}

TEST(CriteriaPageTest, ReadmeSaysOfHowManyMutantsItIs) {
  const std::string page = contents("reports/CRITERIA.md");
  const std::string said = fmt::format("of {} mutants", *mutants_in(page).begin());
  const std::string readme = contents("README.md");
  EXPECT_NE(readme.find("[rule by rule](reports/CRITERIA.md), " + said), std::string::npos);
}

}  // namespace
}  // namespace attest::documents
