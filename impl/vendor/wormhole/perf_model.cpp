#include "impl/vendor/wormhole/perf_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "impl/vendor/wormhole/kernels.h"

namespace attest::vendor::wormhole {
namespace {

// The places of a circular buffer, by the time at which each is free.
class Places {
 public:
  explicit Places(int depth) : depth_(static_cast<std::size_t>(depth)) {}

  void reserve(Cycles& producer) const { producer = std::max(producer, free_at_[next_]); }
  void pop(Cycles consumer) {
    free_at_[next_] = consumer;
    next_ = (next_ + 1) % depth_;
  }

 private:
  std::size_t depth_, next_ = 0;
  std::array<Cycles, 2> free_at_{};
};

class CoreModel {
 public:
  CoreModel(const Program& program, const CoreWork& work, std::int64_t running_cores,
            const Multicast& multicast)
      : program_(program),
        work_(work),
        steps_(program.step_cycles()),
        tile_(tile_cycles(tile_bytes(program.input), running_cores, {}, wormhole_rules())),
        shared_tile_(
            tile_cycles(tile_bytes(program.input), running_cores, multicast, wormhole_rules())),
        mask_tile_(tile_cycles(tile_bytes(kMask), running_cores, {}, wormhole_rules())),
        leads_(multicast.is_leader),
        rows_((program.key_len + kTile - 1) / kTile),
        q_(program.choices.chunks_in_buffer),
        k_(program.choices.chunks_in_buffer),
        v_(program.choices.chunks_in_buffer),
        mask_(program.choices.chunks_in_buffer),
        output_(1) {}

  Cycles run() {
    for_each_query_chunk(work_, [&](auto, auto, std::int64_t chunk) { query_chunk(chunk); });
    return std::max({reader_, compute_, writer_});
  }
  std::int64_t dram_bytes_read() const { return dram_bytes_; }
  Cycles engine_busy() const { return engine_busy_; }

 private:
  // How many of a chunk's rows of tiles are in the tensor.
  std::int64_t rows_of(std::int64_t chunk, std::int64_t chunk_tiles) const {
    return std::clamp<std::int64_t>(rows_ - chunk * chunk_tiles, 0, chunk_tiles);
  }

  void read(Places& to, std::int64_t tiles, Cycles tile, std::int64_t bytes) {
    to.reserve(reader_);
    reader_ += tiles * tile;
    dram_bytes_ += tiles * bytes;
    compute_ = std::max(compute_, reader_);
  }

  void compute(Cycles cycles) {
    compute_ += cycles;
    engine_busy_ += cycles;
  }

  void query_chunk(std::int64_t chunk) {
    const SdpaShape& shape = program_.shape;
    const std::int64_t bytes = tile_bytes(program_.input);
    const std::int64_t tiles = rows_of(chunk, shape.query_chunk_tiles) * program_.head_dim_tiles;
    read(q_, tiles, tile_, bytes);
    for (std::int64_t n = 0; n < shape.key_chunks_of(chunk); ++n) key_chunk(chunk, n);
    output_.reserve(compute_);
    compute(steps_.finish);
    q_.pop(compute_);
    writer_ = std::max(writer_, compute_) + tiles * tile_;
    output_.pop(writer_);
  }

  void key_chunk(std::int64_t chunk, std::int64_t n) {
    const SdpaShape& shape = program_.shape;
    const std::int64_t bytes = leads_ ? tile_bytes(program_.input) : 0;
    const std::int64_t rows = rows_of(n, shape.key_chunk_tiles);
    read(k_, rows * program_.head_dim_tiles, shared_tile_, bytes);
    compute(steps_.scores);
    k_.pop(compute_);
    if (program_.masks(chunk, n)) {
      const std::int64_t tiles = rows_of(chunk, shape.query_chunk_tiles) * rows;
      read(mask_, program_.reads_mask() ? tiles : 0, mask_tile_, tile_bytes(kMask));
      compute(steps_.mask);
      mask_.pop(compute_);
    }
    compute(steps_.softmax);
    read(v_, rows * program_.head_dim_tiles, shared_tile_, bytes);
    compute(steps_.values);
    v_.pop(compute_);
    if (n > 0) compute(steps_.rescale);
  }

  const Program& program_;
  const CoreWork& work_;
  const StepCycles steps_;
  const Cycles tile_, shared_tile_, mask_tile_;
  const bool leads_;
  const std::int64_t rows_;
  Places q_, k_, v_, mask_, output_;
  Cycles reader_ = 0, compute_ = 0, writer_ = 0, engine_busy_ = 0;
  std::int64_t dram_bytes_ = 0;
};

std::size_t l1_bytes_of(const Program& program) {
  device::Memory l1("L1", wormhole_rules().l1_bytes);
  device::Stages stages;
  const Buffers buffers(program, stages, l1);
  const ComputeKernel compute(program, 1, l1);
  return l1.most_used();
}

}  // namespace

Estimate estimate(const Shape& q, const Shape& k, DataType dtype, const SdpaArguments& arguments) {
  const Program program = make_program(q, k, dtype, arguments);
  const CoreCoord grid =
      arguments.program_config.value_or(SDPAProgramConfig()).compute_with_storage_grid_size;
  const std::vector<CoreWork> work =
      split_work(program.shape, grid.x * grid.y, program.choices.balanced);
  const std::vector<Multicast> multicast =
      multicasts(program.shape, work, program.choices.multicast_keys);
  Estimate estimate = {
      .elapsed = {}, .engine_busy = 0, .dram_bytes_read = 0, .l1_bytes = l1_bytes_of(program)};

  // Most cores do the same as another.
  using Same = std::tuple<std::size_t, std::vector<std::int64_t>, std::int64_t, bool>;
  struct Known {
    Cycles elapsed, engine_busy;
    std::int64_t dram_bytes_read;
  };
  std::map<Same, Known> known;
  for (std::size_t core = 0; core < work.size(); ++core) {
    const Same same = {work[core].batches.size() * work[core].heads.size(), work[core].query_chunks,
                       multicast[core].group, multicast[core].is_leader};
    auto found = known.find(same);
    if (found == known.end()) {
      CoreModel model(program, work[core], static_cast<std::int64_t>(work.size()), multicast[core]);
      const Cycles elapsed = model.run();
      found =
          known.emplace(same, Known{elapsed, model.engine_busy(), model.dram_bytes_read()}).first;
    }
    estimate.elapsed.of_core.push_back(found->second.elapsed);
    estimate.engine_busy = std::max(estimate.engine_busy, found->second.engine_busy);
    estimate.dram_bytes_read += found->second.dram_bytes_read;
  }
  return estimate;
}

std::optional<Swept> sweep(const Shape& q, const Shape& k, DataType dtype,
                           const SdpaArguments& arguments,
                           std::initializer_list<std::size_t> sizes) {
  std::optional<Swept> best;
  const auto attempt = [&](const SDPAProgramConfig& config) {
    SdpaArguments tried = arguments;
    tried.program_config = config;
    try {
      Estimate time = estimate(q, k, dtype, tried);
      if (best && best->estimate.elapsed.longest() <= time.elapsed.longest()) return;
      best = Swept{config, std::move(time)};
    } catch (const device::DeviceError&) {
      // Does not fit.
    }
  };
  for (const CoreCoord& grid : {wormhole_rules().grid, CoreCoord{8, 8}}) {
    for (const std::size_t q_chunk : sizes) {
      for (const std::size_t k_chunk : sizes) attempt({grid, q_chunk, k_chunk});
    }
  }
  return best;
}

double causal_flops(const Shape& q) {
  return 2.0 * static_cast<double>(q[0] * q[1]) * static_cast<double>(q[2] * q[2]) *
         static_cast<double>(q[3]);
}

double baseline_seconds(const Shape& q, const Shape& k, DataType dtype, MathFidelity fidelity) {
  const WormholeRules& rules = wormhole_rules();
  const TileCosts cost;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  const std::int64_t bytes = tile_bytes(tile_format(dtype));
  const std::int64_t scores = q[0] * q[1] * tiles(q[2]) * tiles(k[2]);
  const std::int64_t queries = q[0] * q[1] * tiles(q[2]) * tiles(q[3]);
  const std::int64_t keys = k[0] * k[1] * tiles(k[2]) * tiles(k[3]);
  const Cycles product = tiles(q[3]) * cost.matmul_pass * static_cast<Cycles>(fidelity);
  // Scale, mask, maximum, exponential of the difference, sum, quotient.
  const Cycles softmax = 5 * cost.elementwise(bytes) + cost.exp;

  double seconds = 0;
  const auto run = [&](Cycles engine, std::int64_t dram_tiles) {
    const double computed = static_cast<double>(engine) / rules.cores() / rules.cycles_per_second;
    const double moved = static_cast<double>(dram_tiles * bytes) / rules.dram_bytes_per_second();
    seconds += std::max(computed, moved);
  };
  run(scores * product, queries + keys + scores);
  run(scores * softmax, scores + scores + scores);  // the mask is read for every head
  run(scores * product, scores + keys + queries);
  return seconds;
}

}  // namespace attest::vendor::wormhole
