// reports/CRITERIA.md is of the catalogue that it says, and README.md says the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "tests/documents/document.h"
#include "tests/mutants/catalogue.h"

namespace attest::documents {
namespace {

using testing::HasSubstr;

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

bool is_consistent(const std::string& page) {
  std::size_t mutants = 0, judged = 0;
  for (const mutants::Fault& fault : mutants::kFaults) {
    if (std::string_view(fault.kind) == "control") continue;
    ++mutants;
    judged += words_of(fault.dtypes).size();
  }
  const auto told = mutants_in(page), given = judged_in(page);
  if (told.size() != 1 || given.size() != 1) return false;
  return (*told.begin() == mutants) == (*given.begin() == judged);
}

TEST(CriteriaPageTest, IsOfTheCatalogueThatItSays) {
  const std::string page = contents("reports/CRITERIA.md");
  EXPECT_TRUE(is_consistent(page)) << testing::PrintToString(mutants_in(page)) << " mutants, in "
                                   << testing::PrintToString(judged_in(page)) << " formats";
}

TEST(CriteriaPageTest, WithTheNumberOfAnotherCatalogueIsSeen) {
  const std::string page = contents("reports/CRITERIA.md");
  const std::string told = fmt::format("had {} mutants", *mutants_in(page).begin());
  const auto with = [&](std::size_t mutants) {
    const std::string other = fmt::format("had {} mutants", mutants);
    return std::regex_replace(page, std::regex(told), other);
  };
  ASSERT_THAT(page, HasSubstr(told));
  EXPECT_FALSE(is_consistent(with(*mutants_in(page).begin() + 1)));
}

TEST(CriteriaPageTest, ReadmeSaysOfHowManyMutantsItIs) {
  const std::string page = contents("reports/CRITERIA.md");
  const std::string said = fmt::format("of {} mutants", *mutants_in(page).begin());
  EXPECT_THAT(contents("README.md"), HasSubstr("[rule by rule](reports/CRITERIA.md), " + said));
}

}  // namespace
}  // namespace attest::documents
