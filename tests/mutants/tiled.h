// Tiles of the score matrix, as the forward and the backward pass of tiled kernels visit them.
#pragma once

#include "tests/mutants/call.h"

namespace attest::mutants {

struct Tile {
  Index batch, head;
  Index query_begin, query_end;  // of the tile, cut off where the queries end
  Index key_begin, key_end;
};

// Whether no pair of the tile is within the band, if the mask is one.
bool outside(const Call& call, const Tile& tile);

// The score of a pair within the tile: the mask is applied to its elements, unless a fault takes
// the tile for a full one.
Score tile_score(const Call& call, const Tile& tile, Index i, Index j, const float* query,
                 const float* key);

}  // namespace attest::mutants
