#include "impl/vendor/triton/figures.h"

#include <fmt/format.h>

#include <cmath>

#include "impl/vendor/triton/bench.h"
#include "impl/vendor/triton/config.h"
#include "impl/vendor/triton/figures_of_bench.h"
#include "impl/vendor/triton/line_by_line.h"
#include "impl/vendor/triton/triton_api.h"

namespace attest::vendor::triton {
namespace {

constexpr std::int64_t kRows = 128;  // one block of them

// Where FlashAttention-2 differs from -1, and the loop in f32.
std::vector<Figure> rows_of_the_algorithm() {
  const TutorialSizes s;
  const Trace trace = forward_line_by_line(uniform_matrix(s.N, s.d, 1), uniform_matrix(s.N, s.d, 2),
                                           uniform_matrix(s.N, s.d, 3), s.Br, s.Bc);
  const Config config = config_for(64, 8);
  const Visit &first = trace.visits[0], &second = trace.visits[1];
  return {
      {"FlashAttention-1 against the largest FLOP/s of a GEMM", "25% to 40%", "",
       "nowhere: cited; the mock has no seconds, and FlashAttention-1 is another system"},
      {"FlashAttention-2 against -1", "about 2x", "", "nowhere: cited, likewise"},
      {"FlashAttention-2 has fewer operations that are no matrix product: it divides O once", "",
       fmt::format("{} divisions in the example; {} if after each block", trace.divisions,
                   trace.divisions * s.N / s.Bc),
       "line_by_line.cpp, step 12; declared: rescales_output false (NUM-2)"},
      {"one head is dealt to several blocks of threads", "",
       fmt::format("{} programs for a head of 4096 rows", 4096 / config.BLOCK_M),
       "triton_api.cpp, grid"},
      {"-1 deals K and V to 4 warps of 32 threads, -2 deals Q: less shared memory is read and "
       "written",
       "4 warps, 32 threads",
       fmt::format("{} bytes of partial O in a program, against {}",
                   shared_bytes_exchanged(config, 64, WarpsShare::keys),
                   shared_bytes_exchanged(config, 64, WarpsShare::queries)),
       "config.cpp, shared_bytes_exchanged; the text says that it does not explain it"},
      {"sizes of the example; Bc = d", "N 16, d 8, Br 4, Bc 8",
       fmt::format("N {}, d {}, Br {}, Bc {}: {} visits of a block of keys", trace.O.rows,
                   trace.O.columns, trace.Br, trace.Bc, trace.visits.size()),
       "impl/vendor/triton/trace_main.cpp; case seeds/tutorial/forward"},
      {"steps 3 to 14: m, l and O after each block of keys", "",
       fmt::format("row 0: m {:.4f}, l {:.4f}; then m {:.4f}, l {:.4f}", first.mi[0], first.li[0],
                   second.mi[0], second.li[0]),
       "line_by_line.cpp; TritonTest.EachVisitLeavesTheSumsOfTheKeysSoFar"},
      {"O agrees with a plain softmax", "torch.allclose",
       fmt::format("O[0][0] = {:.6f}, by {} exponentials", trace.O(0, 0), trace.exps),
       "TritonTest.TheLoopOfTheExampleIsASoftmax; SOFTMAX-1"},
  };
}

// M of row 0, whose one score is 1: log2 e, as the kernel has it.
float M_of_a_score_of_1() {
  const Tensor q = Tensor::zeros({1, 1, kRows, 16}, Dtype::float16);
  q.set(0, 1);
  return attention(q, q, q, true, 1).ctx.M.get(0);
}

float M_of_equal_scores() {
  const Tensor q = Tensor::zeros({1, 1, kRows, 16}, Dtype::float16);
  return attention(q, q, q, true, 1).ctx.M.get(kRows - 1);
}

// Elements of O, of normal numbers, that a scale of -1 leaves not finite.
std::int64_t not_finite_below_0() {
  const Sizes shape = {1, 1, 4 * kRows, 64};
  const Tensor o =
      attention(normal_tensor(shape, 1), normal_tensor(shape, 2), normal_tensor(shape, 3), true, -1)
          .o;
  std::int64_t count = 0;
  for (std::int64_t n = 0; n < o.elements(); ++n) count += !std::isfinite(o.get(n));
  return count;
}

std::vector<Figure> rows_of_the_scores() {
  const Config config = config_for(64, 8);
  return {
      {"stage 1: keys from 0 to start_m BLOCK_M, without a mask; stage 2: those up to the end of "
       "the block of rows, with it",
       "",
       fmt::format("{} and {} blocks of keys in the last program of 4096",
                   (4096 - config.BLOCK_M) / config.BLOCK_N, config.BLOCK_M / config.BLOCK_N),
       "attn_fwd.cpp, inner; MASK-2"},
      {"qk is tl.dot(q, k), in f32", "float32", "", "dot.h; declared: products, accumulator f32"},
      {"the mask adds a finite number, in base 2", "-1.0e6",
       fmt::format("a hidden key 690000 above the visible one has the weight {}, one 700000 above "
                   "it {}",
                   weight_of_hidden_key(690000), weight_of_hidden_key(700000)),
       "TritonTest.AHiddenKeyFarAboveTheVisibleOneHasAllTheWeight; breaks SOFTMAX-2, MASK-2, "
       "HIDE-1"},
      {"the maximum: in stage 1 of the products, times the scale; in stage 2 of the scores", "",
       fmt::format("with a scale of -1 {} of 32768 elements of O are not finite",
                   not_finite_below_0()),
       "attn_fwd.cpp, softmax; SCORE-5: any-scale is not declared"},
      {"exp2 of scores times 1/log(2), to nine digits", "1.44269504",
       fmt::format("{:.9g}: M of a score of 1", M_of_a_score_of_1()), "attn_fwd.cpp, kLog2E"},
      {"p = exp2(qk), l_ij = its sum, before it is rounded", "", "",
       "attn_fwd.cpp, softmax; declared: row_sum p"},
      {"alpha = exp2(m_i - m_ij) rescales l_i and acc", "", "",
       "attn_fwd.cpp, softmax; declared: key_block 32"},
      {"P is f16 when it meets V", "float16",
       fmt::format("1/3 becomes {:.9g}", rounded_to_f16(1.0f / 3)),
       "floats.h; declared: p f16, p_normalised last. So V is f16: TritonTest."
       "TheCompilerRefusesAnyVButF16"},
      {"the same lines once more, as what matters", "", "", "attn_fwd.cpp, softmax"},
  };
}

std::vector<Figure> rows_of_the_program() {
  return {
      {"off_hz is split by H; K, V and O lie at Q's strides of batch and head, in 64 bits", "", "",
       "attn_fwd.cpp, block_of; TritonTest.KeysAreReadByTheStridesOfQ; strides are not declared"},
      {"block pointers, and loads that check no end", "",
       fmt::format("lengths are multiples of {}", config_for(64, 8).BLOCK_M),
       "TritonTest.ALengthThatIsNoMultipleOfABlockIsAnIllegalAccess; limit query_len"},
      {"m_i begins at -inf, l_i at 1", "1.0",
       fmt::format("M of 128 equal scores is {}: the 1 is gone", M_of_equal_scores()),
       "attn_fwd.cpp, Program; LSE-1"},
      {"q is loaded once and stays in SRAM", "",
       fmt::format("{} bytes of f16, 64 channels", 128 * 64 * itemsize(Dtype::float16)),
       "attn_fwd.cpp, run"},
      {"a barrier lets the compiler schedule the two loops apart", "", "",
       "attn_fwd.cpp, inner: each loop fills and drains rings of its own"},
      {"M = m_i + log2(l_i), in f32", "base 2",
       fmt::format("{:.6f} of a score of 1", M_of_a_score_of_1()),
       "plugin.cpp: dialect lse base 2 (LSE-1.5); as triton/raw it breaks LSE-1"},
      {"acc / l_i, cast to Out's element type", "", "",
       "attn_fwd.cpp, epilogue; declared: rescales_output false, output_rounding nearest"},
      {"tl.constexpr and tl.multiple_of", "", "",
       "attn_fwd.cpp, compile; TritonTest.TheCompilerRefusesBlocksThatNoTileHas"},
      {"empty = torch.empty(128)", "128", "", "nowhere: nothing uses it"},
  };
}

}  // namespace

std::vector<Figure> triton_figures() {
  std::vector<Figure> all;
  for (const auto& rows : {rows_of_the_algorithm(), rows_of_the_scores(), rows_of_the_program(),
                           rows_of_the_wrapper(), rows_of_the_benchmark()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace attest::vendor::triton
