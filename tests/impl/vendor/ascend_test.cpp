// Ascend's operators on the mock of an Atlas A2: the calling convention against plain loops, the
// rules of the device, and the seed's figures.
#include <attest/kernel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "impl/vendor/ascend/ascend_api.h"
#include "impl/vendor/ascend/backward.h"
#include "impl/vendor/ascend/figures.h"
#include "impl/vendor/ascend/mask_translation.h"
#include "impl/vendor/ascend/schedule.h"
#include "impl/vendor/device/queue.h"

namespace attest::vendor::ascend {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Whether query i of sequence b sees key j.
using Sees = std::function<bool(int64_t b, int64_t i, int64_t j)>;
const Sees kAll = [](int64_t, int64_t, int64_t) { return true; };

struct Results {
  Tensor q, k, v, o, max, sum, dy, dq, dk, dv;
};

// A problem of two batch elements, as both the operators and plain loops take it.
struct Small {
  std::string layout = "BNSD";
  DataType type = DataType::kFloat;
  int64_t n1 = 2, n2 = 1, d = 8;
  std::array<int64_t, 2> s1 = {150, 150}, s2 = {140, 140};
  double keep_prob = 1;
  int64_t inner_precise = 2;
  MaskArguments sparse = {};
  std::vector<std::uint8_t> drop = {}, mask = {};
  std::deque<std::vector<std::byte>> data = {};

  // Random numbers of the query's or the key's shape.
  Tensor tensor(bool of_queries) {
    const int64_t n = of_queries ? n1 : n2, s = of_queries ? s1[0] : s2[0];
    const int64_t t = of_queries ? s1[0] + s1[1] : s2[0] + s2[1];
    const std::map<std::string, std::vector<int64_t>> shapes = {{"BNSD", {2, n, s, d}},
                                                                {"BSND", {2, s, n, d}},
                                                                {"BSH", {2, s, n * d}},
                                                                {"SBH", {s, 2, n * d}},
                                                                {"TND", {t, n, d}}};
    std::vector<float> wide(t * n * d);
    std::mt19937 random(data.size());
    std::normal_distribution<float> normal;
    for (float& x : wide) x = normal(random);
    narrow(wide.data(), t * n * d, type, data.emplace_back(t * n * d * bytes_of(type)).data());
    return {data.back().data(), type, shapes.at(layout)};
  }
  Tensor statistics() {
    std::vector<int64_t> shape = {2, n1, s1[0], kStatistics};
    if (layout == "TND") shape = {s1[0] + s1[1], n1, kStatistics};
    data.emplace_back((s1[0] + s1[1]) * n1 * kStatistics * sizeof(float));
    return {data.back().data(), DataType::kFloat, shape};
  }
  Results tensors() {
    Results r;
    for (Tensor* t : {&r.q, &r.o, &r.dy, &r.dq}) *t = tensor(true);
    for (Tensor* t : {&r.k, &r.v, &r.dk, &r.dv}) *t = tensor(false);
    r.max = statistics(), r.sum = statistics();
    return r;
  }
  // Where a row lies, said once more: not by the operators' own layout.h.
  int64_t at(bool of_queries, int64_t e, int64_t h, int64_t s) const {
    const int64_t n = of_queries ? n1 : n2, length = of_queries ? s1[0] : s2[0];
    if (layout == "BNSD") return ((e * n + h) * length + s) * d;
    if (layout == "SBH") return ((s * 2 + e) * n + h) * d;
    return ((e * length + s) * n + h) * d;  // BSH, BSND, and of two sequences TND
  }
};

std::vector<double> numbers(const Tensor& t) {
  const auto count = std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies());
  std::vector<float> wide(count);
  widen(static_cast<const std::byte*>(t.data), t.type, count, wide.data());
  return {wide.begin(), wide.end()};
}

template <class Arguments>
Arguments arguments(Small& p, const Results& r) {
  Arguments call;
  call.pre_tokens = p.sparse.pre_tokens, call.next_tokens = p.sparse.next_tokens;
  call.query = r.q, call.key = r.k, call.value = r.v;
  call.softmax_max = r.max, call.softmax_sum = r.sum;
  call.head_num = p.n1, call.input_layout = p.layout, call.scale_value = 0.2;
  call.keep_prob = p.keep_prob, call.inner_precise = p.inner_precise;
  call.sparse_mode = p.sparse.sparse_mode, call.prefix = p.sparse.prefix;
  const auto bytes = static_cast<int64_t>(p.drop.size());
  if (!p.mask.empty()) call.atten_mask = {p.mask.data(), DataType::kBool, p.sparse.shape};
  if (!p.drop.empty()) call.drop_mask = {p.drop.data(), DataType::kUint8, {bytes}};
  if (p.layout != "TND") return call;
  call.actual_seq_qlen = {p.s1[0], p.s1[0] + p.s1[1]};
  call.actual_seq_kvlen = {p.s2[0], p.s2[0] + p.s2[1]};
  return call;
}

Results run(Small& p) {
  const Results r = p.tensors();
  auto forward = arguments<FlashAttentionScoreArguments>(p, r);
  auto grad = arguments<FlashAttentionScoreGradArguments>(p, r);
  forward.attention_out = r.o;
  grad.attention_in = r.o, grad.dy = r.dy, grad.dq = r.dq, grad.dk = r.dk, grad.dv = r.dv;
  std::uint64_t bytes = 0;
  Executor executor;
  const auto expect_ok = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message; };
  expect_ok(flash_attention_score_get_workspace_size(forward, bytes, executor));
  std::vector<std::byte> workspace(bytes, std::byte{0xff});
  expect_ok(flash_attention_score(workspace.data(), bytes, executor));
  expect_ok(flash_attention_score_grad_get_workspace_size(grad, bytes, executor));
  workspace.assign(bytes, std::byte{0xff});
  expect_ok(flash_attention_score_grad(workspace.data(), bytes, executor));
  return r;
}

// Attention as its definition has it, in double; each number at the place of the operator's.
struct Plain {
  std::vector<double> q, k, v, dy, o, dq, dk, dv, lse;
};

// One row's part of all. `bit`: of its first score in the drop mask.
void add_row(const Small& p, const Sees& sees, int64_t e, int64_t h, int64_t i, int64_t bit,
             Plain& x) {
  const int64_t keys = p.s2[e], row = p.at(true, e, h, i);
  const auto key_at = [&](int64_t j) { return p.at(false, e, h / (p.n1 / p.n2), j); };
  std::vector<double> w(keys), zeta(keys), dp(keys);
  double sum = 0, dot = 0;
  for (int64_t j = 0; j < keys; ++j, ++bit) {
    double s = 0;
    for (int64_t c = 0; c < p.d; ++c) {
      s += 0.2 * x.q[row + c] * x.k[key_at(j) + c];
      dp[j] += x.dy[row + c] * x.v[key_at(j) + c];
    }
    zeta[j] = p.drop.empty() || (p.drop[bit / 8] >> (bit % 8) & 1) != 0 ? 1 / p.keep_prob : 0;
    if (sees(e, i, j)) sum += w[j] = std::exp(s);
  }
  x.lse.push_back(std::log(sum));
  for (int64_t j = 0; j < keys; ++j) dot += (w[j] /= sum) * zeta[j] * dp[j];
  for (int64_t j = 0; j < keys; ++j) {
    const double ds = w[j] * (zeta[j] * dp[j] - dot) * 0.2;
    for (int64_t c = 0; c < p.d; ++c) {
      x.o[row + c] += w[j] * zeta[j] * x.v[key_at(j) + c];
      x.dq[row + c] += ds * x.k[key_at(j) + c];
      x.dk[key_at(j) + c] += ds * x.q[row + c];
      x.dv[key_at(j) + c] += w[j] * zeta[j] * x.dy[row + c];
    }
  }
}

Plain plain(const Small& p, const Results& r, const Sees& sees) {
  Plain x{numbers(r.q), numbers(r.k), numbers(r.v), numbers(r.dy), {}, {}, {}, {}, {}};
  x.o.resize(x.q.size()), x.dq.resize(x.q.size());
  x.dk.resize(x.k.size()), x.dv.resize(x.k.size());
  int64_t bit = 0;
  for (int64_t e = 0; e < 2; ++e) {
    for (int64_t h = 0; h < p.n1; ++h)
      for (int64_t i = 0; i < p.s1[e]; ++i, bit += p.s2[e]) add_row(p, sees, e, h, i, bit, x);
  }
  return x;
}

void expect_plain(Small p, const Sees& sees) {
  const double tolerance = p.type == DataType::kFloat ? 2e-4 : 0.15;  // the latter bf16's
  const Results r = run(p);
  const Plain x = plain(p, r, sees);
  const auto expect = [&](const Tensor& t, const std::vector<double>& exact, const char* what) {
    EXPECT_THAT(numbers(t), ::testing::Pointwise(::testing::DoubleNear(tolerance), exact))
        << what << ", " << p.layout;
  };
  expect(r.o, x.o, "attention_out");
  expect(r.dq, x.dq, "dq"), expect(r.dk, x.dk, "dk"), expect(r.dv, x.dv, "dv");
}

// The compressed mask, 1 above the diagonal, and what mode 6 has below it.
void give_compressed(Small& p, int64_t mode) {
  p.sparse.sparse_mode = mode;
  const int64_t rows = mode == 6 ? 3072 : 2048;
  p.sparse.shape = {rows, 2048};
  p.mask.resize(rows * 2048);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < 2048; ++j) p.mask[i * 2048 + j] = i < 2048 ? j > i : j >= 1024;
}

void give_whole(Small& p, int64_t mode, const Sees& sees, bool of_batch) {
  p.sparse.sparse_mode = mode;
  p.sparse.shape = {p.s1[0], p.s2[0]};
  if (of_batch) p.sparse.shape = {2, 1, p.s1[0], p.s2[0]};
  for (int64_t e = 0; e < (of_batch ? 2 : 1); ++e)
    for (int64_t i = 0; i < p.s1[0]; ++i)
      for (int64_t j = 0; j < p.s2[0]; ++j) p.mask.push_back(sees(e, i, j) ? 0 : 1);
}

// ---- The calling convention

TEST(AscendTest, EveryLayoutAndFormatGivesWhatPlainLoopsGive) {
  for (const char* layout : {"BSH", "SBH", "BNSD", "BSND", "TND"}) {
    for (const DataType type : {DataType::kFloat, DataType::kFloat16, DataType::kBf16}) {
      Small p;
      p.layout = layout, p.type = type;
      if (p.layout == "TND") p.s1 = {33, 150}, p.s2 = {140, 17};
      expect_plain(p, kAll);
    }
  }
}

TEST(AscendTest, CausalModesAndTheBandHaveTheirOwnCorners) {
  const auto expect = [](int64_t mode, int64_t pre, int64_t next, int64_t s1, int64_t s2,
                         const Sees& sees) {
    Small p;
    p.s1 = {s1, s1}, p.s2 = {s2, s2};
    give_compressed(p, mode);
    p.sparse.pre_tokens = pre, p.sparse.next_tokens = next;
    expect_plain(p, sees);
  };
  expect(2, 0, 0, 150, 140, [](int64_t, int64_t i, int64_t j) { return j <= i; });
  expect(3, 0, 0, 140, 150, [](int64_t, int64_t i, int64_t j) { return j <= i + 10; });
  expect(3, 0, 0, 3, 2300, [](int64_t, int64_t i, int64_t j) { return j <= i + 2297; });
  expect(4, 20, 3, 140, 150,
         [](int64_t, int64_t i, int64_t j) { return j >= i + 10 - 20 && j <= i + 10 + 3; });
  expect(4, 20, -3, 140, 150,
         [](int64_t, int64_t i, int64_t j) { return j >= i + 10 - 20 && j <= i + 10 - 3; });
}

TEST(AscendTest, AOneOfTheMaskHidesAndTheDefaultModeLeavesOutWhatTheTokensDo) {
  Small all, p;
  const Sees sees = [](int64_t, int64_t i, int64_t j) { return (i + j) % 3 != 0; };
  give_whole(all, 1, sees, false);
  expect_plain(all, sees);
  p.s1 = p.s2 = {384, 384};
  give_whole(p, 0, kAll, false);  // whose table and tokens disagree: whole blocks are left out
  p.sparse.pre_tokens = 30, p.sparse.next_tokens = 5;
  expect_plain(p, [](int64_t, int64_t i, int64_t j) { return std::abs(j / 128 - i / 128) <= 1; });
}

TEST(AscendTest, PrefixModesShowTheFirstKeysToAll) {
  for (const int64_t mode : {5, 6}) {
    Small p;
    p.s1 = {140, 140}, p.s2 = {300, 300};
    p.sparse.prefix = {170, 260};
    const Sees sees = [](int64_t e, int64_t i, int64_t j) {
      return j <= i + 160 || j < (e == 0 ? 170 : 260);
    };
    mode == 5 ? give_whole(p, 5, sees, true) : give_compressed(p, 6);
    expect_plain(p, sees);
  }
}

TEST(AscendTest, AModeThatCutsASequenceHasABandForThatOneAlone) {
  Small p;
  p.layout = "TND", p.s1 = {40, 50}, p.s2 = {60, 70};
  give_compressed(p, 7);
  p.sparse.pre_tokens = 70, p.sparse.next_tokens = -2;
  expect_plain(p, [](int64_t e, int64_t i, int64_t j) { return j <= i + 20 - (e == 1 ? 2 : 0); });
  give_compressed(p, 8);
  p.sparse.pre_tokens = 60, p.sparse.next_tokens = 1;
  expect_plain(p, [](int64_t e, int64_t i, int64_t j) { return j <= i + (e == 0 ? 20 + 1 : 0); });
}

TEST(AscendTest, AOneOfTheDropMaskKeepsAndIsDividedByKeepProb) {
  Small p;
  p.keep_prob = 0.75;
  std::mt19937 random(5);
  p.drop.resize((2 * p.n1 * p.s1[0] * p.s2[0] + 7) / 8);
  for (auto& byte : p.drop) byte = static_cast<std::uint8_t>(random() | random());
  expect_plain(p, kAll);
}

TEST(AscendTest, StatisticsStandEightTimesAndAreMaximumAndSum) {
  Small p;
  const Results r = run(p);
  const std::vector<double> max = numbers(r.max), sum = numbers(r.sum), lse = plain(p, r, kAll).lse;
  for (std::size_t n = 0; n < max.size(); ++n)
    EXPECT_NEAR(max[n] + std::log(sum[n]), lse[n / kStatistics], 1e-5);
}

TEST(AscendTest, RowsThatSeeNothingHaveTheLargestNumberForTheirSumOrTheMeanOfWhatWasLoaded) {
  Small p;
  give_whole(
      p, 1, [](int64_t, int64_t i, int64_t) { return i != 5; }, false);
  Results r = run(p);
  const std::size_t row = 5 * p.d;
  EXPECT_EQ(numbers(r.max)[5 * kStatistics], kHidden);
  EXPECT_EQ(numbers(r.sum)[5 * kStatistics], -kHidden);
  EXPECT_EQ(numbers(r.o)[row], 0);
  EXPECT_EQ(numbers(r.dq)[row], 0);
  p.inner_precise = 0;
  r = run(p);
  double mean = 0;
  for (int64_t j = 0; j < p.s2[0]; ++j)
    mean += numbers(r.v)[j * p.d] / static_cast<double>(p.s2[0]);
  EXPECT_NEAR(numbers(r.o)[row], mean, 1e-5);
}

TEST(AscendTest, TheTwoOperatorsHaveDefaultTokensOfTheirOwn) {
  EXPECT_EQ(FlashAttentionScoreArguments().pre_tokens, 2147483647);
  EXPECT_EQ(FlashAttentionScoreGradArguments().pre_tokens, 65536);
}

// What the first phase says of a call that `change` was made to.
Status refusal(const std::function<void(FlashAttentionScoreArguments&)>& change) {
  Small p;
  const Results r = p.tensors();
  auto call = arguments<FlashAttentionScoreArguments>(p, r);
  call.attention_out = r.o;
  change(call);
  std::uint64_t bytes = 0;
  Executor executor;
  return flash_attention_score_get_workspace_size(call, bytes, executor);
}

TEST(AscendTest, WhatTheOperatorsDoNotTakeIsRefusedWithTheirCodes) {
  using Call = FlashAttentionScoreArguments;
  std::uint8_t byte = 0;
  const auto masked = [&byte](Call& c, int64_t mode, std::vector<int64_t> shape) {
    c.sparse_mode = mode, c.atten_mask = {&byte, DataType::kBool, std::move(shape)};
  };
  EXPECT_TRUE(refusal([](Call&) {}).ok());
  EXPECT_EQ(refusal([](Call& c) { c.key.data = nullptr; }).code, Code::kParamNullptr);
  const auto expect_invalid = [](const char* why, const std::function<void(Call&)>& change) {
    const Status status = refusal(change);
    EXPECT_EQ(status.code, Code::kParamInvalid);
    EXPECT_THAT(status.message, HasSubstr(why));
  };
  expect_invalid("no layout BHSD", [](Call& c) { c.input_layout = "BHSD"; });
  expect_invalid("no format UINT8", [](Call& c) { c.query.type = DataType::kUint8; });
  expect_invalid("keep_prob", [](Call& c) { c.keep_prob = 0; });
  expect_invalid("no sparse_mode 7", [&](Call& c) { masked(c, 7, {2048, 2048}); });
  expect_invalid("compressed", [&](Call& c) { masked(c, 2, {150, 140}); });
  expect_invalid("prefix", [&](Call& c) { masked(c, 6, {3072, 2048}), c.prefix = {1, 141}; });
  expect_invalid("do not meet", [&](Call& c) {
    masked(c, 4, {2048, 2048}), c.pre_tokens = -4, c.next_tokens = 3;
  });
}

// ---- Attest's masks in the operators' words

MaskChoice choice_of(std::vector<attest_mask> nodes, int64_t queries, int64_t keys) {
  attest_problem raw{};
  raw.struct_size = sizeof(raw);
  raw.batch = raw.query_heads = raw.key_heads = 1;
  raw.query_len = queries, raw.key_len = keys;
  for (attest_mask& node : nodes) node.struct_size = sizeof(node);
  raw.mask = nodes.data(), raw.mask_count = static_cast<int64_t>(nodes.size());
  return choose_mask(Problem(&raw), {false, queries, keys, true});
}

TEST(AscendTest, MasksBecomeTheModeThatSaysThem) {
  attest_mask causal{};
  causal.kind = ATTEST_MASK_BAND, causal.left = ATTEST_UNBOUNDED;
  EXPECT_EQ(choice_of({causal}, 4, 6).sparse_mode, 2);
  causal.anchored_bottom_right = 1;
  EXPECT_EQ(choice_of({causal}, 4, 6).sparse_mode, 3);
  attest_mask window = causal;
  window.left = 3, window.right = 1, window.anchored_bottom_right = 0;
  const MaskChoice band = choice_of({window}, 4, 6);
  EXPECT_THAT((std::array{band.sparse_mode, band.pre_tokens, band.next_tokens}),
              ::testing::ElementsAre(4, 3 + 2, 1 - 2));
  int64_t one = 1;
  attest_mask prefix{}, any{};
  prefix.kind = ATTEST_MASK_PREFIX;
  prefix.table = {&one, ATTEST_I64, 0, {1, 1, 1, 1}, {1, 1, 1, 1}, sizeof(one)};
  any.kind = ATTEST_MASK_ANY_OF, any.second = 1;
  const MaskChoice both = choice_of({prefix, causal, any}, 4, 6);
  EXPECT_EQ(both.sparse_mode, 6);
  EXPECT_THAT(both.prefix, ::testing::ElementsAre(2));  // which the causal part shows anyway
  const MaskChoice whole = choice_of({prefix}, 2, 3);
  EXPECT_EQ(whole.sparse_mode, 1);
  EXPECT_THAT(whole.atten_mask, ::testing::ElementsAre(0, 1, 1, 0, 1, 1));
}

// ---- Rules of the device

Profile backward_of(const Tiling& tiling, const char* layout = "BNSD") {
  return run_backward(plan_of_time({layout, 1, 2, 1024, 128, true}, tiling, true));
}

TEST(AscendTest, BothTilesOfTheSeedFitItsBuffersAndALargerOneIsAnError) {
  EXPECT_LE(backward_of({.base_m = 64}).ub_used, 120 * kKb);
  EXPECT_LE(backward_of({.base_m = 128}).ub_used, 120 * kKb);
  EXPECT_THROW(backward_of({.base_m = 256}), DeviceError);
  EXPECT_THROW(backward_of({.base_n = 512}), DeviceError);
}

TEST(AscendTest, TheThreeBuffersTake158KbAndAPlaceInThemIsAMultipleOf32Bytes) {
  AiCore core;
  UbBuffers buffers(core);
  EXPECT_EQ(core.unified.used(), 158U * 1024);
  EXPECT_THROW(TBuf(core, "another", 35 * kKb), DeviceError);
  EXPECT_THROW(buffers.clc3.get_with_offset<float>(8, 16), DeviceError);
  EXPECT_THROW(buffers.clc3.get_with_offset<float>(2 * kKb, 32), DeviceError);
}

// A program on the queue between cube and vector core, with what the cube core does to it.
void on_workspace(const std::function<void(device::Queue<int>&, device::Unit&)>& cube) {
  AiCore core;
  device::Stages stages;
  device::Queue<int> workspace(stages, "mm1 workspace", 2);
  stages.add([&] { cube(workspace, core.fixpipe.unit()); });
  stages.add([&] {
    workspace.front(core.vector_mte2.unit(), 0);
    workspace.pop(core.vector_mte2.unit());
  });
  stages.run();
}

TEST(AscendTest, ALaunchThatOverrunsThePingPongOrComesInTheWrongOrderIsAnError) {
  const auto push = [](bool reserved, int64_t number) {
    on_workspace([=](device::Queue<int>& workspace, device::Unit& unit) {
      if (reserved) workspace.reserve(unit);
      workspace.push(unit, number, 0);
    });
  };
  EXPECT_NO_THROW(push(true, 0));
  EXPECT_THROW(push(false, 0), DeviceError);
  EXPECT_THROW(push(true, 1), DeviceError);
  EXPECT_THROW(on_workspace([](auto&, auto&) {}), DeviceError);  // the vector core waits for ever
}

TEST(AscendTest, WhatStopsTheDeviceIsReturnedByTheOperator) {
  Plan plan = plan_of_time({"BNSD", 1, 2, 1024, 128, true}, {.cores = 25}, true);
  plan.workspace.bytes = 0;
  std::byte none;
  const Status status =
      flash_attention_score_grad(&none, 0, {std::make_shared<const Plan>(plan), true});
  EXPECT_EQ(status.code, Code::kAicoreException);
  EXPECT_THAT(status.message, HasSubstr("25 cores"));
}

// ---- The seed's figures

TEST(AscendTest, LargerBlocksHalveTheLoopTrips) {
  const Shape square{"BNSD", 1, 1, 512, 128, false};
  const auto trips = [&](const Tiling& t) {
    return run_backward(plan_of_time(square, t, true)).trips;
  };
  EXPECT_EQ(trips({.base_m = 64, .cores = 1}), 32);
  EXPECT_EQ(trips({.base_m = 128, .cores = 1}), 16);
}

TEST(AscendTest, RowsOfBlocksOnNineCoresTakeTwiceAsLongAsEvenDealing) {
  const auto longest = [](int64_t heads, Dealing dealing, const auto& deal) {
    const Tiling tiling{.base_m = 768, .base_n = 768, .dealing = dealing, .cores = 9};
    const Plan plan = plan_of_time({"BNSD", 1, heads, 6144, 128, true}, tiling, true);
    return most_blocks(deal(block_rows(plan), tiling));
  };
  EXPECT_EQ(longest(1, Dealing::kByRows, deal_blocks), 8);
  EXPECT_EQ(longest(1, Dealing::kEvenly, deal_blocks), 4);
  EXPECT_EQ(longest(12, Dealing::kByRows, deal_rows), 8 * 12);
  EXPECT_EQ(longest(12, Dealing::kEvenly, deal_rows), 4 * 12);
}

TEST(AscendTest, AMisalignedWorkspaceTakesTwiceTheFixPipe) {
  const Profile off = backward_of({.aligned_workspace = false}), on = backward_of({});
  EXPECT_EQ(off.fixpipe, 2 * on.fixpipe);
  EXPECT_EQ(off.bursts, 4 * on.bursts);
  EXPECT_GT(off.cycles(), on.cycles());
}

TEST(AscendTest, RowsSideBySideTakeTheMoverLessThanHalf) {
  device::Dma bsh("MTE2", kMover), bnsd("MTE2", kMover);
  count_rows(bsh, 2 * 128, 128, 128, 5 * 128);
  count_rows(bnsd, 0, 128, 128, 128);
  EXPECT_LE(2 * bnsd.unit().busy, bsh.unit().busy);
  EXPECT_LT(backward_of({}).mte2, backward_of({}, "BSH").mte2);
}

TEST(AscendTest, ALeftTileOfMoreRowsThanTheCubeSumsIsAnError) {
  AiCore core;
  CubeCore cube(core, DataType::kFloat16, 64, 64, 128);
  std::vector<std::uint16_t> numbers(512 * 16);
  const Matrix tall = {Gm{reinterpret_cast<std::byte*>(numbers.data())}, 512, 16, 16};
  EXPECT_THAT([&] { cube.left(tall); },
              ThrowsMessage<device::DeviceError>(HasSubstr("512 x 16 is larger than its place")));
}

TEST(AscendTest, TheCubeCoreAheadFillsTheGapsOfBoth) {
  const Tiling in_turn{.blocks_at_once = 1, .ahead = false, .next_round = false, .cores = 1};
  const Profile before = backward_of(in_turn), after = backward_of({.cores = 1});
  EXPECT_GT(before.cycles(), 1.4 * static_cast<double>(after.cycles()));
  EXPECT_GT(after.cube_ratio, before.cube_ratio);
  EXPECT_GT(after.vector_ratio, before.vector_ratio);
  EXPECT_LT(after.handovers, before.handovers);
}

}  // namespace
}  // namespace attest::vendor::ascend
