// A thread block at work on an SM: its shared memory, its copies from global memory, the products
// of its warps, all counted, with the clocks of the units that do them.
//
//   SharedTile k = block.tile("K", 64, 128);
//   block.copy(k, matrix, 64 * n, n);          // begun,
//   block.commit();                            // as a group,
//   block.wait(0);                             // there
//   const Fragment keys = block.load(k, n);    // in registers
//   block.sync();                              // all warps have it: k may be overwritten
//
// A tile that is read before its copy was waited for or before the barrier that follows its
// store, that is overwritten while a warp may still read it, or that is not the one that the kernel
// asks for is an error of the device.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "impl/vendor/device/dma.h"
#include "impl/vendor/device/memory.h"
#include "impl/vendor/device/unit.h"
#include "impl/vendor/nvidia_grid/element.h"
#include "impl/vendor/nvidia_grid/fragment.h"
#include "impl/vendor/nvidia_grid/gpu_rules.h"

namespace attest::vendor::nvidia_grid {

// Rows of 16-bit elements in global memory.
struct Matrix {
  std::uint16_t* data;
  std::int64_t row_stride, rows, columns;
};

// Bytes that crossed a border, and work that was done. No cache is modelled: what is asked of
// global memory counts, whoever asked for it before.
struct Counters {
  std::int64_t inputs_read = 0, outputs_written = 0;     // global memory
  std::int64_t partials_read = 0, partials_written = 0;  // likewise: sums that are not yet whole
  std::int64_t shared_read = 0, shared_written = 0;      // by warps, without split-K
  std::int64_t shared_of_split_k = 0;                    // what warps tell each other
  std::int64_t staged_in_registers = 0;                  // copies that were not asynchronous
  std::int64_t products = 0, scores = 0, tiles = 0;

  Counters& operator+=(const Counters& other);
  std::int64_t global() const {
    return inputs_read + outputs_written + partials_read + partials_written;
  }
  std::int64_t shared() const { return shared_read + shared_written + shared_of_split_k; }
};

struct SharedTile {
  device::Memory::Region<std::uint16_t> data;
  std::string what;
  std::int64_t rows, columns;
  std::int64_t number = -1;       // which block of the matrix it holds
  std::int64_t group = 0;         // of copies, that it came with
  std::int64_t read_until = 0;    // the barrier before which warps may read it,
  std::int64_t stored_until = 0;  // and before which they may still write
  std::int64_t rows_held = 0, columns_held = 0;
};

// How warps share a product of m x n x k: in so many parts along each axis. A factor that is in
// registers already takes no load.
struct WarpLayout {
  int m, n, k = 1;
  bool a_in_registers = false, b_in_registers = false;
};

class ThreadBlock {
 public:
  ThreadBlock(const GpuRules& gpu, const Resources& resources, int host_thread);

  SharedTile tile(const std::string& what, std::int64_t rows, std::int64_t columns);
  device::Memory& shared() { return shared_; }

  // `first_row` and up to a tile's rows more; what is beyond the matrix becomes zeros.
  void copy(SharedTile& to, const Matrix& from, std::int64_t first_row, std::int64_t number);
  void commit();
  void wait(std::int64_t but);  // until all groups but the last so many are there
  void sync();

  // Of the rows that are there.
  Fragment load(SharedTile& tile, std::int64_t number, ScalarType type);
  // Rounded to the format, by the warps that computed it; for the others after a barrier.
  void store(SharedTile& tile, const Fragment& from, std::int64_t number, ScalarType type);

  // Time and traffic of a product of whole tiles; the numbers are the kernel's affair.
  void count_product(std::int64_t m, std::int64_t n, std::int64_t k, const WarpLayout& warps);
  // Of numbers that warps add to each other's, or compare, through shared memory: each writes its
  // own, and all are read.
  void count_split_k(std::int64_t numbers, int warps);
  void count_shared_store(std::int64_t bytes);
  void count_shared_load(std::int64_t bytes);
  void count_scores(std::int64_t scores) { counters_.scores += scores, ++counters_.tiles; }

  // To and from global memory by the warps themselves, row by row.
  // Atomic additions are read and written by the memory, and not waited for.
  enum class Kind { kInput, kOutput, kPartialRead, kPartialWritten, kPartialAdded };
  void count_global(Kind kind, std::int64_t rows, std::int64_t bytes_per_row);

  void narrow_to(const Matrix& to, std::int64_t first_row, const Fragment& from, ScalarType type);

  int host_thread() const { return host_thread_; }
  const Counters& counters() const { return counters_; }
  device::Cycles cycles() const;
  const device::Unit& port() const { return port_; }
  const device::Unit& matrix_unit() const { return products_; }

 private:
  void check_free(const SharedTile& tile, std::int64_t for_number) const;

  struct Group {
    device::Cycles there_at;
    std::int64_t bytes;
  };

  GpuRules gpu_;
  bool asynchronous_;
  int host_thread_;
  device::Memory shared_;
  device::Dma copies_;
  device::Unit port_{.name = "shared memory port"}, products_{.name = "matrix units"};
  Counters counters_;
  Group open_ = {0, 0};
  std::deque<Group> begun_;
  std::int64_t committed_ = 0, waited_ = 0, barriers_ = 0;
};

}  // namespace attest::vendor::nvidia_grid
