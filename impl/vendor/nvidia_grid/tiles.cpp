#include "impl/vendor/nvidia_grid/tiles.h"

#include <algorithm>

#include "impl/vendor/device/error.h"

namespace attest::vendor::nvidia_grid {
namespace {

constexpr std::int64_t kElement = 2, kFloat = 4;  // bytes

std::int64_t padded(std::int64_t head_dim, std::initializer_list<std::int64_t> made_for) {
  for (const std::int64_t size : made_for) {
    if (head_dim <= size) return size;
  }
  throw device::DeviceError("kernels",
                            "there is none for a head dimension of " + std::to_string(head_dim));
}

}  // namespace

WarpLayout ForwardTile::of_scores() const {
  // With keys of its own for all rows to come, a warp keeps them in registers.
  if (split_k) return {.m = 1, .n = warps, .b_in_registers = true};
  return {.m = warps, .n = 1};
}

WarpLayout ForwardTile::of_output() const {
  if (split_k) {
    return {.m = 1, .n = 1, .k = warps, .a_in_registers = true, .b_in_registers = true};
  }
  return {.m = warps, .n = 1, .a_in_registers = true};
}

Resources ForwardTile::resources() const {
  const std::int64_t q = rows * head_dim * kElement, k = keys * head_dim * kElement;
  const int threads = warps * kThreadsPerWarp;
  if (!split_k) {
    return {.threads = threads,
            .shared_bytes = static_cast<std::size_t>(q + 2 * k),
            .copies_asynchronously = asynchronous};
  }
  // Two buffers of Q; K, V and the warps' parts of O in one place; two numbers of each row from
  // each warp, and LSE of the keys before.
  const std::int64_t parts = warps * rows * head_dim * kFloat;
  const std::int64_t statistics = 2 * warps * rows * kFloat + 2 * rows * kFloat;
  return {.threads = threads,
          .shared_bytes = static_cast<std::size_t>(2 * q + std::max(k, parts) + statistics),
          .copies_asynchronously = asynchronous};
}

WarpLayout BackwardTile::of_scores() const {
  return {.m = rows_of_warps_in_scores, .n = warps / rows_of_warps_in_scores};
}

WarpLayout BackwardTile::of_dp() const {
  WarpLayout layout = of_scores();
  layout.b_in_registers = v_in_registers;
  return layout;
}

WarpLayout BackwardTile::of_dkv() const {
  return {.m = keys_of_warps_in_dkv, .n = warps / keys_of_warps_in_dkv};
}

WarpLayout BackwardTile::of_dq() const {
  if (split_k) return {.m = 1, .n = 1, .k = warps, .a_in_registers = true};
  return {.m = rows_of_warps_in_dq, .n = warps / rows_of_warps_in_dq};
}

std::int64_t BackwardTile::split_k_bytes() const {
  return split_k ? warps * rows * head_dim * kFloat : 0;
}

Resources BackwardTile::resources() const {
  const std::int64_t q = rows * head_dim * kElement, k = keys * head_dim * kElement;
  const std::int64_t p_and_ds = 2 * rows * keys * kElement;
  // dO has as many buffers as Q in v1, and one in v2.
  const std::int64_t q_and_do = q * (split_k ? 2 * buffers_of_q : buffers_of_q + 1);
  const std::int64_t k_and_v = split_k && v_in_registers ? k + p_and_ds
                               : v_in_registers          ? std::max(2 * k, k + p_and_ds)
                                                         : 2 * k + p_and_ds;
  return {.threads = warps * kThreadsPerWarp,
          .shared_bytes = static_cast<std::size_t>(q_and_do + k_and_v + split_k_bytes()),
          .copies_asynchronously = asynchronous};
}

ForwardTile v1_forward_tile(std::int64_t head_dim, std::int64_t keys) {
  const std::int64_t size = padded(head_dim, {32, 64, 128});
  return {.rows = 16,
          .keys = size == 128 || keys <= 128 ? 128 : 256,
          .head_dim = size,
          .warps = 4,
          .split_k = true,
          .asynchronous = false};
}

BackwardTile v1_backward_tile(std::int64_t head_dim, std::int64_t keys) {
  const ForwardTile forward = v1_forward_tile(head_dim, keys);
  const bool has_room =  // where registers would spill
      forward.head_dim == 128 || (forward.head_dim == 64 && forward.keys == 256);
  return {.rows = 16,
          .keys = forward.keys,
          .head_dim = forward.head_dim,
          .warps = 8,
          .split_k = true,
          .v_in_registers = !has_room,
          .buffers_of_q = 2,
          .asynchronous = false,
          .rows_of_warps_in_scores = 1,
          .keys_of_warps_in_dkv = 8,
          .rows_of_warps_in_dq = 1};
}

ForwardTile v2_forward_tile(const GpuRules& gpu, std::int64_t head_dim) {
  const std::int64_t size = padded(head_dim, {32, 64, 96, 128, 192, 256});
  const bool two_small_ones_fit =
      gpu.shared_per_sm >= static_cast<std::size_t>(2 * kElement * size * (64 + 2 * 64));
  if (size == 256 && two_small_ones_fit) {
    return {.rows = 64,
            .keys = 64,
            .head_dim = size,
            .warps = 4,
            .split_k = false,
            .asynchronous = true};
  }
  return {.rows = 128,
          .keys = size <= 64 ? 128 : 64,
          .head_dim = size,
          .warps = size <= 128 ? 4 : 8,
          .split_k = false,
          .asynchronous = true};
}

BackwardTile v2_backward_tile(const GpuRules& gpu, std::int64_t head_dim) {
  const std::int64_t size = padded(head_dim, {32, 64, 96, 128, 192, 256});
  const bool is_large = gpu.shared_per_block >= 176 * 1024;
  return {.rows = size <= 64 ? 128 : 64,
          .keys = size <= 128 ? 128 : 64,
          .head_dim = size,
          .warps = 8,
          .split_k = false,
          .v_in_registers = size == 32 || size == 96,
          .buffers_of_q = size == 256 && !is_large ? 1 : 2,
          .asynchronous = true,
          .rows_of_warps_in_scores = size == 96 || size == 128 ? 2 : 4,
          .keys_of_warps_in_dkv = size <= 128 ? 4 : 2,
          .rows_of_warps_in_dq = size <= 96 ? 4 : 2};
}

}  // namespace attest::vendor::nvidia_grid
