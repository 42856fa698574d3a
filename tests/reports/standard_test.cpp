#include "reports/standard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/clause.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(StandardTest, HasTheTextOfEachClauseAndOfNoOther) {
  for (const Clause& clause : clauses()) {
    const std::string text(text_of_clause(clause.id));
    EXPECT_THAT(text, StartsWith("**Statement.**")) << clause.id;
    EXPECT_THAT(text, HasSubstr("\n**Level.**")) << clause.id;
    EXPECT_THAT(text, Not(HasSubstr("\n#"))) << clause.id;
  }
  EXPECT_EQ(text_of_clause("MASK-99"), "");
  EXPECT_EQ(text_of_clause("MASK"), "");
}

}  // namespace
}  // namespace attest
