#include "harness/judge/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using testing::HasSubstr;

Problem causal_problem() {
  Problem p = {.query_len = 5, .key_len = 6};
  p.mask = Mask::causal(Anchor::top_left);
  return p;
}

std::string schedule_clause(const Problem& p, const ScheduleDeclaration& declared,
                            const std::vector<Block>& blocks, bool backward = false,
                            int threads = 1, const Inputs& inputs = {}) {
  Planes planes(p, inputs);
  const auto finding = schedule_defect(planes, declared, blocks, backward, threads);
  if (!finding) return "";
  EXPECT_EQ(finding->outcome, Outcome::fail);
  EXPECT_EQ(finding->reason, "schedule");
  return finding->clause;
}

// The words of SCHED-1 and SCHED-2, pair by pair.
std::string by_definition(const Problem& p, bool partial_only, const std::vector<Block>& blocks) {
  std::string broken;
  const auto holds = [](const Block& b, Index i, Index j) {
    return b.query_begin <= i && i < b.query_end && b.key_begin <= j && j < b.key_end;
  };
  for (Index i = 0; i < p.query_len; ++i) {
    for (Index j = 0; j < p.key_len; ++j) {
      Index count = 0;
      for (const Block& b : blocks) count += holds(b, i, j);
      if (visible(p, {.query = i, .key = j}) && count != 1) return "SCHED-1";
    }
  }
  for (const Block& b : blocks) {
    Index seen = 0, pairs = 0;
    for (Index i = b.query_begin; i < b.query_end; ++i) {
      for (Index j = b.key_begin; j < b.key_end; ++j) {
        ++pairs;
        seen += visible(p, {.query = i, .key = j});
      }
    }
    if (seen == 0) return "SCHED-1";
    if (partial_only && b.masked != (seen < pairs)) broken = "SCHED-2";
  }
  return broken;
}

// Mostly right schedules: rows of blocks of a random size, and now and then a fault.
std::vector<Block> some_blocks(const Problem& p) {
  const Index rows = *rc::gen::element<Index>(1, 2, 3), columns = *rc::gen::element<Index>(1, 2, 3);
  std::vector<Block> blocks;
  for (Index i = 0; i < p.query_len; i += rows) {
    for (Index j = 0; j < p.key_len; j += columns) {
      Block b = {.query_begin = i,
                 .query_end = std::min(i + rows, p.query_len),
                 .key_begin = j,
                 .key_end = std::min(j + columns, p.key_len)};
      Index seen = 0;
      for (Index q = b.query_begin; q < b.query_end; ++q) {
        for (Index k = b.key_begin; k < b.key_end; ++k) seen += visible(p, {.query = q, .key = k});
      }
      const Index pairs = (b.query_end - b.query_begin) * (b.key_end - b.key_begin);
      b.masked = seen < pairs;
      if (seen > 0) blocks.push_back(b);
    }
  }
  if (blocks.empty()) return blocks;
  Block& any = blocks[*rc::gen::resize(100, rc::gen::inRange<std::size_t>(0, blocks.size()))];
  switch (*rc::gen::element(0, 1, 2, 3, 4, 5, 6, 7)) {
    case 0:
      any.query_begin = *rc::gen::resize(100, rc::gen::inRange<Index>(0, any.query_end + 1));
      break;
    case 1:
      any.key_end = *rc::gen::resize(100, rc::gen::inRange<Index>(any.key_begin, p.key_len + 1));
      break;
    case 2:
      any.masked = !any.masked;
      break;
    case 3:
      blocks.push_back(Block(any));
      break;
    case 4:
      blocks.erase(blocks.begin() + (&any - blocks.data()));
      break;
    default:
      break;
  }
  return blocks;
}

RC_GTEST_PROP(ScheduleProperty, AgreesWithTheDefinitionPairByPair, ()) {
  Problem p = {.query_len = *rc::gen::resize(100, rc::gen::inRange<Index>(1, 9)),
               .key_len = *rc::gen::resize(100, rc::gen::inRange<Index>(1, 9))};
  p.query_lens = {p.query_len - *rc::gen::element<Index>(0, 0, 1)};
  p.key_lens = {p.key_len - *rc::gen::element<Index>(0, 0, 1)};
  p.mask =
      *rc::gen::element(Mask::full(), Mask::causal(Anchor::bottom_right, 1),
                        Mask::window(1, 1, Anchor::top_left), Mask::dilated(2, Anchor::top_left));
  const bool partial_only = *rc::gen::arbitrary<bool>();
  const auto blocks = some_blocks(p);
  const std::string expected = by_definition(p, partial_only, blocks);
  const std::string found = schedule_clause(p, {.masks_partial_only = partial_only}, blocks);
  RC_CLASSIFY(expected.empty(), "right");
  RC_CLASSIFY(expected == "SCHED-1", "wrong blocks");
  // Of two faults either may be named.
  RC_ASSERT(found.empty() == expected.empty());
  if (!partial_only) RC_ASSERT(found == expected);
}

TEST(ScheduleTest, EveryHeadHasBlocksOfItsOwn) {
  Problem p = causal_problem();
  p.query_heads = 2;
  const Block first = {.query_end = 5, .key_end = 5};
  Block second = first;
  second.head = 1;
  EXPECT_EQ(schedule_clause(p, {}, {first, second}), "");
  EXPECT_EQ(schedule_clause(p, {}, {first}), "SCHED-1");
  EXPECT_EQ(schedule_clause(p, {}, {first, first}), "SCHED-1");
}

TEST(ScheduleTest, EachPassOfABackwardCallIsWhole) {
  const Block whole = {.query_end = 5, .key_end = 5, .pass = 1};
  Block again = whole;
  again.pass = 2;
  EXPECT_EQ(schedule_clause(causal_problem(), {}, {whole}, true), "");
  EXPECT_EQ(schedule_clause(causal_problem(), {}, {whole, again}, true), "");
  again.query_begin = 1;
  EXPECT_EQ(schedule_clause(causal_problem(), {}, {whole, again}, true), "SCHED-1");
  EXPECT_EQ(schedule_clause(causal_problem(), {}, {}, true), "SCHED-1");
  EXPECT_EQ(schedule_clause(causal_problem(), {}, {whole}, false), "SCHED-1");
}

TEST(ScheduleTest, BlocksLieWithinTheSizes) {
  const Block good = {.query_end = 5, .key_end = 5};
  const Index far = std::numeric_limits<Index>::max();
  for (const auto field : {&Block::worker, &Block::batch, &Block::head, &Block::query_begin,
                           &Block::query_end, &Block::key_begin, &Block::key_end, &Block::pass}) {
    for (const Index value : {Index(-1), Index(7), far, -far}) {
      Block bad = good;
      bad.*field = value;
      EXPECT_EQ(schedule_clause(causal_problem(), {}, {bad}), "SCHED-1");
    }
  }
}

TEST(ScheduleTest, BlockThatABiasHidesMayBeVisitedOrNotAndIsNotMasked) {
  Problem p = {.query_len = 2, .key_len = 4};
  p.bias_shape = Shape{1, 1, 1, 4};
  Inputs in;
  const double hidden = -std::numeric_limits<double>::infinity();
  in.bias = {*p.bias_shape, {0, hidden, hidden, hidden}};
  const Block first = {.query_end = 2, .key_end = 2},
              second = {.query_end = 2, .key_begin = 2, .key_end = 4};
  const ScheduleDeclaration partial_only = {.masks_partial_only = true};
  EXPECT_EQ(schedule_clause(p, partial_only, {first}, false, 1, in), "");
  EXPECT_EQ(schedule_clause(p, partial_only, {first, second}, false, 1, in), "");
  EXPECT_EQ(schedule_clause(p, partial_only, {second}, false, 1, in), "SCHED-1");
  EXPECT_EQ(schedule_clause(p, partial_only, {first, first}, false, 1, in), "SCHED-1");
  Block masked = second;
  masked.masked = true;
  EXPECT_EQ(schedule_clause(p, partial_only, {first, masked}, false, 1, in), "SCHED-2");
}

TEST(ScheduleTest, ImbalanceIsOfPairsAndOverAllWorkersOfTheCall) {
  Problem p = causal_problem();
  p.mask = Mask::full();
  const std::vector<Block> blocks = {{.worker = 0, .query_end = 3, .key_end = 6},
                                     {.worker = 1, .query_begin = 3, .query_end = 5, .key_end = 6}};
  EXPECT_EQ(schedule_clause(p, {.imbalance = 1.2}, blocks, false, 2), "");
  EXPECT_EQ(schedule_clause(p, {.imbalance = 1.19}, blocks, false, 2), "SCHED-3");
  EXPECT_EQ(schedule_clause(p, {.imbalance = 1.79}, blocks, false, 3), "SCHED-3");
  EXPECT_EQ(schedule_clause(p, {.imbalance = 1.8}, blocks, false, 3), "");
}

TEST(ScheduleTest, FiguresAreSeenWhereThreadsComputeAsTheBlocksSayWhetherAskedForThemOrNot) {
  const std::vector<Block> blocks = {
      {.worker = 0, .query_end = 4, .key_end = 6, .masked = true},
      {.worker = 1, .query_begin = 4, .query_end = 5, .key_end = 6},
      {.worker = 1, .head = 1, .query_end = 3, .key_end = 6, .masked = true}};
  const auto seen = [&](const std::vector<double>& traced, const std::vector<double>& untraced) {
    return schedule_evidence(blocks, false, 2, traced, untraced).seen;
  };
  const ScheduleEvidence figures = schedule_evidence(blocks, true, 2, {}, {});
  EXPECT_EQ(figures.pass, "backward");
  EXPECT_EQ(figures.blocks, 3);
  EXPECT_EQ(figures.masked, 2);
  EXPECT_EQ(figures.imbalance, 1);
  EXPECT_FALSE(figures.seen) << "nothing was measured";
  EXPECT_TRUE(seen({0.1, 0.12}, {0.11, 0.1}));
  EXPECT_FALSE(seen({0.1, 0.12}, {0.2})) << "one thread, unless it is asked for its blocks";
  EXPECT_FALSE(seen({0.2, 0.01}, {0.1, 0.1}));
  EXPECT_FALSE(seen({1e-4, 1e-4}, {0.1, 0.1})) << "too short to tell";
  EXPECT_TRUE(schedule_evidence({}, false, 1, {}, {}).seen) << "one worker shares with nobody";
}

TEST(ScheduleTest, OnlyListsOfNineNumbersAreBlocks) {
  const auto read = [](const char* text) { return blocks_from_json(parse_json(text)); };
  const auto blocks = read("[[1,2,3,4,5,6,7,1,2]]");
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].worker, 1);
  EXPECT_EQ(blocks[0].key_end, 7);
  EXPECT_TRUE(blocks[0].masked);
  EXPECT_EQ(blocks[0].pass, 2);
  for (const char* bad : {"{}", "[1]", "[[1,2,3,4,5,6,7,8]]", "[[1,2,3,4,5,6,7,1,\"2\"]]",
                          "[[1,2,3,4,5,6,7,1,0.5]]"}) {
    EXPECT_THROW(read(bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace attest
