// The kernels that move data: the reader and the writer.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "impl/vendor/wormhole/kernels.h"

namespace attest::vendor::wormhole {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

using MaskTile = std::array<std::uint8_t, kTileElements * 2>;

// What `hides(row, column)` hides of a tile.
template <class Hides>
MaskTile make_mask_tile(const Hides& hides) {
  std::array<float, kTileElements> values;
  for (int n = 0; n < kTileElements; ++n) {
    values[static_cast<std::size_t>(n)] = hides(n / kTile, n % kTile) ? kHidden : 0.0f;
  }
  MaskTile tile;
  pack_tile(kMask, values.data(), tile.data());
  return tile;
}

// The causal mask is a tensor of [1, 1, S, S] in DRAM, of which every tile is one of three.
const MaskTile& causal_tile(std::int64_t row, std::int64_t column) {
  static const MaskTile all = make_mask_tile([](int, int) { return false; });
  static const MaskTile diagonal = make_mask_tile([](int i, int j) { return j > i; });
  static const MaskTile none = make_mask_tile([](int, int) { return true; });
  return column < row ? all : column == row ? diagonal : none;
}

class Reader {
 public:
  Reader(const Program& program, const Operands& operands, Buffers& cb, DataMover& mover)
      : program_(program), operands_(operands), cb_(cb), mover_(mover) {}

  // Rows of tiles from `first` on; what lies beyond the tensor is 0.
  void rows(CircularBuffer& to, std::int64_t number, const Tensor& from, std::int64_t batch,
            std::int64_t head, std::int64_t first, std::int64_t count, const Multicast& multicast) {
    std::uint8_t* place = to.reserve_back(mover_.unit());
    const std::int64_t bytes = tile_bytes(to.format());
    for (std::int64_t row = first; row < first + count; ++row) {
      for (std::int64_t column = 0; column < from.columns_in_tiles(); ++column, place += bytes) {
        if (row >= from.rows_in_tiles()) {
          std::memset(place, 0, static_cast<std::size_t>(bytes));
          continue;
        }
        const std::int64_t id = from.tile_id(batch, head, row, column);
        mover_.move(place, from.tile(id), bytes, from.address(id), multicast);
      }
    }
    to.push_back(mover_.unit(), number);
  }

  void mask(std::int64_t number, std::int64_t batch, std::int64_t head, std::int64_t query_chunk,
            std::int64_t key_chunk) {
    const SdpaShape& shape = program_.shape;
    std::uint8_t* place = cb_.mask.reserve_back(mover_.unit());
    const std::int64_t row = query_chunk * shape.query_chunk_tiles;
    const std::int64_t column = key_chunk * shape.key_chunk_tiles;
    for (std::int64_t r = row; r < row + shape.query_chunk_tiles; ++r) {
      for (std::int64_t c = column; c < column + shape.key_chunk_tiles; ++c) {
        mask_tile(place, batch, head, r, c);
        place += tile_bytes(kMask);
      }
    }
    cb_.mask.push_back(mover_.unit(), number);
  }

 private:
  void mask_tile(std::uint8_t* to, std::int64_t batch, std::int64_t head, std::int64_t row,
                 std::int64_t column) {
    const std::int64_t bytes = tile_bytes(kMask);
    const std::int64_t row_tiles = operands_.q->rows_in_tiles();
    const bool in_tensor = row < row_tiles && column < operands_.k->rows_in_tiles();
    if (!in_tensor || !program_.reads_mask()) {
      std::memcpy(to, causal_tile(1, 0).data(), static_cast<std::size_t>(bytes));
    } else if (const Tensor* const mask = operands_.attn_mask) {
      const std::int64_t id = mask->tile_id(mask->shape()[0] == 1 ? 0 : batch,
                                            mask->shape()[1] == 1 ? 0 : head, row, column);
      mover_.move(to, mask->tile(id), bytes, mask->address(id));
    } else {
      mover_.move(to, causal_tile(row, column).data(), bytes, (row * row_tiles + column) * bytes);
    }
    hide_padding(to, column);
  }

  // Keys that are none, which the last tiles are filled up with.
  void hide_padding(std::uint8_t* tile, std::int64_t column) const {
    const std::int64_t real = program_.key_len - column * kTile;
    if (real >= kTile) return;
    std::array<float, kTileElements> values;
    unpack_tile(kMask, tile, values.data());
    for (std::int64_t row = 0; row < kTile; ++row) {
      std::fill(values.begin() + row * kTile + std::max<std::int64_t>(real, 0),
                values.begin() + (row + 1) * kTile, kHidden);
    }
    pack_tile(kMask, values.data(), tile);
  }

  const Program& program_;
  const Operands& operands_;
  Buffers& cb_;
  DataMover& mover_;
};

}  // namespace

Buffers::Buffers(const Program& program, device::Stages& stages, device::Memory& l1)
    : q(stages, l1, "cb_q_in", program.input, program.query_tiles(),
        program.choices.chunks_in_buffer),
      k(stages, l1, "cb_k_in", program.input, program.key_tiles(),
        program.choices.chunks_in_buffer),
      v(stages, l1, "cb_v_in", program.input, program.key_tiles(),
        program.choices.chunks_in_buffer),
      mask(stages, l1, "cb_mask_in", kMask, program.score_tiles(),
           program.choices.chunks_in_buffer),
      output(stages, l1, "cb_out", program.input, program.query_tiles(), 1) {}

void reader(const Program& program, const CoreWork& work, const Operands& operands,
            const Multicast& multicast, Buffers& cb, DataMover& mover) {
  Reader read(program, operands, cb, mover);
  const SdpaShape& shape = program.shape;
  const auto told = [&](const char* buffer, std::int64_t query_chunk, std::int64_t key_chunk) {
    if (program.choices.on_read) program.choices.on_read(buffer, query_chunk, key_chunk);
  };
  std::int64_t queries = 0, keys = 0, masks = 0;
  for_each_query_chunk(work, [&](std::int64_t batch, std::int64_t head, std::int64_t chunk) {
    told("cb_q_in", chunk, 0);
    read.rows(cb.q, queries++, *operands.q, batch, head, chunk * shape.query_chunk_tiles,
              shape.query_chunk_tiles, {});
    for (std::int64_t n = 0; n < shape.key_chunks_of(chunk); ++n) {
      const std::int64_t first = n * shape.key_chunk_tiles, key_head = shape.key_head(head);
      told("cb_k_in", chunk, n);
      read.rows(cb.k, keys, *operands.k, batch, key_head, first, shape.key_chunk_tiles, multicast);
      if (program.masks(chunk, n)) {
        told("cb_mask_in", chunk, n);
        read.mask(masks++, batch, head, chunk, n);
      }
      told("cb_v_in", chunk, n);
      read.rows(cb.v, keys++, *operands.v, batch, key_head, first, shape.key_chunk_tiles,
                multicast);
    }
  });
}

void writer(const Program& program, const CoreWork& work, const Operands& operands, Buffers& cb,
            DataMover& mover) {
  Tensor& output = *operands.output;
  const std::int64_t rows = program.shape.query_chunk_tiles, bytes = tile_bytes(program.input);
  std::int64_t queries = 0;
  for_each_query_chunk(work, [&](std::int64_t batch, std::int64_t head, std::int64_t chunk) {
    const std::uint8_t* place = cb.output.wait_front(mover.unit(), queries++);
    for (std::int64_t row = chunk * rows; row < (chunk + 1) * rows; ++row) {
      for (std::int64_t column = 0; column < output.columns_in_tiles(); ++column, place += bytes) {
        if (row >= output.rows_in_tiles()) continue;  // padding
        const std::int64_t id = output.tile_id(batch, head, row, column);
        mover.move(output.tile(id), place, bytes, output.address(id));
      }
    }
    cb.output.pop_front(mover.unit());
  });
}

}  // namespace attest::vendor::wormhole
