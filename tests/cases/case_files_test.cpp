// The case files themselves: that they load, how many there are, what they cost, that their ids
// stay.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cases/case.h"
#include "cases/entry.h"
#include "cases/generate.h"
#include "spec/clause.h"
#include "spec/contains.h"
#include "spec/profile.h"
#include "tests/cases/work.h"

namespace attest {
namespace {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = load_cases(ATTEST_CASES_DIR);
  return kCases;
}

TEST(CaseFilesTest, HoldAtLeast300EntriesIn30Files) {
  std::set<std::string> files;
  std::set<std::pair<std::string, int>> entries;
  std::map<Tier, int> tiers;
  for (const Case& c : all_cases()) {
    files.insert(c.file);
    entries.emplace(c.file, c.line);
    ++tiers[c.tier];
  }
  fmt::print("{} files, {} entries, {} cases: smoke {}, standard {}, full {}\n", files.size(),
             entries.size(), all_cases().size(), tiers[Tier::smoke], tiers[Tier::standard],
             tiers[Tier::full]);
  EXPECT_GE(files.size(), 30u);
  EXPECT_GE(entries.size(), 300u);
  EXPECT_GE(tiers[Tier::smoke], 60);
  EXPECT_LE(tiers[Tier::smoke], 160);
}

// Else nothing need show, and whoever swallows NaN passes.
TEST(CaseFilesTest, WhatSpeaksOfANanThatShowsHasOne) {
  for (const Case& c : all_cases()) {
    if (!contains(c.clauses, std::string("FINITE-4"))) continue;
    const Inputs inputs = generate(c);
    const auto has_nan = [](const Values& values) {
      return std::any_of(values.data.begin(), values.data.end(),
                         [](double value) { return std::isnan(value); });
    };
    EXPECT_TRUE(has_nan(inputs.q) || has_nan(inputs.k) || has_nan(inputs.v)) << c.id;
    EXPECT_EQ(c.problem.dropout.mode, Dropout::Mode::none) << c.id;
  }
}

TEST(CaseFilesTest, IdsAreUniqueAndProblemsWellFormed) {
  std::set<std::string> ids;
  for (const Case& c : all_cases()) {
    EXPECT_TRUE(ids.insert(c.id).second) << c.id;
    EXPECT_FALSE(defect_of(c.problem).has_value()) << c.id;
    EXPECT_EQ(find_case({c}, c.id).id, c.id);
  }
}

TEST(CaseFilesTest, SomeAreReadAsAmongAllAndTheOthersCounted) {
  const auto wants = [](Tier tier, const std::string& id) {
    return tier == Tier::standard && id.find("/data=normal/") != id.npos;
  };
  CaseChoice choice = {.wants = wants};
  const std::vector<Case> some = load_cases(ATTEST_CASES_DIR, 1, choice);
  std::map<Tier, Index> tiers;
  std::size_t place = 0;
  for (const Case& c : all_cases()) {
    ++tiers[c.tier];
    if (!wants(c.tier, c.id)) continue;
    ASSERT_LT(place, some.size()) << c.id;
    EXPECT_EQ(some[place].id, c.id);
    EXPECT_EQ(some[place].problem, c.problem) << c.id;
    EXPECT_EQ(some[place].clauses, c.clauses) << c.id;
    ++place;
  }
  EXPECT_EQ(some.size(), place);
  EXPECT_GT(place, 10u);
  EXPECT_EQ(choice.counts, tiers);
}

// What `attest repro --shrink` starts from.
TEST(CaseFilesTest, EachIsAnEntryOfItsOwnToo) {
  std::size_t place = 0;
  std::set<std::string> tried;  // of each file a few
  for (const Case& c : all_cases()) {
    const bool small = element_count(c.problem.keep_shape()) < 20000;
    if (!small || (!tried.insert(c.file).second && ++place % 61 != 0)) continue;
    const Case alone = read_entry(entry_of(c), "alone");
    EXPECT_EQ(to_string(alone.problem), to_string(c.problem)) << c.id;
    EXPECT_EQ(alone.clauses, c.clauses) << c.id;
    EXPECT_EQ(alone.laws, c.laws) << c.id;
    EXPECT_TRUE(alone.hidden == c.hidden && alone.check == c.check && alone.excerpt == c.excerpt &&
                alone.statistical == c.statistical)
        << c.id;
    const Inputs a = generate(alone), b = generate(c);
    for (const auto values : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::bias, &Inputs::sink,
                              &Inputs::d_o, &Inputs::d_lse}) {
      const auto& x = (a.*values).data;
      const auto& y = (b.*values).data;
      ASSERT_EQ(x.size(), y.size()) << c.id;  // NaNs are equal too, for they are the same bits
      ASSERT_EQ(x.empty() ? 0 : std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])), 0)
          << c.id;
    }
    ASSERT_EQ(a.keep.kept, b.keep.kept) << c.id;
  }
  EXPECT_GT(place, 61u);
}

// Ids are what reports, known-failure lists and bug trackers quote.
TEST(CaseFilesTest, TheseIdsStay) {
  for (const char* id :
       {"seeds/tutorial/forward/dtype=f32/data=uniform/s=1",
        "mask/causal/offset/anchor=top_left,offset=-21/dtype=bf16/data=normal/s=1",
        "mask/causal/anchors_around_tiles/sq=65,sk=130,anchor=bottom_right/dtype=bf16/"
        "data=key_names/s=1",
        "shape/head_dims/value_narrower/d=128,dv=96/dtype=f16/data=normal/s=1",
        "layout/strides/gaps/layouts=bshd_gap_1/dtype=f32/data=normal/s=1",
        "grad/masks/one_sided_window/mask=window_inf..4/dtype=f32/data=normal/s=1",
        "score/scale/many/scale=-0.125/dtype=f32/data=normal/s=1",
        "score/softcap/caps/cap=0.5/dtype=bf16/data=std10/s=1",
        "packed/packed/boundaries/klens=1.2.3.4,qlens=1.1.1.1/dtype=f16/data=key_names/s=1",
        "paged/pages/orders/order=shared/dtype=f32/data=key_names/s=1",
        "dropout/given/probabilities/dropout=probability_0.9/dtype=f32/data=normal/s=1",
        "sink/sinks/empty_rows/dtype=f16/data=normal/s=1"}) {
    EXPECT_NO_THROW(find_case(all_cases(), id)) << id;
  }
}

TEST(CaseFilesTest, EveryInputClassIsUsedInEveryCoreFormat) {
  std::set<std::pair<std::string, DType>> used;
  for (const Case& c : all_cases()) used.emplace(c.data, c.problem.dtype);
  for (const InputClass& input_class : input_classes()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      EXPECT_TRUE(used.contains({input_class.name, dtype}))
          << input_class.name << " " << name(dtype);
    }
  }
}

TEST(CaseFilesTest, EveryReasonIsOneSentence) {
  for (const Case& c : all_cases()) {
    EXPECT_THAT(c.because, testing::EndsWith(".")) << c.id;
    EXPECT_LE(c.because.size(), 120u) << c.id;
  }
}

// A verdict is lenient about a recommended clause only if it is what the case is about.
TEST(CaseFilesTest, ARecommendedClauseIsCitedFirst) {
  for (const Case& c : all_cases()) {
    for (const std::string& id : c.clauses) {
      if (find_clause(id)->level != Level::recommended) continue;
      EXPECT_EQ(find_clause(c.clauses.front())->level, Level::recommended) << c.id << " " << id;
    }
  }
}

TEST(CaseFilesTest, WhatIsToBeHiddenIsHidden) {
  for (const Case& c : all_cases()) {
    if (c.hidden == Hidden::plain) continue;
    Case plain = c;
    plain.hidden = Hidden::plain;
    const Inputs a = generate(plain), b = generate(c);
    EXPECT_TRUE(a.q.data != b.q.data || a.k.data != b.k.data || a.v.data != b.v.data ||
                a.d_o.data != b.d_o.data)
        << c.id;
  }
}

// The combination within a combination; null in the innermost one.
const Mask* combination_within(const Mask& mask) {
  for (const Mask& part : mask.parts) {
    if (!part.parts.empty()) return &part;
  }
  return nullptr;
}
Mask cut_at(const Mask& mask, int depth, const Mask& instead) {
  if (depth == 0) return instead;
  Mask cut = mask;
  for (Mask& part : cut.parts) {
    if (!part.parts.empty()) part = cut_at(part, depth - 1, instead);
  }
  return cut;
}

TEST(CaseFilesTest, EveryLevelOfTheDeepestMaskShows) {
  const Case c = find_case(all_cases(),
                           "mask/unions/sixty_four_deep/backward=false/dtype=f32/data=normal/s=1");
  const auto drawn = [&](const Mask& mask) {
    std::vector<bool> allowed;
    for (Index i = 0; i < c.problem.query_len; ++i) {
      for (Index j = 0; j < c.problem.key_len; ++j) {
        allowed.push_back(mask.allows({.query = i, .key = j}, c.problem.lengths(0)));
      }
    }
    return allowed;
  };
  const auto whole = drawn(c.problem.mask);
  int depth = 0;
  for (const Mask* level = &c.problem.mask; level; level = combination_within(*level), ++depth) {
    EXPECT_NE(drawn(cut_at(c.problem.mask, depth, Mask::full())), whole) << depth;
    EXPECT_NE(drawn(cut_at(c.problem.mask, depth, Mask::any_of({}))), whole) << depth;
  }
  EXPECT_EQ(depth, kDeepestMask);
}

TEST(CaseFilesTest, TiersAreAsCheapAsTheyPromise) {
  std::map<Tier, double> work;
  for (const Case& c : all_cases()) work[c.tier] += work_of_case(c.problem);
  fmt::print("multiply-adds: smoke {:.2g}, standard {:.4g}, full {:.2g}\n", work[Tier::smoke],
             work[Tier::standard], work[Tier::full]);
  EXPECT_LE(work[Tier::smoke], 1e8);
  EXPECT_LE(work[Tier::standard], 2.46e10);
}

// What is counted of a kernel with limits (SPEC.md, chapter Profiles): a suite that has fewer of a
// clause itself would call every such kernel too narrow.
TEST(CaseFilesTest, EachClauseOfAProfileHasThreeCasesInEachFormatThatHasAny) {
  const std::vector<std::string> usual = {"forward-core", "training-core", "scores", "dropout"};
  for (const Profile& profile : profiles()) {
    std::vector<std::string> claimed = usual;
    claimed.emplace_back(profile.name);
    std::map<DType, std::map<std::string, int>> cases;
    for (const Case& c : all_cases()) {
      if (c.tier == Tier::full || !demands(profile, claimed, c.clauses)) continue;
      for (const std::string& clause : c.clauses) ++cases[c.problem.dtype][clause];
    }
    for (auto& [dtype, counts] : cases) {
      for (const std::string_view clause : profile.clauses) {
        const bool of_format = clause.starts_with("FORMAT-"), is_double = dtype == DType::f64;
        if (of_format || (is_double && profile.name != std::string("double"))) continue;
        if (clause.starts_with("SAFE-") || clause.starts_with("CALL-")) continue;
        if (clause.starts_with("NUM-") || clause.starts_with("DET-")) continue;
        EXPECT_GE(counts[std::string(clause)], 3)
            << profile.name << " " << name(dtype) << " " << clause;
      }
    }
  }
}

TEST(CaseFilesTest, SmokeTouchesEveryTopic) {
  std::set<std::string> topics, smoke;
  for (const Case& c : all_cases()) {
    const std::string topic = c.id.substr(0, c.id.find('/'));
    topics.insert(topic);
    if (c.tier == Tier::smoke) smoke.insert(topic);
  }
  topics.erase("contract");    // its checks are made on every case
  topics.erase("regression");  // repeats other topics at reported shapes
  topics.erase("pairs");       // repeats them two by two
  topics.erase("sizes");       // repeats them where sizes meet
  EXPECT_TRUE(std::includes(smoke.begin(), smoke.end(), topics.begin(), topics.end()));
}

}  // namespace
}  // namespace attest
