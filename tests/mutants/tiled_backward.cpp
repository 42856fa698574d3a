// The backward pass in tiles: keys outside, queries inside; P is made again from LSE; P and dS are
// rounded to the format before their products; dQ is summed over the tiles of keys.
#include <algorithm>
#include <cmath>

#include "tests/mutants/tiled.h"

namespace attest::mutants {
namespace {

class Backward {
 public:
  Backward(const Call& call, const attest_outputs& out)
      : call_(call),
        p_(call.problem()),
        out_(out),
        q_(call.inputs().q),
        k_(call.inputs().k),
        v_(call.inputs().v),
        o_(call.inputs().o),
        d_o_(call.inputs().d_o),
        sum_dq_(at(elements(out.dq))),
        sum_dk_(at(elements(out.dk))),
        sum_dv_(at(elements(out.dv) + elements(out.dk))),
        sum_bias_(p_.has_bias ? at(elements(call.inputs().bias)) : 0),
        sum_sink_(at(p_.query_heads)) {}

  void run() {
    call_.for_each_row([&](Index b, Index h, Index i) { prepare(b, h, i); });
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index j = 0; j < call_.key_len(b); j += kTile) keys(b, h, j);
      }
    }
    store();
  }

 private:
  struct Stats {  // of a row
    float lse, delta;
  };

  // ---- Before: LSE and D of each row

  void prepare(Index b, Index h, Index i) {
    const Place place = call_.query_place(b, i);
    const float lse = call_.returned_lse(place, h);
    const float delta = call_.delta(o_, d_o_, b, h, i);
    stats_.push_back({lse, delta});
    if (i == 0) first_stats_.push_back(static_cast<Index>(stats_.size()) - 1);
    if (call_.has_sink(b, i)) {
      const float share = std::exp(call_.sink(h) - lse);
      call_.add_sink_gradient(sum_sink_, b, h, i, share, delta);
    }
  }

  Stats stats(Index b, Index h, Index i) const {
    const Index first = first_stats_[at(rows_before(b, h))];
    if (call_.has("lse_of_first_tile")) return stats_[at(first + i % kTile)];
    Stats found = stats_[at(first + i)];
    if (call_.has("delta_offset_padded") && call_.packed() && b > 0) {
      const Index n = std::min(first + i + 1, static_cast<Index>(stats_.size()) - 1);
      found.delta = stats_[at(n)].delta;
    }
    return found;
  }

  // How many pairs (b, h) with rows come before this one.
  Index rows_before(Index b, Index h) const {
    Index count = 0;
    for (Index e = 0; e < b; ++e) count += call_.rows(e) > 0 ? p_.query_heads : 0;
    return count + h;
  }

  // ---- One tile

  bool skipped(const Tile& tile) const {
    if (outside(call_, tile)) return true;
    const Index rows = call_.query_len(tile.batch);
    if (call_.has("last_query_tile_dropped")) return tile.query_end >= rows && rows > kTile;
    if (call_.has("backward_grid_of_forward")) {  // tiles half as long, and as many of them
      return tile.query_begin >= (rows + 2 * kTile - 1) / (2 * kTile) * kTile;
    }
    if (call_.has("first_query_tile_late") && call_.causal()) {
      return tile.query_begin + call_.diagonal(*call_.band(), tile.batch) < tile.key_begin;
    }
    return false;
  }

  void keys(Index b, Index h, Index first) {
    const Index end = std::min(first + kTile, call_.key_len(b));
    for (Index i = 0; i < call_.query_len(b); i += kTile) {
      const Tile tile = {b, h, i, std::min(i + kTile, call_.query_len(b)), first, end};
      if (skipped(tile)) continue;
      for (Index row = i; row < tile.query_end; ++row) step(tile, row);
    }
  }

  float narrowed(float x) const { return call_.narrow_format() ? call_.in_16_bits(x) : x; }

  void step(const Tile& tile, Index i) {
    const Index b = tile.batch, h = tile.head, head = call_.key_head(b, h);
    const Place place = call_.query_place(b, i);
    const float* const query = q_.row(place.batch, h, place.position);
    const float* const upstream = d_o_.row(place.batch, h, place.position);
    const Stats row = stats(b, h, i);
    if (row.lse == -kInfinity && !call_.has("backward_unguarded")) return;
    float* const dq = sum_dq_.data() + row_index(out_.dq, place, h) * p_.head_dim;
    if (call_.has("dq_of_last_key_tile")) std::fill(dq, dq + p_.head_dim, 0.0f);
    const float scale = call_.scale();
    for (Index j = tile.key_begin; j < tile.key_end; ++j) {
      Place key = call_.key_place(b, j);
      const Index n = row_index(out_.dk, key, head);
      if (call_.has("keys_of_first_part") && j >= 32) key = call_.key_place(b, j % 32);
      const float* const keys = k_.row(key.batch, head, key.position);
      const float* const values = v_.row(key.batch, head, key.position);
      const Score score = tile_score(call_, tile, i, j, query, keys);
      if (!score.seen && !(call_.has("backward_unguarded") && row.lse == -kInfinity)) continue;
      const float p = std::exp(score.value - row.lse);
      const float z = call_.keeps(b, h, i, j) ? call_.keep_factor() : 0;
      float dp = 0;
      for (Index c = 0; c < p_.value_dim; ++c) dp += upstream[c] * values[c];
      float delta = row.delta;
      if (call_.has("delta_of_last_part")) delta = part_delta(b, h, i);
      const float ds = p * (dp * z - delta);
      if (p_.has_bias) call_.add_bias_gradient(sum_bias_, b, h, i, j, ds, score.cap_slope);
      const float dv_weight = narrowed(p) * z;
      const float dx = narrowed(overlaid(i, ds * score.cap_slope)) * scale;
      for (Index d = 0; d < p_.head_dim; ++d) dq[d] += dx * keys[d];
      float* const dk = sum_dk_.data() + n * p_.head_dim;
      const Index pitch = call_.has("dv_pitch_of_keys") ? p_.head_dim : p_.value_dim;
      float* const dv = sum_dv_.data() + n * pitch;
      const bool over = overwrites(tile, h, i);
      for (Index d = 0; d < p_.head_dim; ++d) dk[d] = (over ? 0 : dk[d]) + dx * query[d];
      for (Index c = 0; c < p_.value_dim; ++c) {
        dv[c] = (over ? 0 : dv[c]) + dv_weight * upstream[c];
      }
    }
    tail(tile, query, row, dq);
  }

  // Places of the tile beyond the last key, where K and V hold zeros. Without a mask their weight
  // is exp(0 - LSE), and their share of dQ is 0 times that.
  void tail(const Tile& tile, const float*, const Stats& row, float* dq) const {
    const bool partial = tile.key_end - tile.key_begin < kTile;
    if (partial && call_.has("backward_tail_biased") && p_.has_bias && !call_.unmasked()) {
      for (Index d = 0; d < p_.head_dim; ++d) dq[d] = kNan;
    }
    const bool off_diagonal =
        call_.causal() &&
        tile.query_begin + call_.diagonal(*call_.band(), tile.batch) >= tile.key_end;
    const bool unmasked = call_.has("backward_tail_unmasked") ||
                          (call_.has("backward_tail_masked_on_diagonal") && off_diagonal);
    if (!partial || !unmasked) return;
    const float ds = narrowed(narrowed(std::exp(0 - row.lse)) * (0 - row.delta));
    for (Index d = 0; d < p_.head_dim; ++d) dq[d] += ds * 0;
  }

  // Whether the sums of a key are begun anew here, and lose what was before.
  bool overwrites(const Tile& tile, Index h, Index i) const {
    if (call_.has("group_overwrites")) return i == 0 && h % call_.group() != 0;
    if (call_.has("query_tiles_overwrite")) return i == tile.query_begin && i > 0;
    return false;
  }

  // dS, where the second half of its tile lies over the first.
  float overlaid(Index i, float ds) const {
    return call_.has("ds_overlaid") && p_.head_dim == 64 && i % kTile >= kTile / 2 ? 0 : ds;
  }

  // D of the output of the last 32 keys alone, as if that were all of O.
  float part_delta(Index b, Index h, Index i) const {
    const Place place = call_.query_place(b, i);
    const float* const query = q_.row(place.batch, h, place.position);
    const float* const upstream = d_o_.row(place.batch, h, place.position);
    const Index head = call_.key_head(b, h), keys = call_.key_len(b);
    float top = -kInfinity, sum = 0, delta = 0;
    for (const bool second : {false, true}) {
      for (Index j = (keys - 1) / 32 * 32; j < keys; ++j) {
        const Place key = call_.key_place(b, j);
        const Score s = call_.score(b, h, i, j, query, k_.row(key.batch, head, key.position));
        if (!s.seen) continue;
        if (!second) {
          top = std::max(top, s.value);
          continue;
        }
        const float* const values = v_.row(key.batch, head, key.position);
        float dp = 0;
        for (Index c = 0; c < p_.value_dim; ++c) dp += upstream[c] * values[c];
        sum += std::exp(s.value - top);
        delta += std::exp(s.value - top) * dp;
      }
    }
    return sum > 0 ? delta / sum : 0;
  }

  // ---- Results

  static Index row_index(const attest_tensor& t, Place place, Index h) {
    return (place.batch * t.shape[1] + h) * t.shape[2] + place.position;
  }

  void store() {
    if (call_.has("dq_tail_not_cleared") && p_.head_dim % 32 != 0) stale_tail();
    std::vector<float> dv(sum_dv_.begin(), sum_dv_.begin() + elements(out_.dv));
    store_all(sum_dq_, out_.dq);
    if (call_.has("unseen_keys_unwritten") && call_.band()) {
      store_seen(sum_dk_, out_.dk, p_.head_dim);
      store_seen(dv, out_.dv, p_.value_dim);
    } else {
      store_all(sum_dk_, out_.dk);
      store_all(dv, out_.dv);
    }
    if (p_.has_bias) call_.store_bias_gradient(sum_bias_, out_.dbias);
    if (p_.has_sink) call_.store_sink_gradient(sum_sink_, out_.dsink);
  }

  // Channels from the last multiple of 16 on hold the sums of the tile of queries before too.
  void stale_tail() {
    const std::vector<float> before = sum_dq_;
    const Index rows = elements(out_.dq) / std::max<Index>(p_.head_dim, 1);
    for (Index n = kTile; n < rows; ++n) {
      for (Index d = p_.head_dim / 16 * 16; d < p_.head_dim; ++d) {
        sum_dq_[at(n * p_.head_dim + d)] += before[at((n - kTile) * p_.head_dim + d)];
      }
    }
  }

  // Leaves out the tiles of keys that no query sees.
  void store_seen(const std::vector<float>& values, const attest_tensor& t, Index channels) const {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index j = 0; j < call_.key_len(b); ++j) {
        const Index first = j / kTile * kTile;
        const Tile all = {b,     0,
                          0,     std::max<Index>(call_.query_len(b), 1),
                          first, std::min(first + kTile, call_.key_len(b))};
        if (outside(call_, all)) continue;
        const Place key = call_.key_place(b, j);
        for (Index g = 0; g < p_.key_heads; ++g) {
          for (Index d = 0; d < channels; ++d) {
            View{t}.store(key.batch, g, key.position, d,
                          values[at(row_index(t, key, g) * channels + d)]);
          }
        }
      }
      const Index length = p_.cu_key_lens.data ? call_.key_len(b) : p_.key_len;
      for (Index j = call_.key_len(b); j < length; ++j) {
        for (Index g = 0; g < p_.key_heads; ++g) {
          for (Index d = 0; d < channels; ++d) View{t}.store(b, g, j, d, 0);
        }
      }
    }
  }

  const Call& call_;
  const attest_problem& p_;
  const attest_outputs& out_;
  Loaded q_, k_, v_, o_, d_o_;
  std::vector<Stats> stats_;
  std::vector<Index> first_stats_;
  std::vector<float> sum_dq_, sum_dk_, sum_dv_;
  std::vector<double> sum_bias_, sum_sink_;
};

}  // namespace

void tiled_backward(const Call& call, const attest_outputs& out) { Backward(call, out).run(); }

}  // namespace attest::mutants
