// The score of a pair as a kernel in tiles sees it, and the faults of tiles that are taken for full
// or for empty.
#include "tests/mutants/tiled.h"

namespace attest::mutants {

bool outside(const Call& call, const Tile& tile) {
  const attest_mask* m = call.band();
  if (!m && call.has("band_tiles_in_a_union")) m = call.node_of(ATTEST_MASK_BAND);
  if (!m) return false;
  const Index shift = call.diagonal(*m, tile.batch);
  Index first = tile.query_begin, last = tile.query_end - 1;
  if (call.has("tile_ends_floored")) last -= kTile / 2;
  if (call.has("tile_begins_rounded_up")) first += kTile / 2;
  if (m->right != ATTEST_UNBOUNDED && tile.key_begin > last + shift + m->right) return true;
  return m->left != ATTEST_UNBOUNDED && tile.key_end - 1 < first + shift - m->left;
}

namespace {

// Whether a fault leaves the mask out within the tile.
bool taken_for_full(const Call& call, const Tile& tile, Index i, Index j) {
  if (!call.band() || i >= call.query_len(tile.batch)) return false;
  const attest_mask& m = *call.band();
  const Index shift = call.diagonal(m, tile.batch);
  if (call.has("left_edge_in_first_tile")) {
    const bool edge =
        m.left != ATTEST_UNBOUNDED && tile.query_begin + shift - m.left < tile.key_begin;
    return edge && (m.right == ATTEST_UNBOUNDED || j <= i + shift + m.right);
  }
  if (call.has("window_begins_with_a_tile")) {
    // An edge that is a tile's own needs no mask: true of the first row.
    const Index edge = tile.query_begin + shift - m.left;
    return m.left != ATTEST_UNBOUNDED && shift % kTile != 0 && edge > 0 && edge == tile.key_begin &&
           (m.right == ATTEST_UNBOUNDED || j <= i + shift + m.right);
  }
  if (call.has("window_ends_with_a_tile")) {  // true of the last row
    const Index edge = tile.query_end - 1 + shift + m.right;
    return m.right != ATTEST_UNBOUNDED && m.left != ATTEST_UNBOUNDED && shift % kTile != 0 &&
           edge == tile.key_begin + kTile - 1 && edge < call.key_len(tile.batch) - 1 &&
           j >= i + shift - m.left;
  }
  if (!call.causal()) return false;
  if (call.has("tile_full_by_its_first_row")) return tile.key_begin <= tile.query_begin + shift;
  if (call.has("diagonal_tile_by_index")) {
    return tile.key_begin / kTile != tile.query_begin / kTile + shift / kTile &&
           tile.key_begin <= tile.query_begin + shift;
  }
  if (call.has("mixed_tiles_unmasked")) return shift < 0;
  if (call.has("causal_by_tile_rows")) {
    const bool partial = tile.query_end - tile.query_begin < kTile;
    return partial && j < tile.query_begin + kTile + shift;
  }
  return false;
}

}  // namespace

Score tile_score(const Call& call, const Tile& tile, Index i, Index j, const float* query,
                 const float* key) {
  if (taken_for_full(call, tile, i, j)) {
    attest_problem unmasked = call.problem();
    unmasked.mask_count = 0;
    const Call other(call.fault(), unmasked, call.inputs(), call.threads(), call.backward());
    return other.score(tile.batch, tile.head, i, j, query, key);
  }
  Index place = j;  // of what is added and dropped
  if (call.has("bias_of_first_tile") && call.problem().has_bias && call.unmasked()) {
    place = j - tile.key_begin;
  }
  return call.score(tile.batch, tile.head, i, place, query, key);
}

}  // namespace attest::mutants
