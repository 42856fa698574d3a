// The operators of both FlashAttention releases on the mock: their convention against plain loops.
#include "impl/vendor/nvidia_grid/nvidia_grid_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "impl/vendor/device/error.h"

namespace attest::vendor::nvidia_grid {
namespace {

using device::DeviceError;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::MockFunction;
using ::testing::Pointwise;

using Index = std::int64_t;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr ScalarType kHalf = ScalarType::kFloat16;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no error of the device";
}

// ---- Numbers, and attention in plain loops

// (batch, seqlen, heads, headdim) in fp16, and the same numbers as floats.
struct Numbers {
  std::vector<Index> sizes;
  std::vector<std::uint16_t> narrow;

  Numbers(std::vector<Index> shape, int seed) : sizes(std::move(shape)) {
    Index count = 1;
    for (const Index size : sizes) count *= size;
    std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1u;
    std::vector<float> values;
    for (Index n = 0; n < count; ++n) {
      state = state * 1664525u + 1013904223u;
      values.push_back(seed == 0 ? 0.0f : static_cast<float>(state >> 20) / 1024 - 2);
    }
    narrow.resize(values.size());
    nvidia_grid::narrow(kHalf, values.data(), narrow.data(), count);
  }
  Tensor tensor() {
    std::vector<Index> strides(sizes.size(), 1);
    for (std::size_t axis = sizes.size(); axis-- > 1;) {
      strides[axis - 1] = strides[axis] * sizes[axis];
    }
    return {narrow.data(), kHalf, sizes, strides};
  }
  // (total, heads, headdim).
  Tensor packed() {
    Tensor whole = tensor();
    return {whole.data,
            kHalf,
            {sizes[0] * sizes[1], sizes[2], sizes[3]},
            {whole.strides[1], whole.strides[2], 1}};
  }
  std::vector<float> wide() const {
    std::vector<float> values(narrow.size());
    widen(kHalf, narrow.data(), values.data(), static_cast<Index>(values.size()));
    return values;
  }
  double at(Index b, Index s, Index h, Index d) const {
    float value;
    widen(kHalf,
          &narrow[static_cast<std::size_t>(((b * sizes[1] + s) * sizes[2] + h) * sizes[3] + d)],
          &value, 1);
    return value;
  }
};

Tensor floats(std::vector<float>& values, std::vector<Index> sizes) {
  std::vector<Index> strides(sizes.size(), 1);
  for (std::size_t axis = sizes.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * sizes[axis];
  return {values.data(), ScalarType::kFloat32, std::move(sizes), std::move(strides)};
}

Tensor running(std::vector<std::int32_t>& sums) {
  return {sums.data(), ScalarType::kInt32, {static_cast<Index>(sums.size())}, {1}};
}

// What a score becomes, and which keys a row sees.
struct Rule {
  double scale;
  std::function<bool(Index i, Index j)> sees = [](Index, Index) { return true; };
  std::function<double(double x, Index h, Index i, Index j)> score = [](double x, Index, Index,
                                                                        Index) { return x; };
};

struct Expected {
  std::vector<float> o, lse, dq, dk, dv;  // in the operators' order; LSE (batch, heads, seqlen)
};

// Gradients are those of scores that `rule.score` leaves as they are.
Expected plain(const Numbers& q, const Numbers& k, const Numbers& v, const Numbers& d_o,
               const Rule& rule) {
  const Index b_size = q.sizes[0], sq = q.sizes[1], h_size = q.sizes[2], d_size = q.sizes[3];
  const Index sk = k.sizes[1], hk = k.sizes[2];
  const auto at = [&](Index b, Index s, Index h, Index d, Index seqlen, Index heads) {
    return static_cast<std::size_t>(((b * seqlen + s) * heads + h) * d_size + d);
  };
  Expected e = {std::vector<float>(q.narrow.size()),
                std::vector<float>(static_cast<std::size_t>(b_size * h_size * sq)),
                std::vector<float>(q.narrow.size()), std::vector<float>(k.narrow.size()),
                std::vector<float>(k.narrow.size())};
  for (Index b = 0; b < b_size; ++b) {
    for (Index h = 0; h < h_size; ++h) {
      const Index g = h / (h_size / hk);
      for (Index i = 0; i < sq; ++i) {
        std::vector<double> weights(static_cast<std::size_t>(sk));
        double sum = 0;
        for (Index j = 0; j < sk; ++j) {
          if (!rule.sees(i, j)) continue;
          double dot = 0;
          for (Index d = 0; d < d_size; ++d) dot += q.at(b, i, h, d) * k.at(b, j, g, d);
          sum += weights[static_cast<std::size_t>(j)] =
              std::exp(rule.score(rule.scale * dot, h, i, j));
        }
        e.lse[static_cast<std::size_t>((b * h_size + h) * sq + i)] =
            static_cast<float>(std::log(sum));
        if (sum == 0) continue;
        double mean = 0;
        const auto dp = [&](Index j) {
          double product = 0;
          for (Index d = 0; d < d_size; ++d) product += d_o.at(b, i, h, d) * v.at(b, j, g, d);
          return product;
        };
        for (Index j = 0; j < sk; ++j) {
          const double p = weights[static_cast<std::size_t>(j)] /= sum;
          mean += p * dp(j);
          for (Index d = 0; d < d_size; ++d) {
            e.o[at(b, i, h, d, sq, h_size)] += static_cast<float>(p * v.at(b, j, g, d));
            e.dv[at(b, j, g, d, sk, hk)] += static_cast<float>(p * d_o.at(b, i, h, d));
          }
        }
        for (Index j = 0; j < sk; ++j) {
          const double ds = rule.scale * weights[static_cast<std::size_t>(j)] * (dp(j) - mean);
          for (Index d = 0; d < d_size; ++d) {
            e.dq[at(b, i, h, d, sq, h_size)] += static_cast<float>(ds * k.at(b, j, g, d));
            e.dk[at(b, j, g, d, sk, hk)] += static_cast<float>(ds * q.at(b, i, h, d));
          }
        }
      }
    }
  }
  return e;
}

// A small problem of version 2.
struct Small {
  Index batch, heads, heads_k, sq, sk, d;
};
class Attention {
 public:
  explicit Attention(const Small& s)
      : q({s.batch, s.sq, s.heads, s.d}, 1),
        k({s.batch, s.sk, s.heads_k, s.d}, 2),
        v({s.batch, s.sk, s.heads_k, s.d}, 3),
        dout({s.batch, s.sq, s.heads, s.d}, 4),
        out({s.batch, s.sq, s.heads, s.d}, 0),
        dq({s.batch, s.sq, s.heads, s.d}, 0),
        dk({s.batch, s.sk, s.heads_k, s.d}, 0),
        dv({s.batch, s.sk, s.heads_k, s.d}, 0),
        lse(static_cast<std::size_t>(s.batch * s.heads * s.sq)),
        lse_sizes{s.batch, s.heads, s.sq} {}

  void run(Gpu& gpu, FlashAttnOptions options) {
    options.return_lse = floats(lse, lse_sizes);
    flash_attn_func(gpu, q.tensor(), k.tensor(), v.tensor(), out.tensor(), options);
    flash_attn_backward(gpu, dout.tensor(),
                        {q.tensor(), k.tensor(), v.tensor(), out.tensor(), floats(lse, lse_sizes)},
                        {dq.tensor(), dk.tensor(), dv.tensor()}, options);
  }
  void run(const FlashAttnOptions& options) {
    Gpu gpu(a100());
    run(gpu, options);
  }
  // By version 1; lengths are of equal sequences unless `cu_k` was set.
  void run_unpadded(UnpaddedOptions options) {
    Gpu gpu(a100(), 2);
    std::vector<std::int32_t> cu_q;
    for (Index b = 0; b <= q.sizes[0]; ++b) {
      cu_q.push_back(static_cast<std::int32_t>(b * q.sizes[1]));
      if (b == static_cast<Index>(cu_k.size())) {
        cu_k.push_back(static_cast<std::int32_t>(b * k.sizes[1]));
      }
    }
    const Varlen varlen = {running(cu_q), running(cu_k), q.sizes[1], k.sizes[1]};
    options.return_lse = floats(lse, lse_sizes);
    flash_attn_unpadded_func(gpu, q.packed(), k.packed(), v.packed(), varlen, out.packed(),
                             options);
    flash_attn_unpadded_backward(
        gpu, dout.packed(), {q.packed(), k.packed(), v.packed(), out.packed(), *options.return_lse},
        varlen, {dq.packed(), dk.packed(), dv.packed()}, options);
  }
  Expected expected(const Rule& rule) const { return plain(q, k, v, dout, rule); }
  void expect_forward(const Expected& e) const {
    EXPECT_THAT(out.wide(), Pointwise(FloatNear(0.01f), e.o));
    EXPECT_THAT(lse, Pointwise(FloatNear(0.001f), e.lse));
  }
  void expect(const Expected& e) const {
    expect_forward(e);
    EXPECT_THAT(dq.wide(), Pointwise(FloatNear(0.03f), e.dq));
    EXPECT_THAT(dk.wide(), Pointwise(FloatNear(0.06f), e.dk));
    EXPECT_THAT(dv.wide(), Pointwise(FloatNear(0.06f), e.dv));
  }

  Numbers q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;
  std::vector<Index> lse_sizes;
  std::vector<std::int32_t> cu_k;
};

// ---- Version 2's convention

TEST(NvidiaGridTest, TheScaleIsTheRootOfTheHeadDimensionUnlessGiven) {
  Attention a({2, 4, 2, 150, 200, 16});
  a.run(FlashAttnOptions{});
  a.expect(a.expected({.scale = 0.25}));
  a.run({.softmax_scale = 0.5});
  a.expect(a.expected({.scale = 0.5}));
}

TEST(NvidiaGridTest, CausalIsAlignedToTheBottomRight) {
  Attention a({1, 2, 1, 130, 300, 32});
  a.run({.causal = true});
  a.expect(a.expected(
      {.scale = 1 / std::sqrt(32.0), .sees = [](Index i, Index j) { return j <= i + 300 - 130; }}));
}

TEST(NvidiaGridTest, WindowsAreInclusiveOnBothSides) {
  Attention a({1, 1, 1, 200, 260, 8});
  a.run({.window_size = {70, 3}});
  a.expect(a.expected({.scale = 1 / std::sqrt(8.0), .sees = [](Index i, Index j) {
                         return i + 60 - 70 <= j && j <= i + 60 + 3;
                       }}));
}

TEST(NvidiaGridTest, SoftcapAndSlopesAreAddedInThisOrder) {
  Attention a({1, 2, 2, 40, 50, 16});
  std::vector<float> slopes = {0.25f, 0.5f};
  a.run({.softcap = 2.0, .alibi_slopes = floats(slopes, {2})});
  a.expect_forward(a.expected({.scale = 0.25, .score = [&](double x, Index h, Index i, Index j) {
                                 return 2 * std::tanh(x / 2) -
                                        static_cast<double>(slopes[static_cast<std::size_t>(h)]) *
                                            std::abs(static_cast<double>(i + 10 - j));
                               }}));
}

TEST(NvidiaGridTest, RowsWithoutKeysHaveNoOutputAndAnInfiniteLse) {
  Attention a({1, 1, 1, 140, 10, 8});
  a.run({.causal = true});
  EXPECT_EQ(a.lse[129], kInf);
  EXPECT_LT(a.lse[130], kInf);
  const std::vector<float> out = a.out.wide(), dq = a.dq.wide();
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + 130 * 8, [](float o) { return o == 0; }));
  EXPECT_TRUE(std::all_of(dq.begin(), dq.begin() + 130 * 8, [](float x) { return x == 0; }));
}

TEST(NvidiaGridTest, UnderACausalMaskSlopesMoveLseByAConstantOfTheRow) {
  Attention a({1, 1, 1, 20, 20, 8});
  std::vector<float> slopes = {0.5f};
  a.run({.causal = true, .alibi_slopes = floats(slopes, {1})});
  Expected e = a.expected({.scale = 1 / std::sqrt(8.0),
                           .sees = [](Index i, Index j) { return j <= i; },
                           .score = [](double x, Index, Index i,
                                       Index j) { return x - 0.5 * static_cast<double>(i - j); }});
  for (std::size_t i = 0; i < 20; ++i) e.lse[i] += 0.5f * static_cast<float>(i);
  a.expect(e);
}

TEST(NvidiaGridTest, AWindowToTheRightOfAllKeysIsTakenForNone) {
  Attention a({1, 1, 1, 8, 3, 8});
  a.run({.window_size = {-1, 4}});  // row 0 sits on key -5, and should see none
  a.expect(a.expected({.scale = 1 / std::sqrt(8.0)}));
}

TEST(NvidiaGridTest, HeadDimensionsArePaddedToAMultipleOfEight) {
  Attention a({1, 2, 2, 30, 30, 20});
  a.run(FlashAttnOptions{});
  a.expect(a.expected({.scale = 1 / std::sqrt(20.0)}));
}

TEST(NvidiaGridTest, PackedSequencesSeeOnlyTheirOwnKeys) {
  Numbers q({1, 30, 2, 8}, 1), k({1, 41, 2, 8}, 2), v({1, 41, 2, 8}, 3), out({1, 30, 2, 8}, 0);
  std::vector<std::int32_t> cu_q = {0, 20, 30}, cu_k = {0, 0, 41};
  std::vector<float> lse(60);
  Gpu gpu(a100());
  flash_attn_varlen_func(gpu, q.packed(), k.packed(), v.packed(),
                         {running(cu_q), running(cu_k), 20, 41}, out.packed(),
                         {.causal = true, .return_lse = floats(lse, {2, 30})});
  EXPECT_EQ(lse[19], kInf);  // 20 rows have no keys at all
  const Expected e = plain(q, k, v, q, {.scale = 1 / std::sqrt(8.0), .sees = [](Index i, Index j) {
                                          return i >= 20 && j <= i - 20 + 31;
                                        }});
  EXPECT_THAT(out.wide(), Pointwise(FloatNear(0.01f), e.o));
  EXPECT_NEAR(lse[30 + 25], e.lse[30 + 25], 0.001);
}

TEST(NvidiaGridTest, WeightsAreRoundedBeforeTheyMeetTheValuesAndTheirSumIsNot) {
  Attention a({1, 1, 1, 1, 2, 8});
  for (auto* each : {&a.q, &a.k, &a.v}) std::fill(each->narrow.begin(), each->narrow.end(), 0);
  a.q.narrow[0] = 0x3c00, a.k.narrow[8] = 0xbd00, a.v.narrow[8] = 0x3c00;  // 1, -1.25, 1
  a.run({.softmax_scale = 1.0});
  float weight = std::exp2(-1.25f * static_cast<float>(1.4426950408889634)), sum = 1 + weight;
  round_to(kHalf, &weight, 1);
  float expected = weight * (1 / sum);
  round_to(kHalf, &expected, 1);
  EXPECT_EQ(a.out.wide()[0], expected);
}

TEST(NvidiaGridTest, DeterministicGradientsDoNotDependOnTheHostsThreads) {
  Attention one({1, 3, 3, 300, 700, 16}), four = one;
  Gpu gpu_of_one(a100(), 1), gpu_of_four(a100(), 4);
  one.run(gpu_of_one, {.causal = true, .deterministic = true});
  four.run(gpu_of_four, {.causal = true, .deterministic = true});
  EXPECT_EQ(one.dq.narrow, four.dq.narrow);
  EXPECT_EQ(one.dk.narrow, four.dk.narrow);
}

// ---- Version 1's convention

TEST(NvidiaGridTest, TheFirstVersionsCausalIsAlignedToTheTopLeft) {
  for (const bool in_turn : {true, false}) {
    Attention a({2, 2, 2, 96, 600, 16});
    a.run_unpadded({.causal = true, .deterministic = in_turn});
    a.expect(a.expected({.scale = 0.25, .sees = [](Index i, Index j) { return j <= i; }}));
  }
}

TEST(NvidiaGridTest, TheFirstVersionsSplitsDoNotChangeARow) {
  for (const bool causal : {false, true}) {
    Attention one({1, 2, 2, 320, 600, 32}), seven = one;
    one.run_unpadded({.softmax_scale = 0.2, .causal = causal, .num_splits = 1});
    seven.run_unpadded({.softmax_scale = 0.2, .causal = causal, .num_splits = 7});
    EXPECT_EQ(one.out.narrow, seven.out.narrow);
    const Expected e = one.expected(
        {.scale = 0.2, .sees = [causal](Index i, Index j) { return !causal || j <= i; }});
    one.expect(e);
    seven.expect(e);
  }
}

TEST(NvidiaGridTest, TheFirstVersionMergesBlocksOfKeysWhicheverIsLarger) {
  Attention a({1, 1, 1, 64, 1024, 8});
  a.run_unpadded({.softmax_scale = 3.0});
  a.expect_forward(a.expected({.scale = 3.0}));
}

TEST(NvidiaGridTest, SequencesWithoutKeysAreWrittenOnlyWhereThatIsAskedFor) {
  for (const bool zero_tensors : {true, false}) {
    Attention a({2, 1, 1, 16, 16, 8});
    std::fill(a.out.narrow.begin(), a.out.narrow.end(), std::uint16_t{0x3c00});
    a.cu_k = {0, 0, 16};
    a.run_unpadded({.zero_tensors = zero_tensors});
    EXPECT_EQ(a.out.wide()[0], zero_tensors ? 0 : 1);
    EXPECT_EQ(a.lse[0], zero_tensors ? -kInf : 0);
  }
}

// ---- What they refuse, and tell

TEST(NvidiaGridTest, RowsThatBeginBetweenTwoCopiesFault) {
  Attention a({1, 1, 1, 4, 4, 8});
  a.q.narrow.insert(a.q.narrow.begin(), 0);
  Tensor shifted = a.q.tensor();
  shifted.data = a.q.narrow.data() + 1;
  Gpu gpu(a100());
  EXPECT_THAT(
      error_of([&] { flash_attn_func(gpu, shifted, a.k.tensor(), a.v.tensor(), a.out.tensor()); }),
      HasSubstr("no multiple of 16"));
}

TEST(NvidiaGridTest, FormatsLayoutsAndGridsThatTheGpuLacksAreErrors) {
  Gpu gpu(a100());
  Attention a({1, 1, 1, 4, 4, 8});
  Tensor q = a.q.tensor();
  q.dtype = ScalarType::kFloat32;
  EXPECT_THAT(error_of([&] { flash_attn_func(gpu, q, q, q, q); }), HasSubstr("no format fp32"));
  EXPECT_THAT(error_of([&] { gpu.device().check_layout("sbhd"); }), HasSubstr("no layout"));
  EXPECT_THAT(error_of([&] {
                gpu.launch("empty", {0, 1, 1}, {.threads = 32, .shared_bytes = 0}, {});
              }),
              HasSubstr("invalid configuration"));
  EXPECT_THROW(Attention({1, 3, 2, 4, 4, 8}).run(FlashAttnOptions{}), FlashAttnError);
  EXPECT_THROW(Attention({1, 1, 1, 4, 4, 264}).run(FlashAttnOptions{}), FlashAttnError);
  EXPECT_THROW(Attention({1, 1, 1, 16, 16, 20}).run_unpadded({}), FlashAttnError);
  EXPECT_THROW(a.run({.dropout_p = 0.1}), FlashAttnError);
}

TEST(NvidiaGridTest, TheProfilerIsToldOfEachTileOnce) {
  MockFunction<void(const TileOfScores&)> profiler;
  Attention a({1, 1, 1, 200, 200, 64});
  Gpu gpu(a100());
  gpu.profiler = profiler.AsStdFunction();
  const auto tile = [](Index row, Index key, bool masked, bool backward) {
    return AllOf(Field(&TileOfScores::query_begin, row), Field(&TileOfScores::key_begin, key),
                 Field(&TileOfScores::masked, masked), Field(&TileOfScores::backward, backward));
  };
  for (const bool backward : {false, true}) {
    EXPECT_CALL(profiler, Call(tile(0, 0, true, backward)));
    EXPECT_CALL(profiler, Call(tile(128, 0, !backward, backward)));
    EXPECT_CALL(profiler, Call(tile(128, 128, true, backward)));
  }
  a.run(gpu, {.causal = true});
}

}  // namespace
}  // namespace attest::vendor::nvidia_grid
