// The mock of JAX's splash attention on a TPU: its kernels and the plug-in against plain loops.
#include <attest/kernel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "impl/vendor/splash/axlearn.h"
#include "impl/vendor/splash/splash_api.h"
#include "tests/impl/vendor/splash_example.h"

namespace attest::vendor::splash {
namespace {

struct BothPasses {
  Output<float> forward;
  Gradients<float> backward;
};

BothPasses run(const Example& e, BlockSizes sizes = BlockSizes::get_default(),
               Precision precision = Precision::kFloat32, bool mqa = false) {
  HostSetup setup;
  setup.tpu.matmul_precision = precision;
  const SplashOptions options{
      .block_sizes = sizes, .save_residuals = true, .attn_logits_soft_cap = e.soft_cap};
  const auto kernel =
      mqa ? make_splash_mqa(e.masks(), options, setup) : make_splash_mha(e.masks(), options, setup);
  BothPasses all;
  all.forward = kernel(e.q_array(e.q), e.kv_array(e.k), e.kv_array(e.v), e.segment_ids());
  all.backward = kernel.vjp(Residuals<float>{.q = e.q_array(e.q),
                                             .k = e.kv_array(e.k),
                                             .v = e.kv_array(e.v),
                                             .out = e.q_array(all.forward.out),
                                             .logsumexp = all.forward.logsumexp.data(),
                                             .segment_ids = e.segment_ids()},
                            e.q_array(e.d_o));
  return all;
}

void expect_close(const Example& e, const BothPasses& found, double tolerance) {
  const Results exact = plain_loops(e);
  EXPECT_LT(furthest(found.forward.out, exact.o), tolerance);
  EXPECT_LT(furthest(found.forward.logsumexp, exact.lse), tolerance);
  EXPECT_LT(furthest(found.backward.dq, exact.dq), 30 * tolerance);
  EXPECT_LT(furthest(found.backward.dk, exact.dk), 30 * tolerance);
  EXPECT_LT(furthest(found.backward.dv, exact.dv), 30 * tolerance);
}

BlockSizes fused(std::int64_t block) { return tpu_block_sizes(block); }

SegmentIds three_documents(std::int64_t q_len, std::int64_t kv_len) {
  SegmentIds ids;
  for (std::int64_t i = 0; i < q_len; ++i) ids.q.push_back(static_cast<std::int32_t>(i / 100));
  for (std::int64_t j = 0; j < kv_len; ++j) ids.kv.push_back(static_cast<std::int32_t>(j / 100));
  return ids;
}

// ---- Kernels

TEST(SplashKernelTest, CausalGroupsAreThoseOfPlainLoops) {
  const Example e = Example{.q_heads = 4, .kv_heads = 2}.drawn();
  expect_close(e, run(e), 2e-5);
  expect_close(e, run(e, fused(256)), 2e-5);
}

TEST(SplashKernelTest, WindowsSegmentsAndCapsAreThoseOfPlainLoops) {
  Example e{.q_len = 256, .kv_len = 384, .mask = local_mask({256, 384}, {40, 90}, 30)};
  e.soft_cap = 2.5;
  e.drawn();
  expect_close(e, run(e), 2e-5);
  Example documents{.mask = logical_or(causal_mask({256, 256}), local_mask({256, 256}, {0, 9}, 0))};
  documents.segments = three_documents(256, 256);
  documents.drawn();
  expect_close(documents, run(documents), 2e-5);
  expect_close(documents, run(documents, fused(128)), 2e-5);
}

TEST(SplashKernelTest, BlockSizesOfEachKernelAreItsOwn) {
  const Example e = Example{.kv_len = 512, .mask = causal_mask({256, 512}, 200)}.drawn();
  const BlockSizes sizes{.block_q = 256,
                         .block_kv = 256,
                         .block_kv_compute = 128,
                         .block_q_dkv = 128,
                         .block_kv_dkv = 512,
                         .block_kv_dkv_compute = 256,
                         .block_q_dq = 64,
                         .block_kv_dq = 128};
  const BothPasses found = run(e, sizes);
  expect_close(e, found, 2e-5);
  EXPECT_EQ(found.forward.blocks[0].kv.size(), 256);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(SplashKernelTest, AnObjectAndItsArrayGiveTheSameBits) {
  Example e = Example{.mask = causal_mask({256, 256}, -70)}.drawn();  // with rows without a key
  const BothPasses lazy = run(e);
  HostCount count;
  e.mask = numpy_mask(dense(*e.mask, count));
  const BothPasses array = run(e);
  EXPECT_TRUE(same_bits(lazy.forward.out, array.forward.out));
  EXPECT_TRUE(same_bits(lazy.forward.logsumexp, array.forward.logsumexp));
  EXPECT_TRUE(same_bits(lazy.backward.dq, array.backward.dq));
  EXPECT_TRUE(same_bits(lazy.backward.dk, array.backward.dk));
  EXPECT_TRUE(same_bits(lazy.backward.dv, array.backward.dv));
  // A mask that is computed is compared everywhere, one that is brought in partial blocks alone.
  const auto masked = [](const BothPasses& of) {
    return std::count_if(of.forward.blocks.begin(), of.forward.blocks.end(),
                         [](const BlockRun& block) { return block.masked; });
  };
  EXPECT_EQ(masked(lazy), 2 * 3);
  EXPECT_EQ(masked(array), 2 * 3);  // none is full at this offset
  e.mask = numpy_mask(make_causal_mask({256, 256}, 0, count));
  EXPECT_EQ(masked(run(e)), 2 * 2);
}

TEST(SplashKernelTest, MqaIsMhaOfOneKeyHead) {
  const Example e = Example{}.drawn();
  const BothPasses mha = run(e), mqa = run(e, BlockSizes::get_default(), Precision::kFloat32, true);
  EXPECT_TRUE(same_bits(mha.forward.out, mqa.forward.out));
  EXPECT_TRUE(same_bits(mha.backward.dk, mqa.backward.dk));
}

TEST(SplashKernelTest, OperandsOfFloat32EnterAsBfloat16) {
  Example e =
      Example{.q_heads = 1, .q_len = 128, .kv_len = 128, .mask = full_mask({128, 128})}.drawn();
  std::fill(e.q.begin(), e.q.end(), 0.0f);
  std::fill(e.v.begin(), e.v.end(), 1 + 0x1p-9f);  // rounds to 1
  EXPECT_FLOAT_EQ(run(e).forward.out[0], 1 + 0x1p-9f);
  EXPECT_EQ(run(e, BlockSizes::get_default(), Precision::kDefault).forward.out[0], 1.0f);
}

TEST(SplashKernelTest, ARowWithoutKeysHasTheMeanOfVAndLeaksIntoGradients) {
  Example e{.q_heads = 1, .q_len = 256, .kv_len = 128, .mask = causal_mask({256, 128}, -1)};
  e.drawn();
  const BothPasses found = run(e);
  double mean = 0;
  for (std::size_t j = 0; j < 128; ++j) mean += e.v[j * 128] / 128.0;
  EXPECT_NEAR(found.forward.out[0], mean, 1e-5);
  EXPECT_FLOAT_EQ(found.forward.logsumexp[0], static_cast<float>(kDefaultMaskValue));
  EXPECT_NE(found.backward.dq[0], 0);
  // P is 1 there, not 1/128: the gradient of V is off by all of dO.
  const Results exact = plain_loops(e);
  EXPECT_NEAR(found.backward.dv[0] - exact.dv[0], e.d_o[0], 1e-4);
  // A block of rows that no key is visited for.
  e.mask = causal_mask({256, 128}, -128);
  const BothPasses none = run(e);
  EXPECT_TRUE(std::isnan(none.forward.out[0]));
  EXPECT_EQ(none.forward.logsumexp[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(none.backward.dq[0], 0);
}

TEST(SplashKernelTest, Bfloat16IsThatOfPlainLoopsWithinItsRounding) {
  Example e = Example{}.drawn();
  const auto narrow = [](std::vector<float>& wide) {
    std::vector<BFloat16> made;
    for (float& x : wide) x = made.emplace_back(BFloat16(x));
    return made;
  };
  const std::vector<BFloat16> q = narrow(e.q), k = narrow(e.k), v = narrow(e.v),
                              d_o = narrow(e.d_o);
  const auto array = [&](const std::vector<BFloat16>& data, std::int64_t heads) {
    return Array<const BFloat16>{.data = data.data(), .heads = heads, .seq = 256, .dim = 128};
  };
  HostSetup setup;
  const auto kernel = make_splash_mha(e.masks(), {.save_residuals = true}, setup);
  const auto found = kernel(array(q, 2), array(k, 1), array(v, 1));
  const auto gradients = kernel.vjp(Residuals<BFloat16>{.q = array(q, 2),
                                                        .k = array(k, 1),
                                                        .v = array(v, 1),
                                                        .out = array(found.out, 2),
                                                        .logsumexp = found.logsumexp.data()},
                                    array(d_o, 2));
  const Results exact = plain_loops(e);
  EXPECT_LT(furthest(found.out, exact.o), 0.01);
  EXPECT_LT(furthest(found.logsumexp, exact.lse), 1e-4);
  EXPECT_LT(furthest(gradients.dq, exact.dq), 0.2);
  EXPECT_LT(furthest(gradients.dk, exact.dk), 0.2);
  EXPECT_LT(furthest(gradients.dv, exact.dv), 0.2);
}

TEST(SplashKernelTest, ABfloat16QueryIsScaledByABfloat16Scale) {
  std::vector<BFloat16> query{BFloat16(1.0f), BFloat16(3.0f)};
  apply_softmax_scale(1 / std::sqrt(128.0), query);
  EXPECT_EQ(float(query[0]), 0.08837890625f);  // of .08838834764...
  EXPECT_EQ(float(query[1]), 0.265625f);       // of .26513671875
  std::vector<float> wide{3.0f};
  apply_softmax_scale(0.125, wide);
  EXPECT_EQ(wide[0], 0.375f);
}

TEST(SplashKernelTest, AxlearnsArraysHaveTheSequenceBeforeTheHeads) {
  const Example e = Example{.kv_heads = 2}.drawn();
  const auto btnh = [&](const std::vector<float>& from) {
    std::vector<float> to(from.size());
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t t = 0; t < 256; ++t) {
        std::copy_n(&from[(h * 256 + t) * 128], 128, &to[(t * 2 + h) * 128]);
      }
    }
    return to;
  };
  const std::vector<float> q = btnh(e.q), k = btnh(e.k), v = btnh(e.v);
  const Btnh<float> shape{.data = nullptr, .batch = 1, .seq = 256, .heads = 2, .head_dim = 128};
  Btnh<float> query = shape, key = shape, value = shape;
  query.data = q.data(), key.data = k.data(), value.data = v.data();
  HostSetup setup;
  const AttentionBias causal{.causal = true};
  EXPECT_EQ(tpu_flash_attention(query, key, value, causal, 1.0, 128, setup),
            btnh(run(e, fused(128), Precision::kDefault).forward.out));
  EXPECT_THROW(tpu_flash_attention(query, key, value, causal, 1.0, 512, setup), ValueError);
  EXPECT_THROW(check_tpu_splash_attention(causal, {128, 256}, 128),
               SplashAttentionUnsupportedError);
  EXPECT_THROW(check_tpu_splash_attention({}, {128, 256}, 64), SplashAttentionUnsupportedError);
}

// ---- The plug-in

attest_tensor tensor(std::vector<float>& data, std::int64_t heads, std::int64_t seq,
                     std::int64_t dim) {
  attest_tensor made{};
  data.resize(static_cast<std::size_t>(2 * heads * seq * dim));
  made.data = data.data();
  made.dtype = ATTEST_F32;
  const std::int64_t shape[] = {2, heads, seq, dim};
  std::int64_t stride = 1;
  for (int axis = 3; axis >= 0; --axis) {
    made.shape[axis] = shape[axis];
    made.stride[axis] = std::exchange(stride, stride * shape[axis]);
  }
  return made;
}

// Two sequences of two heads that share a key head; both are a batch of Attest's.
struct Plugged {
  explicit Plugged(Example of_both) : e(std::move(of_both)) {
    problem.struct_size = sizeof(problem), problem.dtype = ATTEST_F32, problem.backward = 1;
    problem.batch = 2, problem.query_heads = 2, problem.key_heads = 1;
    problem.query_len = e.q_len, problem.key_len = e.kv_len;
    problem.head_dim = problem.value_dim = e.dim;
    problem.scale = 0.7;
    problem.mask = &mask, problem.mask_count = 1;
    mask.struct_size = sizeof(mask), mask.kind = ATTEST_MASK_BAND;
    mask.anchored_bottom_right = 1, mask.left = 60, mask.right = 0;
    inputs.struct_size = sizeof(inputs), outputs.struct_size = sizeof(outputs);
    inputs.q = tensor(e.q, 2, e.q_len, e.dim), inputs.k = tensor(e.k, 1, e.kv_len, e.dim);
    inputs.v = tensor(e.v, 1, e.kv_len, e.dim), inputs.d_o = tensor(e.d_o, 2, e.q_len, e.dim);
    inputs.o = outputs.o = tensor(o, 2, e.q_len, e.dim);
    inputs.lse = outputs.lse = tensor(lse, 2, e.q_len, 1);
    outputs.dq = tensor(dq, 2, e.q_len, e.dim), outputs.dk = tensor(dk, 1, e.kv_len, e.dim);
    outputs.dv = tensor(dv, 1, e.kv_len, e.dim);
    context.struct_size = sizeof(context);
    context.message = message, context.message_bytes = sizeof(message);
    context.trace_context = &blocks;
    context.trace = [](void* to, const attest_block*) { ++*static_cast<int*>(to); };
  }
  Plugged(const Plugged&) = delete;

  Example e;
  attest_problem problem{};
  attest_mask mask{};
  attest_inputs inputs{};
  attest_outputs outputs{};
  attest_context context{};
  int blocks = 0;
  std::vector<float> o, lse, dq, dk, dv;
  char message[200] = "";
};

// A half of what belongs to both.
std::vector<float> of_sequence(const std::vector<float>& both, std::int64_t which) {
  const auto half = static_cast<std::ptrdiff_t>(both.size() / 2);
  return {both.begin() + which * half, both.begin() + (which + 1) * half};
}

TEST(SplashPluginTest, BothPassesAreThoseOfPlainLoopsForEachSequence) {
  const Example shape{.q_len = 128, .kv_len = 256, .mask = local_mask({128, 256}, {60, 0}, 128)};
  for (std::uint32_t n = 0; n < attest_plugin_get()->kernel_count; ++n) {
    Example both = shape;
    both.q_heads = 4, both.kv_heads = 2;
    Plugged p(both.drawn());
    const attest_kernel* const kernel = attest_plugin_get()->kernels[n];
    ASSERT_EQ(kernel->forward(kernel, &p.problem, &p.inputs, &p.outputs, &p.context), ATTEST_OK)
        << p.message;
    EXPECT_EQ(p.blocks, 2 * 2 * 2);
    ASSERT_EQ(kernel->backward(kernel, &p.problem, &p.inputs, &p.outputs, &p.context), ATTEST_OK)
        << p.message;
    for (std::int64_t b = 0; b < 2; ++b) {
      Example one = shape;
      one.q = of_sequence(p.e.q, b), one.k = of_sequence(p.e.k, b);
      one.v = of_sequence(p.e.v, b), one.d_o = of_sequence(p.e.d_o, b);
      for (float& x : one.q) x *= 0.7f;
      Results exact = plain_loops(one);
      for (double& x : exact.dq) x *= 0.7;
      EXPECT_LT(furthest(of_sequence(p.o, b), exact.o), 0.01);
      EXPECT_LT(furthest(of_sequence(p.lse, b), exact.lse), 0.02);
      EXPECT_LT(furthest(of_sequence(p.dq, b), exact.dq), 0.2);
      EXPECT_LT(furthest(of_sequence(p.dk, b), exact.dk), 0.2);
      EXPECT_LT(furthest(of_sequence(p.dv, b), exact.dv), 0.2);
    }
  }
}

}  // namespace
}  // namespace attest::vendor::splash
