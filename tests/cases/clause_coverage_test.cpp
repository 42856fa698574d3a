// Every clause has a case, every case cites clauses that exist.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cases/case.h"
#include "spec/clause.h"

namespace attest {
namespace {

TEST(ClauseCoverageTest, EveryLiveClauseHasACase) {
  std::map<std::string, std::set<std::pair<std::string, int>>> entries;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    for (const std::string& id : c.clauses) entries[id].emplace(c.file, c.line);
  }
  for (const Clause& clause : clauses()) {
    EXPECT_FALSE(entries[std::string(clause.id)].empty()) << clause.id << ": " << clause.title;
  }
}

TEST(ClauseCoverageTest, EveryCaseCitesLiveClausesOnly) {
  std::set<std::string> live;
  for (const Clause& clause : clauses()) live.emplace(clause.id);
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    EXPECT_FALSE(c.clauses.empty()) << c.id;
    for (const std::string& id : c.clauses)
      EXPECT_TRUE(live.contains(id)) << c.id << " cites " << id;
  }
}

TEST(ClauseCoverageTest, EveryFormatHasItsClause) {
  const std::map<std::string, DType> formats = {{"FORMAT-1", DType::f64},
                                                {"FORMAT-2", DType::f32},
                                                {"FORMAT-3", DType::f16},
                                                {"FORMAT-4", DType::bf16}};
  std::set<std::string> tried;
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    for (const std::string& id : c.clauses) {
      const auto format = formats.find(id);
      if (format != formats.end() && format->second == c.problem.dtype) tried.insert(id);
    }
  }
  EXPECT_EQ(tried.size(), formats.size());
}

}  // namespace
}  // namespace attest
