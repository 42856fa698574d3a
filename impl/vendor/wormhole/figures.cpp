#include "impl/vendor/wormhole/figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "impl/vendor/wormhole/kernels.h"
#include "impl/vendor/wormhole/measures.h"

namespace attest::vendor::wormhole {
namespace {

using Figures = std::vector<Figure>;

const std::string kFolder = "impl/vendor/wormhole/";
std::string file(const char* name) { return kFolder + name; }
std::string test(const char* name) { return std::string("wormhole_test: ") + name; }

// Least, mean and largest of `of(size)` over the seed's sizes that `in` takes.
template <class In, class Of>
std::string range(const char* unit, const In& in, const Of& of) {
  double least = HUGE_VAL, largest = 0, sum = 0;
  int count = 0;
  for (const SizeMeasured& size : measured_sizes()) {
    if (!in(size)) continue;
    const double value = of(size);
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += value;
    ++count;
  }
  return fmt::format("{:.2f} to {:.2f}{}, {:.2f} on average of {} sizes", least, largest, unit,
                     sum / count, count);
}
bool every(const SizeMeasured&) { return true; }
bool in_bf16(const SizeMeasured& size) { return size.dtype == DataType::BFLOAT16; }

Figures device_figures() {
  const WormholeRules& rules = wormhole_rules();
  return {
      {"a grid of Tensix cores", "8 x 10",
       fmt::format("{} x {} = {} cores", rules.grid.x, rules.grid.y, wormhole().rules().cores),
       file("rules.h") + "; a larger grid is refused: " + test("TheOperatorRefusesWhatItHasNot")},
      {"the cores are connected in a 2-D torus, the NoC", "", "",
       "not there: no distances, a core has a link of its own and a share of DRAM, " +
           file("noc.h")},
      {"channels of GDDR6", "12 of 1 GB",
       fmt::format("{} of {} GiB", rules.dram_channels, rules.dram_channel_bytes >> 30),
       file("rules.h") + "; the sum is not enforced: no case comes near"},
      {"bandwidth of DRAM", "288 GB/s",
       fmt::format("{:.0f} GB/s", rules.dram_bytes_per_second() * 1e-9),
       file("noc.h") + ", shared by the running cores"},
      {"ethernet cores for scaleout, bidirectional bandwidth", "16, 3200 Gbps", "",
       "not there: one chip; no case spans two"},
      {"L1 of a Tensix core", "1.5 MB",
       fmt::format("{:.1f} MiB, enforced", static_cast<double>(rules.l1_bytes) / (1 << 20)),
       test("ChunksThatExceedL1AreAnErrorOfTheDevice")},
      {"L1 of all cores", "120 MB", fmt::format("{} MiB", rules.all_l1_bytes() >> 20),
       file("rules.h")},
      {"programmable RISC-V cores of a Tensix", "5",
       fmt::format("{} that move data, {} that drive the engine", rules.data_movers,
                   rules.compute_riscs),
       file("kernels.h") + ": RISC0 reads, RISC1 writes, RISC2 to 4 compute"},
      {"RISC0 and RISC1 move data between L1 and L1, and L1 and DRAM", "", "",
       file("noc.h") + "; L1 to L1 by multicast alone"},
      {"RISC2 to RISC4 issue to an engine that works on tiles: matrix products, elementwise "
       "operations",
       "", "", file("tiles.h")},
      {"an n150 card of up to 160 W", "160 W", "", "not there: nothing counts energy"},
      {"one program at a time on the grid; kernels of each core run asynchronously", "", "",
       "Stages of impl/vendor/device/queue.h, three threads a core, in wormhole_api.cpp"},
      {"GPU kernels pass data through global memory; TT-Metal may leave it sharded in L1", "", "",
       "not there: the operator reads and writes DRAM, as the seed's does; nothing follows it"},
  };
}

Figures algorithm_figures() {
  const double of_all_l1 = static_cast<double>(wormhole_rules().all_l1_bytes());
  const auto longest = static_cast<std::int64_t>(std::sqrt(of_all_l1 / 2)) / kTile * kTile;
  const Shape shape = {1, 8, 1024, 128}, keys = {1, 1, 1024, 128};
  const Program program = make_program(shape, keys, DataType::BFLOAT16, {});
  std::vector<std::int64_t> key_heads;
  for (std::int64_t head = 0; head < 8; ++head) key_heads.push_back(program.shape.key_head(head));
  const std::vector<CoreWork> work = split_work(program.shape, wormhole_rules().cores(), true);
  return {
      {"scores in sharded L1 do not scale to longer sequences", "",
       fmt::format("bf16 scores of one head fill all L1 at {} tokens", longest),
       "computed; the baseline spills its scores to DRAM, " + file("perf_model.cpp")},
      {"FlashAttention-2: online softmax on chunks of K and V", "", "",
       file("compute.cpp") + "; NUM-1 in the cases of wormhole"},
      {"from FlashAttention-3: pipelined data movement, asynchronous execution", "", "",
       file("kernels.h") + "; SCHED-1 to 3 are not declared: blocks are the device's"},
      {"the output is split over batch, heads and the sequence", "",
       fmt::format("1 x 8 heads x {} chunks: {} cores, {} chunks on the first",
                   program.shape.query_chunks, work.size(), work[0].query_chunks.size()),
       file("schedule.cpp")},
      {"chunks of Q, K and V for multi-query attention", "8 query heads",
       fmt::format("{} query heads read key heads {}", key_heads.size(), fmt::join(key_heads, " ")),
       "HEAD-1, the feature gqa; " + test("QueryHeadsOfAGroupShareKeysAndAMulticast")},
      {"a chunk of Q is read, then chunks of K and V are gone through", "", "",
       file("dataflow.cpp") + "; " + test("TheReaderReadsQThenKeysMaskAndValuesInTurn")},
      {"sums and statistics stay in L1 until all chunks of K and V are done", "",
       fmt::format("{} KiB of L1 at chunks of 32, head_dim 128",
                   estimate(shape, keys, DataType::BFLOAT16, {}).l1_bytes / 1024),
       file("kernels.h") + ", ComputeKernel"},
      {"used in LLMs such as Llama3-70B and Mixtral-8x7B", "70B, 8x7B", "",
       "the shapes of llama3_70b are a preset of attest list; HEAD-1"},
  };
}

Figures schedule_figures() {
  const SdpaShape equal = {1, 1, 1, 8, 8, 1, 1, true};
  const auto keys_on_4_cores = [&](bool balanced) {
    std::vector<std::int64_t> keys;
    for (const CoreWork& work : split_work(equal, 4, balanced)) {
      keys.push_back(0);
      for (const std::int64_t n : work.query_chunks) keys.back() += equal.key_chunks_of(n);
    }
    return keys;
  };
  const auto chunks_on_4_cores = [&](bool balanced) {
    std::vector<std::string> of_core;
    for (const CoreWork& work : split_work(equal, 4, balanced)) {
      of_core.push_back(fmt::format("{}", fmt::join(work.query_chunks, " ")));
    }
    return fmt::format("{}", fmt::join(of_core, " / "));
  };
  const auto slower = [](auto SizeMeasured::*other) {
    return
        [other](const SizeMeasured& size) { return (size.*other).seconds() / size.best.seconds(); };
  };
  const auto spread = [](const SizeMeasured& size) { return size.splits_heads; };
  return {
      {"q_chunk_size and k_chunk_size, to be swept for each size of input", "",
       fmt::format(
           "256 x 16384: {} x {} is best, {:.1f}x as fast as 32 x 32",
           measured_sizes()[17].config.q_chunk_size, measured_sizes()[17].config.k_chunk_size,
           estimate(measured_sizes()[17].shape, measured_sizes()[17].shape, DataType::BFLOAT16, {})
                   .seconds() /
               measured_sizes()[17].best.seconds()),
       "sweep, " + file("perf_model.h")},
      {"V has the chunk size of K", "", "", file("program.h") + ", key_tiles"},
      {"n/p chunks of Q for each of p cores", "n/p", chunks_on_4_cores(false),
       file("schedule.cpp")},
      {"with equal chunk sizes Q0 sees K0, and Q1 K0 and K1", "1, 2",
       fmt::format("{}, {}", equal.key_chunks_of(0), equal.key_chunks_of(1)),
       test("ChunksAboveTheDiagonalAreSkipped")},
      {"core 0 computes Q0 and Qn-1, core 1 Q1 and Qn-2", "", chunks_on_4_cores(true),
       test("LowAndHighChunksGoTogetherAndBalancePerfectly")},
      {"that balances the work perfectly", "",
       fmt::format("chunks of keys on each core: {}; with consecutive chunks {}",
                   fmt::join(keys_on_4_cores(true), " "), fmt::join(keys_on_4_cores(false), " ")),
       test("LowAndHighChunksGoTogetherAndBalancePerfectly")},
      {"speedup over consecutive chunks", "1.6x",
       range("x", spread, slower(&SizeMeasured::contiguous)) + " where heads are split over cores",
       "measured_sizes, " + file("measures.h")},
      {"the mask is applied to scores on the diagonal alone", "", "",
       "Program::masks, " + file("program.cpp") + "; " + test("TheMaskIsReadOnTheDiagonalAlone")},
      {"which reduces the pressure on DRAM", "",
       range("x the time", every, slower(&SizeMeasured::masked_everywhere)) +
           " if it is read and added everywhere",
       "measured_sizes"},
  };
}

Figures pipeline_figures() {
  const WormholeRules& rules = wormhole_rules();
  const SizeMeasured &short_one = measured_sizes()[0], &long_one = measured_sizes()[17];
  const auto busy = [](const SizeMeasured& size) {
    return static_cast<double>(size.best.engine_busy) /
           static_cast<double>(size.best.elapsed.longest());
  };
  return {
      {"reader, writer and compute run at the same time, and hide each other's latency", "",
       fmt::format("the engine works {:.0f}% of the time at 512 tokens, {:.0f}% at 16384",
                   100 * busy(short_one), 100 * busy(long_one)),
       test("TheModelOfTimeAgreesWithTheKernels")},
      {"Q, K and V are double-buffered", "2 chunks",
       fmt::format("{} chunks; with 1: ", Choices().chunks_in_buffer) +
           range("x the time", every,
                 [](const SizeMeasured& size) {
                   return size.single_buffered.seconds() / size.best.seconds();
                 }),
       test("DoubleBuffersHideReadsBehindComputing")},
      {"circular buffers are thread-safe queues of a producer and a consumer", "", "",
       file("circular_buffer.h")},
      {"synchronisation 1: compute waits for the first Q and K", "", "",
       test("ComputeWaitsForTheFirstChunksAndTheWriterForTheFirstOutput")},
      {"synchronisation 2: the reader waits for V0 to be consumed before it reads V2", "", "",
       test("TheThirdChunkWaitsUntilTheFirstIsConsumed")},
      {"synchronisation 3: the writer waits for the first chunk of output", "", "",
       test("ComputeWaitsForTheFirstChunksAndTheWriterForTheFirstOutput")},
      {"tiles are matrices that lie in one piece", "32 x 32",
       fmt::format("{} x {}, {} bytes of bf16", kTile, kTile, tile_bytes(DataFormat::Float16_b)),
       file("tensor.h") + "; " + test("TilizeAndUntilizeRestoreEveryShape")},
      {"tile reads are large bursts, good for DRAM, NoC and ethernet", "",
       fmt::format("{} cycles of the link; as {} rows of {} bytes {}",
                   link_cycles(tile_bytes(DataFormat::Float16_b), rules), kTile, kTile * 2,
                   kTile * link_cycles(kTile * 2, rules)),
       file("noc.h")},
      {"the engine operates on tiles natively", "32 x 32",
       fmt::format("{} products a cycle: {} cycles for one pass",
                   kTile * kTileElements / TileCosts().matmul_pass, TileCosts().matmul_pass),
       file("rules.h") + ", of the maker's public reports: the seed has none"},
  };
}

Figures format_figures() {
  const double bf16 = static_cast<double>(tile_bytes(DataFormat::Float16_b));
  const double bfp8 = static_cast<double>(tile_bytes(DataFormat::Bfp8_b));
  const DeviceComputeKernelConfig wide = {.math_fidelity = MathFidelity::HiFi4,
                                          .fp32_dest_acc_en = true};
  const FormatError of_bf16 = measured_error(DataType::BFLOAT16, wide);
  const FormatError of_bfp8 = measured_error(DataType::BFLOAT8_B, wide);
  const FormatError by_default = measured_error(DataType::BFLOAT16, {});
  const auto faster = [](const SizeMeasured& size) {
    const auto place = static_cast<std::size_t>(&size - measured_sizes().data());
    return size.best.seconds() / measured_sizes()[place + 18].best.seconds();
  };
  return {
      {"input and output formats", "BF16, BFP8",
       fmt::format("{}", fmt::join(wormhole().rules().formats, ", ")),
       file("formats.h") +
           "; FORMAT-4; BFP8 is in the operator alone, whose O is BFP8 then (FORMAT-6: bf16)"},
      {"values that share an exponent", "16", fmt::format("{}", kGroup),
       test("ValuesOfAGroupShareTheLargestExponent")},
      {"digits of a BFP8 value's magnitude", "7",
       fmt::format("{} to {}", 0, std::ldexp(unpack_bfp8(0x7f, 133), 0)),
       test("EveryBfp8CodeIsAMagnitudeTimesItsGroupsUnit")},
      {"size of BFP8 beside BF16", "about half", fmt::format("{:.3f}", bfp8 / bf16),
       file("formats.cpp") + ", tile_bytes"},
      {"BFP8's range beside E4M3 and E5M2", "greater",
       fmt::format("{:.3g} beside 448 and 57344", unpack_bfp8(0x7f, 254)),
       "the largest finite code; FORMAT-5 for the others"},
      {"what BFP8 does to results (the seed does not say)", "",
       fmt::format(
           "error of O {:.4f} of its size, beside {:.4f} in bf16; Q, K, V rounded by {:.4f}",
           of_bfp8.output, of_bf16.output, of_bfp8.inputs),
       "measured_error, " + file("measures.h")},
      {"what intermediates in bf16 do (the operator's default; the seed does not say)", "",
       fmt::format("error of O {:.4f} of its size, beside {:.4f} with f32", by_default.output,
                   of_bf16.output),
       "wormhole/float16_b, NUM-2 beyond_caps"},
      {"speedup of BFP8 over BF16", "moderate, not 2x", range("x", in_bf16, faster),
       "measured_sizes"},
      {"BFP8 needs half of the memory bandwidth", "half",
       fmt::format("{:.2f} of the bytes that are read at 64 x 512",
                   static_cast<double>(measured_sizes()[18].best.dram_bytes_read) /
                       static_cast<double>(measured_sizes()[0].best.dram_bytes_read)),
       "measured_sizes; the mask is bf16 all the same"},
  };
}

Figures performance_figures() {
  std::vector<std::string> heads;
  for (const std::int64_t head_dim : {64, 128, 256}) {
    heads.push_back(fmt::format("{} heads of {}", 2048 / head_dim, head_dim));
  }
  const SizeMeasured& first = measured_sizes()[0];
  const SizeMeasured& last = measured_sizes()[5];
  const std::int64_t chunks = last.shape[2] / kTile;
  return {
      {"head dims of a hidden dim of 2048", "64, 128, 256",
       fmt::format("{}", fmt::join(heads, ", ")), file("measures.cpp")},
      {"lengths, with 16k tokens in all", "512 to 16k",
       fmt::format("{} x {} to {} x {} tokens", first.shape[0], first.shape[2], last.shape[0],
                   last.shape[2]),
       file("measures.cpp")},
      {"FLOPs of causal attention", "2 batch seq^2 nheads dhead",
       fmt::format("{:.4g} at 1 x 16384, 32 heads of 64", causal_flops(last.shape)),
       "causal_flops, " + file("perf_model.h")},
      {"figure 6: throughput by head dim and length", "",
       range(" TFLOP/s", every,
             [](const SizeMeasured& size) { return size.flops_per_second() * 1e-12; }),
       "measured_sizes; the seed's own figures are in a picture, which its text has not"},
      {"speedup over matmul, softmax, matmul", "9x to 44x, 20x on average",
       range("x", every, [](const SizeMeasured& size) { return size.over_baseline(); }),
       "measured_sizes. The model's baseline moves data as fast as DRAM can, and nothing waits "
       "between its operators; what the measured one lost there the seed does not say"},
      {"because intermediates stay in L1 rather than spill to DRAM", "",
       fmt::format("{:.1f} GB are read, and scores alone would be {:.1f} GB, at 1 x 16384, 64",
                   static_cast<double>(last.best.dram_bytes_read) * 1e-9,
                   2e-9 * static_cast<double>(last.shape[1]) *
                       std::pow(static_cast<double>(last.shape[2]), 2)),
       "measured_sizes"},
      {"and because the baseline computes the full matrix of scores", "",
       fmt::format("{} of {} tiles of scores are needed at 16384", chunks * (chunks + 1) / 2,
                   chunks * chunks),
       "baseline_seconds, " + file("perf_model.cpp")},
      {"bound by products and softmax where not by memory", "",
       fmt::format("the engine works {} of the time",
                   range("", every,
                         [](const SizeMeasured& size) {
                           return static_cast<double>(size.best.engine_busy) /
                                  static_cast<double>(size.best.elapsed.longest());
                         })),
       "measured_sizes"},
  };
}

Figures future_figures() {
  const Shape q = {1, 32, 8192, 64}, k = {1, 1, 8192, 64};
  SdpaArguments arguments;
  const Estimate alone = estimate(q, k, DataType::BFLOAT16, arguments);
  arguments.choices.multicast_keys = true;
  const Estimate shared = estimate(q, k, DataType::BFLOAT16, arguments);
  return {
      {"figures 1 to 5: NoC, chunks, balancing, pseudocode, pipeline", "", "",
       "pictures, which the seed's text has not: what it says of them is above"},
      {"future: reuse of the DST register", "", "", "not there, as in the seed"},
      {"future: automatic DST accumulation, without the adds", "", "", "not there, as in the seed"},
      {"future: products and softmax on different units at the same time", "", "",
       "not there, as in the seed: one engine, one step after the other"},
      {"future: multicast of K and V to the cores that need the same heads", "",
       fmt::format("32 query heads, 1 key head, 8192 x 64, chunks of 32: {:.2f} GB read become "
                   "{:.2f}, {:.1f} ms become {:.1f}",
                   static_cast<double>(alone.dram_bytes_read) * 1e-9,
                   static_cast<double>(shared.dram_bytes_read) * 1e-9, alone.seconds() * 1e3,
                   shared.seconds() * 1e3),
       "Choices::multicast_keys, " + file("program.h")},
      {"future: the backward pass", "", "",
       "not there: forward only, the feature backward is not declared"},
  };
}

}  // namespace

std::vector<Figure> wormhole_figures() {
  Figures all;
  for (const auto& part : {device_figures, algorithm_figures, schedule_figures, pipeline_figures,
                           format_figures, performance_figures, future_figures}) {
    const Figures figures = part();
    all.insert(all.end(), figures.begin(), figures.end());
  }
  return all;
}

}  // namespace attest::vendor::wormhole
