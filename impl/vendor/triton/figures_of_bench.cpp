#include "impl/vendor/triton/figures_of_bench.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "impl/vendor/triton/autotune.h"
#include "impl/vendor/triton/bench.h"
#include "impl/vendor/triton/config.h"
#include "impl/vendor/triton/triton_api.h"

namespace attest::vendor::triton {
namespace {

constexpr std::int64_t kHeadDims[] = {16, 32, 64, 128};

std::string head_dims_taken() {
  std::string taken;
  for (std::int64_t Lk = 8; Lk <= 256; Lk += 8) {
    const Tensor q = Tensor::meta({1, 1, 128, Lk}, Dtype::float16);
    try {
      attention(q, q, q, true, 1);
      taken += fmt::format("{}{}", taken.empty() ? "" : ", ", Lk);
    } catch (const AssertionError&) {
    }
  }
  return taken;
}

std::string chosen(int capability, std::int64_t Config::*member) {
  std::string text;
  for (const std::int64_t Lk : kHeadDims) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", config_for(Lk, capability).*member);
  }
  return text + " for 16, 32, 64, 128 channels";
}

std::string swept() {
  const Gpu gpu(a100());
  std::string text;
  for (const std::int64_t Lk : kHeadDims) {
    const Config best = autotune(gpu, 4096, Lk, Dtype::float16).config;
    text +=
        fmt::format("{}D {}: {} x {}, {} stages of {}", text.empty() ? "" : "; ", Lk, best.BLOCK_M,
                    best.BLOCK_N, best.num_stages, configs(gpu, Lk, Dtype::float16).size());
  }
  return text;
}

std::string grid_of_bench() {
  const Timed t = timed(Gpu(a100()), Bench(), Dtype::float8_e5m2);
  const std::int64_t y = Bench().BATCH * Bench().H;
  return fmt::format("{} x {} x 1 of the benchmark at {}", t.programs / y, y, Bench().N_CTX);
}

// Counted by decoding every code.
std::string codes_of_fp8() {
  int finite = 0;
  float largest = 0, smallest = 1;
  for (int code = 0; code < 256; ++code) {
    f8e5m2 element;
    element.bits = static_cast<std::uint8_t>(code);
    const float value = element;
    if (!std::isfinite(value)) continue;
    ++finite;
    largest = std::fmax(largest, value);
    if (value > 0) smallest = std::fmin(smallest, value);
  }
  return fmt::format("{} finite codes, the largest {}, the smallest {:g}", finite, largest,
                     smallest);
}

std::string effect_of_fp8() {
  const Fp8Effect e = fp8_effect(256, 64);
  return fmt::format(
      "O is off by {:.2g} of its root mean square in f16, {:.2g} in fp8, {:.2g} "
      "with O in fp8 (256 rows, 64 channels)",
      e.f16, e.fp8, e.fp8_and_o);
}

// One length of the table. The model's curve has no unit: each length against the longest.
Figure row_of_the_table(const Cited& row) {
  const Cited& last = cited().back();
  Bench bench, longest;
  bench.N_CTX = row.N_CTX, longest.N_CTX = last.N_CTX;
  const Gpu gpu(a100());
  const Timed t = timed(gpu, bench, Dtype::float8_e5m2),
              all = timed(gpu, longest, Dtype::float8_e5m2);
  const double flops = total_flops(bench, "fwd");
  return {fmt::format("TFLOP/s at {}, Triton / cutlass", row.N_CTX),
          fmt::format("{} / {}", row.triton, row.cutlass),
          fmt::format(
              "cited: {:.4g} ms for {:.4g} FLOP, {:.3f} of Triton's figure at {}. "
              "Modelled: {:.4f} times the counted FLOP made, by which alone it were {:.3f}; "
              "with loads, exp2 and SMs {:.3f}",
              flops / row.triton * 1e-9, flops, row.triton / last.triton, last.N_CTX, t.flops_made,
              all.flops_made / t.flops_made, t.share_of_matrix / all.share_of_matrix),
          "bench.cpp, timed. It has no seconds, no launch, no cutlass, and the text names no GPU: "
          "of the table it can say how much of the rise with N is work above the diagonal"};
}

std::string longer_than_cutlass() {
  std::string text;
  for (const Cited& row : cited()) {
    if (row.triton > row.cutlass) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.N_CTX);
  }
  return text;
}

}  // namespace

std::vector<Figure> rows_of_the_wrapper() {
  return {
      {"Lq = Lk = Lv, one of four", "16, 32, 64, 128", head_dims_taken(),
       "triton_api.cpp, check_shapes; limit head_dim; SHAPE-1"},
      {"o = empty_like(q)", "",
       name_of(Tensor::meta({1, 1, 128, 16}, Dtype::float8_e5m2).empty_like().dtype()),
       "triton_api.cpp, forward: with Q in fp8, O is fp8; TritonTest.OIsOfTheFormatOfQ"},
      {"BLOCK_M", "128", chosen(8, &Config::BLOCK_M), "config.cpp, config_for"},
      {"BLOCK_N", "64, above 64 channels 32", chosen(8, &Config::BLOCK_N),
       "config.cpp, config_for; declared: key_block 32, true of both"},
      {"num_stages", "4, above 64 channels 3", chosen(8, &Config::num_stages),
       "config.cpp, config_for; ring.h"},
      {"num_warps", "4", chosen(8, &Config::num_warps), "config.cpp, config_for"},
      {"capability 9 (H100): num_warps", "8", chosen(9, &Config::num_warps),
       "config.cpp, config_for"},
      {"capability 9 (H100): num_stages", "7 from 64 channels on, else 3",
       chosen(9, &Config::num_stages),
       "config.cpp, config_for; TritonTest.StagesBeyondTheSharedMemoryAreOutOfResource"},
      {"BLOCK_M and BLOCK_N are chosen by hand; here swept too", "", swept(),
       "autotune.cpp: least cycles of the mock, in which neither a launch nor a warp costs "
       "anything, so that it takes the smallest block of rows; no claim on hardware"},
      {"grid = (cdiv(N_CTX, BLOCK_M), Z H, 1)", "", grid_of_bench(), "triton_api.cpp; gpu.h"},
      {"M of shape (Z, H, N_CTX) in f32", "float32", "", "triton_api.cpp, forward; LSE-2"},
      {"q, k, v, o, M, grid, sm_scale, BLOCK_DMODEL and causal are kept for a backward pass", "",
       "", "triton_api.h, Context; no pass reads them: the text has no backward kernel"},
      {"causal is an argument, but the kernel has no range of keys beyond the diagonal", "", "",
       "TritonTest.WithoutCausalItIsCausalAllTheSame; limit masks"},
      {"works on \"post-Ampere\" GPUs only", "", "",
       "gpu.h has capabilities 8 and 9, which the wrapper tells apart; the text no more"},
  };
}

std::vector<Figure> rows_of_the_benchmark() {
  const Bench b;
  const double forward = total_flops(b, "fwd");
  std::vector<Figure> rows = {
      {"BATCH, N_HEADS, N_CTX, D_HEAD", "4, 48, 4096, 64",
       fmt::format("{}, {}, {}, {}", b.BATCH, b.H, b.N_CTX, b.D_HEAD), "bench.h"},
      {"lengths 2^10 to 2^14", "1024 to 16384",
       fmt::format("{} to {}", cited().front().N_CTX, cited().back().N_CTX), "bench.cpp, cited"},
      {"mode fwd alone, causal True alone, dtype float16", "", "",
       "bench.h; the plug-in's features: causal, lse"},
      {"Q and K in float8_e5m2, V in float16", "float8_e5m2", codes_of_fp8(),
       "floats.h; TritonFloatsTest, all codes; not in the plug-in: it has no scales (FORMAT-5)"},
      {"what that does to O", "", effect_of_fp8(),
       "bench.cpp, fp8_effect. So the table compares fp8 with the f16 of cutlass"},
      {"sm_scale", "1.3", fmt::format("{}", b.sm_scale), "bench.h; SCORE-1: any above 0"},
      {"warmup, rep of do_bench", "25, 100", "", "nowhere: the mock has no seconds"},
      {"cutlass: flash_attn_qkvpacked_func on (B, N, 3, H, D), f16", "", "",
       "nowhere: another system, of which the text has no code"},
      {"flops_per_matmul = 2 B H N N D, two of them, half if causal", "2.0, 2, 0.5",
       fmt::format("{:.6g} at {}", forward, b.N_CTX), "bench.cpp, total_flops"},
      {"backward: 2.0 and 0.5 for what is made again", "2.5",
       fmt::format("{}", total_flops(b, "bwd") / forward), "bench.cpp, total_flops"},
      {"total_flops / ms 1e-9; the table's heading says FLOPs/s", "",
       fmt::format("{:.6g} of 1e12 FLOP in 1 ms: thousands of TFLOP/s, so the table is TFLOP/s",
                   tflops(1e12, 1)),
       "bench.cpp, tflops"},
  };
  for (const Cited& row : cited()) rows.push_back(row_of_the_table(row));
  rows.push_back({"Triton is better than cutlass at long lengths", "", longer_than_cutlass(),
                  "bench.cpp, cited: from the table's own figures"});
  rows.push_back({"backward: Triton has 3/4 of cutlass", "about 3/4", "",
                  "nowhere: cited; the text has no backward pass, and promises one"});
  return rows;
}

}  // namespace attest::vendor::triton
