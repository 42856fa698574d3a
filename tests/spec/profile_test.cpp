#include "spec/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "spec/clause.h"

namespace attest {
namespace {

bool demanded(const char* profile, const std::vector<std::string>& declared,
              const std::vector<std::string>& cited) {
  return demands(*find_profile(profile), declared, cited);
}

TEST(ProfileTest, CitesOnlyClausesThatAreJudged) {
  for (const Profile& profile : profiles()) {
    for (const std::string_view id : profile.clauses) {
      const auto live = clauses();
      EXPECT_TRUE(
          std::any_of(live.begin(), live.end(), [&](const Clause& c) { return c.id == id; }))
          << profile.name << " " << id;
    }
  }
}

// A clause that is not required may stand apart: what it misses makes nobody less conformant.
TEST(ProfileTest, EveryRequiredClauseBelongsToExactlyOneProfileAndNoClauseToTwo) {
  for (const Clause& clause : clauses()) {
    int owners = 0;
    for (const Profile& profile : profiles()) {
      owners +=
          static_cast<int>(std::count(profile.clauses.begin(), profile.clauses.end(), clause.id));
    }
    EXPECT_LE(owners, 1) << clause.id;
    if (clause.level == Level::required) {
      EXPECT_EQ(owners, 1) << clause.id;
    }
    if (clause.level == Level::recommended) {
      EXPECT_EQ(owners, 0) << clause.id;
    }
  }
}

TEST(ProfileTest, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Profile& profile : profiles()) {
    EXPECT_TRUE(names.insert(profile.name).second) << profile.name;
    EXPECT_EQ(find_profile(profile.name), &profile);
  }
  EXPECT_EQ(find_profile("backward-core"), nullptr);
}

TEST(ProfileTest, IsTheSameWhereItTakesWhatIsDeclared) {
  EXPECT_EQ(find_profile("masks+declared"), find_profile("masks"));
  EXPECT_TRUE(takes_declared("masks+declared"));
  EXPECT_FALSE(takes_declared("masks"));
  for (const char* no_profile : {"+declared", "masks+declared+declared", "masks +declared"}) {
    EXPECT_EQ(find_profile(no_profile), nullptr) << no_profile;
  }
  EXPECT_TRUE(demanded("masks", {"forward-core", "masks+declared"}, {"MASK-2", "MASK-4"}));
}

TEST(ProfileTest, DemandsACaseThatStaysWithinWhatIsDeclared) {
  EXPECT_TRUE(demanded("forward-core", {"forward-core"}, {"MASK-2", "LSE-1"}));
  EXPECT_FALSE(demanded("forward-core", {"forward-core"}, {"MASK-2", "MASK-4"}))
      << "masks not claimed";
  EXPECT_TRUE(demanded("forward-core", {"forward-core", "masks"}, {"MASK-2", "MASK-4"}));
  EXPECT_TRUE(demanded("masks", {"forward-core", "masks"}, {"MASK-2", "MASK-4"}));
  EXPECT_FALSE(demanded("masks", {"forward-core", "masks"}, {"MASK-2"})) << "no clause of its own";
  EXPECT_FALSE(demanded("masks", {"forward-core", "masks"}, {"MASK-4", "GRAD-1"}));
  EXPECT_FALSE(demanded("masks", {"masks"}, {"MASK-4", "MASK-2"})) << "forward-core not claimed";
  EXPECT_FALSE(demanded("masks", {"masks"}, {}));
  EXPECT_FALSE(demanded("masks", {"forward-core", "masks"}, {"HIDE-3", "MASK-4"}))
      << "a recommended clause is demanded of nobody";
  EXPECT_TRUE(demanded("training-full", {"training-core", "training-full", "scores"},
                       {"GRAD-1", "GRAD-6", "SCORE-2"}));
  EXPECT_FALSE(demanded("training-full", {"training-core", "training-full", "scores"},
                        {"GRAD-1", "DROP-1", "DROP-2"}))
      << "dropout not claimed";
}

}  // namespace
}  // namespace attest
