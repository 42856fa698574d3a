#include "impl/vendor/splash/models.h"

#include <algorithm>

namespace attest::vendor::splash {
namespace {

constexpr double kHertz = 1.75e9;

// A mask that the kernel cannot compute: what a NumpyMask comes to once it is processed, without
// the array.
class OnTheHostAlone final : public Mask {
 public:
  explicit OnTheHostAlone(MaskPtr mask) : mask_(std::move(mask)) {}
  Shape shape() const override { return mask_->shape(); }
  void get(Slice q, Slice kv, std::uint8_t* to, HostCount& count) const override {
    mask_->get(q, kv, to, count);
  }
  bool equals(const Mask& other) const override { return this == &other; }
  std::size_t hash(HostCount& count) const override { return mask_->hash(count); }
  std::int64_t held_bytes() const override { return mask_->held_bytes(); }

 private:
  MaskPtr mask_;
};

AttentionBias bias_of(const AttentionShape& shape) {
  return {.causal = true, .sliding_window_size = shape.sliding_window_size};
}

MultiHeadMask of_all_heads(const MaskPtr& mask, std::int64_t heads) {
  return MultiHeadMask(std::vector<MaskPtr>(static_cast<std::size_t>(heads), mask));
}

// As the kernel gets it in that form, made block by block in both.
MaskPtr without_array(const AttentionShape& shape, MaskForm form) {
  HostCount count;
  const MaskPtr lazy =
      to_splash_mask(bias_of(shape), {shape.seq_len, shape.seq_len}, MaskForm::kLazy, count);
  return form == MaskForm::kLazy ? lazy : std::make_shared<OnTheHostAlone>(lazy);
}

}  // namespace

HostCount setup_counted(const AttentionShape& shape, MaskForm form) {
  HostSetup setup;
  const MaskPtr mask =
      to_splash_mask(bias_of(shape), {shape.seq_len, shape.seq_len}, form, setup.count);
  make_splash_mha(of_all_heads(mask, shape.heads),
                  {.block_sizes = tpu_block_sizes(shape.block_size)}, setup);
  return setup.count;
}

HostCount setup_count(const AttentionShape& shape, MaskForm form) {
  const std::int64_t t = shape.seq_len, block = shape.block_size, lines = t / block;
  const bool lazy = form == MaskForm::kLazy;
  constexpr std::int64_t kInfos = 2, kLooks = 2;
  // As the cache's key, and to see which heads are alike.
  const std::int64_t hashes = shape.heads + 3 * shape.heads + 1;
  HostCount count;
  count.mask_bytes = lazy ? t * static_cast<std::int64_t>(sizeof(std::int32_t)) : t * t;
  count.temporary_bytes = lazy ? std::max(block * block, count.mask_bytes) : t * t;
  count.computed = lazy ? kInfos * kLooks * t * t : t * t;
  count.scanned = kInfos * kLooks * 2 * t * t;
  // The blocks on the diagonal are found to be one, and each is hashed for it, the first twice.
  count.hashed = kInfos * (hashes * count.mask_bytes + (lines + 1) * block * block);
  // A byte for each entry: data_next, block_mask and, of the dense one, mask_next. Either brings
  // what the kernel compares with.
  const std::int64_t tables = lazy ? 2 : 3;
  const std::int64_t compared = lazy ? count.mask_bytes : block * block;
  count.info_bytes = kInfos * (tables * lines * lines + compared);
  return count;
}

MaskFootprint mask_footprint(const AttentionShape& shape, MaskForm form) {
  HostCount count;
  const MaskInfo info =
      process_mask(of_all_heads(without_array(shape, form), 1),
                   {.block = {shape.block_size, shape.block_size}, .is_dkv = false}, count);
  MaskFootprint footprint{
      .scalar_memory = info.smem_bytes(),
      .partial_blocks = static_cast<std::int64_t>(info.partial_mask_blocks.size())};
  const std::int64_t lines = shape.seq_len / shape.block_size;
  footprint.blocks = lines * lines;
  for (const std::int32_t seen : info.block_mask.entries) {
    footprint.blocks_run += seen != 0;
    footprint.blocks_partly += seen == 1;
  }
  return footprint;
}

double StepTime::forward_ms() const { return static_cast<double>(forward) / kHertz * 1e3; }
double StepTime::backward_ms() const { return static_cast<double>(backward) / kHertz * 1e3; }

// Heads are alike, and so are sequences: two heads are run, one on each core in the forward pass,
// and counted as often as it takes.
StepTime step_time(const AttentionShape& shape, MaskForm form) {
  constexpr std::int64_t kHeads = 2;
  HostSetup setup;
  setup.tpu.timing_only = true;
  const SplashAttentionKernel kernel = make_splash_mha(
      of_all_heads(without_array(shape, form), kHeads),
      {.block_sizes = tpu_block_sizes(shape.block_size), .save_residuals = true}, setup);
  const Array<const BFloat16> array{
      .data = nullptr, .heads = kHeads, .seq = shape.seq_len, .dim = shape.head_dim};
  const Output<BFloat16> output = kernel(array, array, array);
  const Gradients<BFloat16> gradients = kernel.vjp(
      Residuals<BFloat16>{.q = array, .k = array, .v = array, .out = array, .logsumexp = nullptr},
      array);
  const std::int64_t times = shape.batch_size * ((shape.heads + kHeads - 1) / kHeads);
  return {.forward = times * output.elapsed.longest(), .backward = times * gradients.dkv.longest()};
}

AttentionShape benchmark_shape(const BenchmarkModel& model) {
  return {.seq_len = 8 * 1024,
          .heads = model.heads,
          .head_dim = 128,
          .batch_size = 2,
          .sliding_window_size = 1024,
          .block_size = 4 * 128};
}

}  // namespace attest::vendor::splash
