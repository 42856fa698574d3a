// The compute kernel. Every step packs what it computed into L1, and rounds there.
#include <algorithm>
#include <bit>
#include <cmath>

#include "impl/vendor/wormhole/kernels.h"

namespace attest::vendor::wormhole {
namespace {

// Computes `of(row)` of each row, and packs it into the first column.
template <class Of>
void pack_rows(Block& to, const Of& of) {
  for (std::int64_t n = 0; n < to.rows(); ++n) to.row(n)[0] = rounded(to.format(), of(n));
}

// A scale is stored as one element of a tile; of a bf16 it is the upper half of the float.
float stored_scale(float scale, DataFormat format) {
  if (format != DataFormat::Float16_b) return scale;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xffff0000u);
}

std::vector<float> unpack(const Block& block) {
  return {block.row(0), block.row(0) + block.rows() * block.columns()};
}

}  // namespace

ComputeKernel::ComputeKernel(const Program& program, float scale, device::Memory& l1)
    : program_(program),
      cycles_(program.step_cycles()),
      matrix_{program.precision.fidelity, program.precision.fp32_dest_acc_en},
      scale_(stored_scale(scale, program.precision.intermediate)),
      scalars_(l1, "cb_scale_in, cb_identity_scale_in", program.precision.intermediate, 2, 1),
      scores_(l1, "cb_qk_im", program.precision.intermediate, program.shape.query_chunk_tiles,
              program.shape.key_chunk_tiles),
      weights_(l1, "cb_p_im", kWeights, program.shape.query_chunk_tiles,
               program.shape.key_chunk_tiles),
      maximum_(l1, "cb_prev_max", program.precision.intermediate, program.shape.query_chunk_tiles,
               1),
      new_maximum_(l1, "cb_cur_max", program.precision.intermediate,
                   program.shape.query_chunk_tiles, 1),
      sum_(l1, "cb_sum_A", program.precision.intermediate, program.shape.query_chunk_tiles, 1),
      new_sum_(l1, "cb_sum_B", program.precision.intermediate, program.shape.query_chunk_tiles, 1),
      factor_(l1, "cb_exp_max_diff", program.precision.intermediate,
              program.shape.query_chunk_tiles, 1),
      output_(l1, "cb_out_accumulate_im", program.precision.intermediate,
              program.shape.query_chunk_tiles, program.head_dim_tiles),
      new_output_(l1, "cb_out_im", program.precision.intermediate, program.shape.query_chunk_tiles,
                  program.head_dim_tiles) {}

void ComputeKernel::run(const CoreWork& work, Buffers& cb, device::Unit& unit) {
  std::int64_t queries = 0, keys = 0;
  for_each_query_chunk(work, [&](std::int64_t, std::int64_t, std::int64_t query_chunk) {
    query_ = unpack_chunk(cb.q.format(), cb.q.wait_front(unit, queries),
                          program_.shape.query_chunk_tiles, program_.head_dim_tiles);
    first_ = true;
    for (std::int64_t n = 0; n < program_.shape.key_chunks_of(query_chunk); ++n) {
      key_chunk(cb, unit, keys++, program_.masks(query_chunk, n));
      first_ = false;
    }
    pack_rows(sum_, [&](auto row) { return 1.0f / sum_.row(row)[0]; });
    output_.pack([&](auto row, auto n) { return output_.row(row)[n] * sum_.row(row)[0]; });
    std::uint8_t* const output = cb.output.reserve_back(unit);
    unit.spend(cycles_.finish);
    pack_chunk(output_, cb.output.format(), output);
    cb.output.push_back(unit, queries++);
    cb.q.pop_front(unit);
  });
}

void ComputeKernel::key_chunk(Buffers& cb, device::Unit& unit, std::int64_t number, bool masked) {
  const std::uint8_t* const keys = cb.k.wait_front(unit, number);
  unit.spend(cycles_.scores);
  scores(keys);
  cb.k.pop_front(unit);

  if (masked) {
    const std::uint8_t* const mask = cb.mask.wait_front(unit, masks_taken_++);
    unit.spend(cycles_.mask);
    add_mask(mask);
    cb.mask.pop_front(unit);
  }
  unit.spend(cycles_.softmax);
  softmax();

  const std::uint8_t* const values = cb.v.wait_front(unit, number);
  unit.spend(cycles_.values);
  matrix_.multiply(
      first_ ? output_ : new_output_, unpack(weights_),
      unpack_chunk(cb.v.format(), values, program_.shape.key_chunk_tiles, program_.head_dim_tiles));
  cb.v.pop_front(unit);

  if (!first_) {
    unit.spend(cycles_.rescale);
    accumulate();
  }
  maximum_.swap(new_maximum_);
  if (first_) sum_.swap(new_sum_);
}

// scale Q K^T
void ComputeKernel::scores(const std::uint8_t* key_chunk) {
  matrix_.multiply(scores_, query_,
                   unpack_chunk(program_.input, key_chunk, program_.shape.key_chunk_tiles,
                                program_.head_dim_tiles, true));
  scores_.pack([&](auto row, auto n) { return scores_.row(row)[n] * scale_; });
}

void ComputeKernel::add_mask(const std::uint8_t* mask_chunk) {
  const std::vector<float> mask = unpack_chunk(kMask, mask_chunk, program_.shape.query_chunk_tiles,
                                               program_.shape.key_chunk_tiles);
  scores_.pack([&](auto row, auto n) {
    return scores_.row(row)[n] + mask[static_cast<std::size_t>(row * scores_.columns() + n)];
  });
}

// The largest score so far, weights relative to it, and what of them enters P V summed up.
void ComputeKernel::softmax() {
  pack_rows(new_maximum_, [&](auto row) {
    const float* const scores = scores_.row(row);
    const float largest = *std::max_element(scores, scores + scores_.columns());
    return first_ ? largest : std::max(maximum_.row(row)[0], largest);
  });
  weights_.pack([&](auto row, auto n) {
    return std::exp(difference(scores_.row(row)[n], new_maximum_.row(row)[0]));
  });
  pack_rows(new_sum_, [&](auto row) {
    float sum = 0;
    for (std::int64_t n = 0; n < weights_.columns(); ++n) sum += weights_.row(row)[n];
    return sum;
  });
}

// What was summed so far becomes relative to the new maximum; the new sums are added.
void ComputeKernel::accumulate() {
  pack_rows(factor_, [&](auto row) {
    return std::exp(difference(maximum_.row(row)[0], new_maximum_.row(row)[0]));
  });
  pack_rows(sum_, [&](auto row) { return sum_.row(row)[0] * factor_.row(row)[0]; });
  pack_rows(sum_, [&](auto row) { return new_sum_.row(row)[0] + sum_.row(row)[0]; });
  output_.pack([&](auto row, auto n) { return output_.row(row)[n] * factor_.row(row)[0]; });
  output_.pack([&](auto row, auto n) { return output_.row(row)[n] + new_output_.row(row)[n]; });
}

}  // namespace attest::vendor::wormhole
