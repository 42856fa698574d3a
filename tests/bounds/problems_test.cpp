#include "tests/bounds/problems.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "spec/mask_kind.h"

namespace attest::bounds {
namespace {

void add_kinds(const Mask& mask, std::set<Mask::Kind>& seen) {
  seen.insert(mask.kind);
  for (const Mask& part : mask.parts) add_kinds(part, seen);
}

// They are drawn by number, which no compiler compares with the kinds that there are.
TEST(ProblemsTest, HaveMasksOfEveryKind) {
  std::set<Mask::Kind> seen;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    add_kinds(make_subject(1, false, number).problem.mask, seen);
  }
  for (const MaskKind& each : mask_kinds()) EXPECT_TRUE(seen.contains(each.kind)) << each.word;
}

}  // namespace
}  // namespace attest::bounds
