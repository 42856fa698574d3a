#include "impl/vendor/nvidia_grid/thread_block.h"

#include <algorithm>
#include <utility>

#include "impl/vendor/device/error.h"

namespace attest::vendor::nvidia_grid {
namespace {

using device::DeviceError;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  inputs_read += other.inputs_read, outputs_written += other.outputs_written;
  partials_read += other.partials_read, partials_written += other.partials_written;
  shared_read += other.shared_read, shared_written += other.shared_written;
  shared_of_split_k += other.shared_of_split_k;
  staged_in_registers += other.staged_in_registers;
  products += other.products, scores += other.scores, tiles += other.tiles;
  return *this;
}

ThreadBlock::ThreadBlock(const GpuRules& gpu, const Resources& resources, int host_thread)
    : gpu_(gpu),
      asynchronous_(resources.copies_asynchronously && gpu.has_cp_async),
      host_thread_(host_thread),
      shared_("shared memory", resources.shared_bytes),
      copies_("global memory", gpu.copies) {}

SharedTile ThreadBlock::tile(const std::string& what, std::int64_t rows, std::int64_t columns) {
  return {.data = shared_.take<std::uint16_t>(what, static_cast<std::size_t>(rows * columns)),
          .what = what,
          .rows = rows,
          .columns = columns};
}

void ThreadBlock::check_free(const SharedTile& tile, std::int64_t for_number) const {
  if (tile.read_until <= barriers_) return;
  throw DeviceError("shared memory",
                    tile.what + " is overwritten with tile " + std::to_string(for_number) +
                        " while warps may still read tile " + std::to_string(tile.number));
}

void ThreadBlock::copy(SharedTile& to, const Matrix& from, std::int64_t first_row,
                       std::int64_t number) {
  check_free(to, number);
  if (first_row < 0 || first_row >= from.rows) {
    throw DeviceError("global memory", "illegal address: row " + std::to_string(first_row) +
                                           " of " + std::to_string(from.rows));
  }
  if (from.columns > to.columns) {
    throw DeviceError("shared memory", "a copy of " + std::to_string(from.columns) +
                                           " columns into a tile of " + std::to_string(to.columns));
  }
  const std::int64_t rows = std::clamp<std::int64_t>(from.rows - first_row, 0, to.rows);
  const std::int64_t bytes = from.columns * 2;
  const std::uint16_t* first = from.data + first_row * from.row_stride;
  std::fill(to.data.data() + rows * to.columns, to.data.data() + to.data.size(), std::uint16_t{0});
  copies_.unit().wait_until(products_.now);
  copies_.move(to.data.data(), to.columns * 2, first, from.row_stride * 2, rows, bytes,
               static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(first)),
               from.row_stride * 2);
  counters_.inputs_read += rows * bytes;
  open_ = {copies_.unit().now, open_.bytes + rows * bytes};
  to.number = number, to.group = committed_ + 1;
  to.rows_held = rows, to.columns_held = from.columns;
}

void ThreadBlock::commit() {
  begun_.push_back(std::exchange(open_, Group{0, 0}));
  ++committed_;
}

void ThreadBlock::wait(std::int64_t but) {
  while (static_cast<std::int64_t>(begun_.size()) > but) {
    const Group& group = begun_.front();
    products_.wait_until(group.there_at);
    counters_.shared_written += group.bytes;
    if (!asynchronous_) {  // the warps hold it in registers till then, and store it now
      counters_.staged_in_registers += group.bytes;
      port_.wait_until(products_.now);
      port_.spend(quotient_up(group.bytes, gpu_.shared_bytes_per_cycle));
      products_.wait_until(port_.now);
    }
    begun_.pop_front();
    ++waited_;
  }
}

void ThreadBlock::sync() { ++barriers_; }

Fragment ThreadBlock::load(SharedTile& tile, std::int64_t number, ScalarType type) {
  if (tile.group > waited_) {
    throw DeviceError("shared memory", tile.what + " is read before the copy of tile " +
                                           std::to_string(tile.number) + " was waited for");
  }
  if (tile.stored_until > barriers_) {
    throw DeviceError("shared memory",
                      tile.what + " is read before the barrier that follows its store");
  }
  if (tile.number != number) {
    throw DeviceError("shared memory", tile.what + " holds tile " + std::to_string(tile.number) +
                                           " where tile " + std::to_string(number) + " is due");
  }
  tile.read_until = barriers_ + 1;
  Fragment fragment(tile.rows_held, tile.columns_held);
  for (std::int64_t r = 0; r < tile.rows_held; ++r) {
    widen(type, tile.data.data() + r * tile.columns, fragment.row(r), tile.columns_held);
  }
  return fragment;
}

void ThreadBlock::store(SharedTile& tile, const Fragment& from, std::int64_t number,
                        ScalarType type) {
  check_free(tile, number);
  if (from.rows() > tile.rows || from.columns() > tile.columns) {
    throw DeviceError("shared memory", tile.what + " has no place for so much");
  }
  for (std::int64_t r = 0; r < from.rows(); ++r) {
    narrow(type, from.row(r), tile.data.data() + r * tile.columns, from.columns());
  }
  tile.number = number, tile.rows_held = from.rows(), tile.columns_held = from.columns();
  tile.stored_until = barriers_ + 1;
  count_shared_store(tile.rows * tile.columns * 2);
}

void ThreadBlock::count_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                const WarpLayout& warps) {
  const std::int64_t bytes = (warps.a_in_registers ? 0 : warps.n * m * k * 2) +
                             (warps.b_in_registers ? 0 : warps.m * n * k * 2);
  counters_.shared_read += bytes;
  counters_.products += m * n * k;
  port_.wait_until(products_.now);
  port_.spend(quotient_up(bytes, gpu_.shared_bytes_per_cycle));
  products_.spend(quotient_up(m * n * k, gpu_.products_per_cycle));
  products_.wait_until(port_.now);
  if (warps.k > 1) count_split_k(m * n, warps.k);
}

void ThreadBlock::count_split_k(std::int64_t numbers, int warps) {
  const std::int64_t bytes = 2 * warps * numbers * 4;
  counters_.shared_of_split_k += bytes;
  port_.wait_until(products_.now);
  port_.spend(quotient_up(bytes, gpu_.shared_bytes_per_cycle));
  products_.wait_until(port_.now);
}

void ThreadBlock::count_shared_store(std::int64_t bytes) {
  counters_.shared_written += bytes;
  port_.wait_until(products_.now);
  port_.spend(quotient_up(bytes, gpu_.shared_bytes_per_cycle));
  products_.wait_until(port_.now);
}

void ThreadBlock::count_shared_load(std::int64_t bytes) {
  counters_.shared_read += bytes;
  port_.wait_until(products_.now);
  port_.spend(quotient_up(bytes, gpu_.shared_bytes_per_cycle));
  products_.wait_until(port_.now);
}

void ThreadBlock::count_global(Kind kind, std::int64_t rows, std::int64_t bytes_per_row) {
  const std::int64_t bytes = rows * bytes_per_row;
  const bool is_added = kind == Kind::kPartialAdded;
  if (kind == Kind::kInput) counters_.inputs_read += bytes;
  if (kind == Kind::kOutput) counters_.outputs_written += bytes;
  if (kind == Kind::kPartialRead || is_added) counters_.partials_read += bytes;
  if (kind == Kind::kPartialWritten || is_added) counters_.partials_written += bytes;
  copies_.unit().wait_until(products_.now);
  for (std::int64_t r = 0; r < (is_added ? 2 : 1) * rows; ++r) copies_.count(0, bytes_per_row);
  // What is read is waited for; what is written is on its way.
  if (kind == Kind::kInput || kind == Kind::kPartialRead) {
    products_.wait_until(copies_.unit().now);
  }
}

void ThreadBlock::narrow_to(const Matrix& to, std::int64_t first_row, const Fragment& from,
                            ScalarType type) {
  for (std::int64_t r = 0; r < from.rows(); ++r) {
    narrow(type, from.row(r), to.data + (first_row + r) * to.row_stride, from.columns());
  }
  count_global(Kind::kOutput, from.rows(), from.columns() * 2);
}

device::Cycles ThreadBlock::cycles() const {
  device::Dma copies = copies_;
  return std::max({products_.now, port_.now, copies.unit().now});
}

}  // namespace attest::vendor::nvidia_grid
