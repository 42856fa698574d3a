#include "impl/vendor/splash/figures.h"

#include <fmt/format.h>

#include <string>

#include "impl/vendor/splash/models.h"

namespace attest::vendor::splash {
namespace {

using Rows = std::vector<Figure>;

const char* const kModels = "impl/vendor/splash/models.cpp";
const char* const kTest = "tests/impl/vendor/splash_test.cpp";

AttentionShape layer(std::int64_t seq_len) {
  constexpr std::int64_t kModelDim = 4096, kHeads = 16;
  return {.seq_len = seq_len, .heads = kHeads, .head_dim = kModelDim / kHeads};
}

std::string mib(std::int64_t bytes) {
  const double size = static_cast<double>(bytes) / (1 << 20);
  return size < 100 ? fmt::format("{:.3g} MiB", size) : fmt::format("{:.0f} MiB", size);
}
std::string giga(std::int64_t number) {
  return fmt::format("{:.3g}e9", static_cast<double>(number) / 1e9);
}
double quotient(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

void add_mechanisms(Rows& rows) {
  const AttentionShape longest = layer(32768);
  const HostCount numpy = setup_count(longest, MaskForm::kNumpy);
  const HostCount lazy = setup_count(longest, MaskForm::kLazy);
  rows.push_back(
      {"a jnp mask is created and wrapped as a NumpyMask: host memory", "O(T^2)",
       fmt::format("T = 32768: {} held, {} at a time", mib(numpy.mask_bytes), mib(numpy.bytes())),
       fmt::format("to_splash_mask, MaskForm::kNumpy; {}", kModels)});
  rows.push_back(
      {"CausalMask and LocalMask: each block makes the mask that it needs", "",
       fmt::format("T = 32768: {} held, {} at a time", mib(lazy.mask_bytes), mib(lazy.bytes())),
       "impl/vendor/splash/mask.h, mask_info.cpp (BlockLook)"});
  const MaskFootprint brought = mask_footprint(longest, MaskForm::kNumpy);
  const MaskFootprint computed = mask_footprint(longest, MaskForm::kLazy);
  rows.push_back(
      {"O(T^2) HBM for the mask for a while, though XLA somehow does not allocate it", "O(T^2)",
       fmt::format("{} in HBM of {}", mib(brought.partial_blocks), mib(numpy.mask_bytes)),
       "process_mask: blocks that are visible in part, each once: those on the diagonal are one"});
  rows.push_back(
      {"the mask is created and used in the Pallas kernel", "",
       fmt::format("{} blocks of the mask in HBM", computed.partial_blocks),
       "a CausalMask, in impl/vendor/splash/mask_operands.cpp. A LocalMask was lazy on the "
       "host alone in the JAX of that time: the kernel is brought its partial blocks"});
  rows.push_back({"blocks of the block mask that are skipped, masked in part, full", "",
                  fmt::format("T = 32768, blocks of 512: {} of {} run, {} masked in part",
                              computed.blocks_run, computed.blocks, computed.blocks_partly),
                  "impl/vendor/splash/mask_info.h; SCHED-1, SCHED-2"});
  rows.push_back(
      {"the objects and the array mean the same mask", "",
       fmt::format("{} blocks run either way", brought.blocks_run),
       fmt::format("{}: infos equal, outputs equal in bits; the plug-in's kernels splash "
                   "and splash_numpy",
                   kTest)});
  rows.push_back(
      {"speed-up of compilation at 32k, by the title", "20x",
       fmt::format("{:.1f}x fewer operations of the host",
                   quotient(numpy.operations(), lazy.operations())),
       "setup_count, as counted (its test). By the seed's own table it is 12.4x, or 12.5x "
       "without the steps"});
  rows.push_back({"what takes the time: allocating the mask and wrapping it, it appears, in XLA",
                  "",
                  fmt::format("{:.0f}% of the operations hash the array: {} times for 16 heads",
                              100 * quotient(numpy.hashed, numpy.operations()),
                              numpy.hashed / numpy.mask_bytes),
                  "process_mask: a dictionary key for each head, in each of two infos; counted in "
                  "JAX too. XLA "
                  "is not modelled"});
  rows.push_back({"machine", "TPUv5p",
                  fmt::format("{} cores, {} of VMEM, {} of SMEM", Tpu().cores,
                              mib(Tpu().vmem_bytes), mib(Tpu().smem_bytes)),
                  "impl/vendor/splash/tensor_core.h, from JAX's table of TPUs; a mock"});
}

// Times of the host, compilation and all, against operations and bytes of setting up.
void add_setup(Rows& rows) {
  struct Measured {
    std::int64_t seq_len;
    const char *numpy, *causal;
  };
  const Measured all[] = {
      {4096, "3609 ms (CPU 1645, 1 iteration)", "22.9 ms (CPU 1.60, 127 iterations)"},
      {8192, "7828 ms (CPU 5696, 1 iteration)", "40.8 ms (CPU 2.12, 88 iterations)"},
      {32768, "94368 ms (CPU 91442, 1 iteration)", "7641 ms (CPU 5458, 1 iteration)"}};
  std::int64_t before = 0;
  for (const Measured& at : all) {
    for (const MaskForm form : {MaskForm::kNumpy, MaskForm::kLazy}) {
      const HostCount count = setup_count(layer(at.seq_len), form);
      const bool numpy = form == MaskForm::kNumpy;
      std::string here = fmt::format("{} operations of the host, {} bytes at a time",
                                     giga(count.operations()), count.bytes());
      if (numpy && before > 0) {
        here += fmt::format("; {:.1f}x of the row before", quotient(count.operations(), before));
      }
      if (numpy) before = count.operations();
      rows.push_back(
          {fmt::format("with compilation, 4096/16/2/{}, {}", at.seq_len,
                       numpy ? "NumpyMask" : "CausalMask"),
           numpy ? at.numpy : at.causal, here,
           numpy ? "setup_count; measured of the mock by splash_setup_bench. XLA is not modelled. "
                   "The seed's CPU times are 3.5x and 16.1x of the row before"
                 : "setup_count, splash_setup_bench. Means over as many iterations as are given, "
                   "of which not each compiles: 4096 and 8192 do not compare with the "
                   "NumpyMask's"});
    }
  }
}

void add_steps(Rows& rows) {
  struct Measured {
    std::int64_t seq_len;
    const char *numpy, *causal;
  };
  const Measured all[] = {
      {4096, "9.97 ms (CPU 0.757, 918 iterations)", "9.82 ms (CPU 0.690, 964 iterations)"},
      {8192, "19.4 ms (CPU 0.934, 832 iterations)", "19.2 ms (CPU 0.822, 837 iterations)"},
      {32768, "116 ms (CPU 1.03, 100 iterations)", "116 ms (CPU 0.997, 100 iterations)"}};
  for (const Measured& at : all) {
    const StepTime numpy = step_time(layer(at.seq_len), MaskForm::kNumpy);
    const StepTime lazy = step_time(layer(at.seq_len), MaskForm::kLazy);
    const double change =
        100 * (quotient(lazy.forward + lazy.backward, numpy.forward + numpy.backward) - 1);
    const char* const where =
        "step_time: the attention of a layer, forward and backward, of one sequence. Projections "
        "are "
        "no part of the mock, nor are iterations";
    rows.push_back(
        {fmt::format("without compilation, 4096/16/2/{}, NumpyMask", at.seq_len), at.numpy,
         fmt::format("{:.2f} + {:.2f} ms of the model", numpy.forward_ms(), numpy.backward_ms()),
         where});
    rows.push_back({fmt::format("without compilation, 4096/16/2/{}, CausalMask", at.seq_len),
                    at.causal,
                    fmt::format("{:.2f} + {:.2f} ms of the model, {:+.2f}%", lazy.forward_ms(),
                                lazy.backward_ms(), change),
                    where});
  }
}

void add_benchmark(Rows& rows) {
  const AttentionShape shape = benchmark_shape(kBenchmarkModels[0]);
  const MaskFootprint window = mask_footprint(shape, MaskForm::kLazy);
  rows.push_back({"tpu_attention_benchmark: 8k, not 2k, with a sliding window of 1k", "8k, 1k",
                  fmt::format("{} queries, the {} keys before each: {} of {} blocks run, {} masked "
                              "in part",
                              shape.seq_len, *shape.sliding_window_size, window.blocks_run,
                              window.blocks, window.blocks_partly),
                  "benchmark_shape: blocks of 512, batch 2, head dim 128, as AXLearn has them"});
  struct Measured {
    const char *ref_fwd, *flash_fwd, *ref_bwd, *flash_bwd;  // NumpyMask -> LocalMask
  };
  const Measured all[] = {
      {"0.2288 -> 0.2291", "0.0014 -> 0.0014", "0.0218 -> 0.0217", "0.0058 -> 0.0058"},
      {"0.5700 -> 0.5699", "0.0032 -> 0.0032", "0.0527 -> 0.0524", "0.0149 -> 0.0152"},
      {"0.7958 -> 0.7957", "0.0044 -> 0.0043", "0.0730 -> 0.0731", "0.0205 -> 0.0204"},
      {"1.0222 -> 1.0225", "0.0055 -> 0.0055", "0.0949 -> 0.0948", "0.0262 -> 0.0262"},
      {"1.2486 -> 1.2485", "0.0067 -> 0.0067", "0.1161 -> 0.1159", "0.0318 -> 0.0313"},
      {"1.5577 -> 1.5577", "0.0072 -> 0.0072", "0.1348 -> 0.1349", "0.0375 -> 0.0373"}};
  std::size_t at = 0;
  for (const BenchmarkModel& model : kBenchmarkModels) {
    const Measured& said = all[at++];
    const StepTime numpy = step_time(benchmark_shape(model), MaskForm::kNumpy);
    const StepTime lazy = step_time(benchmark_shape(model), MaskForm::kLazy);
    const auto row = [&](const char* what, const char* of, std::string here, const char* where) {
      rows.push_back({fmt::format("{}, {}, NumpyMask -> LocalMask", model.name, what),
                      fmt::format("{} s", of), std::move(here), where});
    };
    const std::string pairs = fmt::format("{:.1f}x the pairs that splash computes",
                                          quotient(window.blocks, window.blocks_run));
    const char* const reference =
        "AXLearn's reference, which forms all scores: not this system. The pairs alone are counted";
    row("ref_fwd", said.ref_fwd, pairs, reference);
    row("ref_bwd", said.ref_bwd, pairs, reference);
    const char* const same =
        "step_time: both forms make the same info of a window, so that the device does the same";
    row("flash_fwd", said.flash_fwd,
        fmt::format("{:.4f} -> {:.4f} s of the model", numpy.forward_ms() / 1e3,
                    lazy.forward_ms() / 1e3),
        same);
    row("flash_bwd", said.flash_bwd,
        fmt::format("{:.4f} -> {:.4f} s of the model, {:.1f}x forward", numpy.backward_ms() / 1e3,
                    lazy.backward_ms() / 1e3, quotient(lazy.backward, lazy.forward)),
        same);
  }
}

}  // namespace

std::vector<Figure> splash_figures() {
  Rows rows;
  add_mechanisms(rows);
  add_setup(rows);
  add_steps(rows);
  add_benchmark(rows);
  rows.push_back({"the discussion: #908, #916, a wrong description, who reviewed", "", "",
                  "of the change's review, not of the system"});
  return rows;
}

}  // namespace attest::vendor::splash
