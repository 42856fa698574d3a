// The forward pass in tiles, with an online softmax: FlashAttention-2; O normalised in every step
// as in FlashAttention-1; and keys in parts that are merged by LSE.
//
// Reads top down: which tiles are visited and masked, what a row remembers, one step, the parts,
// their merge.
#include "tests/mutants/tiled.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

namespace attest::mutants {

namespace {

// What the rows of a tile remember of one part of the keys. After any number of keys, a row's
// output so far is o / sum, or with FlashAttention-1 o, and its LSE is top + log(sum).
struct Rows {
  std::vector<float> top, sum, o;
  std::vector<bool> sees;
  bool visited = false;  // any tile

  Rows(Index rows, Index channels, float begin)
      : top(at(rows), begin), sum(at(rows)), o(at(rows * channels)), sees(at(rows)) {}
};

constexpr float kSentinel = -5e4f;
constexpr float kLowest = std::numeric_limits<float>::lowest();

class Forward {
 public:
  Forward(const Call& call, const attest_outputs& out)
      : call_(call),
        p_(call.problem()),
        out_(out),
        base_(call.fault().base()),
        q_(call.inputs().q),
        k_(call.inputs().k),
        v_(call.inputs().v),
        stale_parts_(16, Rows(kTile, p_.value_dim, kNan)),
        stale_top_(at(kTile), -kInfinity) {}

  void run() {
    for (Index b = 0; b < p_.batch; ++b) {
      for (Index h = 0; h < p_.query_heads; ++h) {
        for (Index i = 0; i < call_.rows(b); i += kTile) rows_of_queries(b, h, i);
      }
    }
  }

 private:
  // ---- Weights

  float exponential(float x) const {
    if (call_.has("exp_by_bits") &&
        !std::isnan(x)) {  // Schraudolph: the exponent field of a float, 3 % off
      const float scaled = std::clamp(x * 1.44269504f, -126.0f, 126.0f);
      const float whole = std::floor(scaled);
      return std::ldexp(1 + (scaled - whole), static_cast<int>(whole));
    }
    if (call_.has("exp_in_16_bits")) return call_.in_16_bits(std::exp(x));
    return base_ == Base::fa2 ? std::exp2(x * 1.44269504f) : std::exp(x);
  }

  // The weight as the product with V takes it.
  float rounded(float p, float x) const {
    if (call_.has("exp_off_in_output")) {  // as of a polynomial of degree 2
      const float octaves = x * 1.44269504f;
      p *= 1 + 1e-3f * std::sin(6.2831853f * (octaves - std::floor(octaves)));
    }
    if (call_.has("exp_high_in_output") && x < 0) p *= 1.001f;
    if (call_.has("weights_4_digits")) {
      const float cut = p * 0x1.00001p+20f;
      return cut - (cut - p);
    }
    if (call_.has("weights_in_e4m3") && call_.inputs().v_scale.data) {
      return static_cast<float>(round_to(DType::e4m3, p));
    }
    return call_.narrow_format() || call_.has("weights_16_bits") ? call_.in_16_bits(p) : p;
  }

  // ---- One tile

  void load(const Tile& tile) {
    const Index b = tile.batch, head = call_.key_head(b, tile.head);
    const Index last = call_.key_len(b) - 1;
    keys_.resize(at(kTile));
    values_.resize(at(kTile));
    for (Index n = 0; n < tile.key_end - tile.key_begin; ++n) {
      Index j = tile.key_begin + n, value = j;
      if (call_.has("first_key_of_tile_before") && n == 0 && j >= kTile) j -= kTile;
      if (call_.has("last_value_of_tile_after") && n == kTile - 1)
        value = std::min(j + kTile, last);
      if (call_.has("value_tiles_of_channels") && p_.query_len == 1) {
        value = std::min(tile.key_begin / kTile * p_.value_dim + n, last);
      }
      const Place key = call_.key_place(b, j), place = call_.value_place(b, value);
      keys_[at(n)] = k_.row(key.batch, head, key.position);
      values_[at(n)] = v_.row(place.batch, head, place.position);
    }
  }

  // The score of a place in the tile beyond the last key, where K and V hold zeros.
  float tail_score(const Tile& tile) const {
    const bool whole_length = tile.key_end == call_.key_len(tile.batch);
    if (call_.has("key_tail_uninitialised")) return kNan;
    if (call_.has("tail_unmasked") && call_.unmasked()) return 0;
    if (call_.has("tail_unmasked_under_a_table") && call_.node_of(ATTEST_MASK_DENSE)) return 0;
    if (call_.has("tail_unmasked_in_pages") && call_.paged()) return 0;
    if (call_.has("tail_capped") && p_.softcap > 0) return static_cast<float>(-p_.softcap);
    if (call_.has("tail_capped_without_mask") && p_.softcap > 0 && tile.key_begin > 0 &&
        call_.unmasked()) {
      return static_cast<float>(-p_.softcap);
    }
    if (call_.has("tail_unmasked_in_last_part") && whole_length) return 0;
    return -kInfinity;
  }

  void scores_of(const Tile& tile, Index i, const float* query, std::vector<float>& s, Rows& rows,
                 Index r) const {
    const Index n = tile.key_end - tile.key_begin;
    s.assign(at(kTile), 0);
    for (Index c = 0; c < kTile; ++c) {
      if (c >= n) {
        s[at(c)] = tail_score(tile);
        continue;
      }
      const Score score = tile_score(call_, tile, i, tile.key_begin + c, query, keys_[at(c)]);
      s[at(c)] = score.value;
      if (score.seen) rows.sees[at(r)] = true;
      if (!score.seen && call_.has("masked_by_sentinel")) s[at(c)] = kSentinel;
      if (!score.seen && call_.has("masked_by_lowest")) s[at(c)] = kLowest;
      if (!score.seen && call_.has("lowest_added_twice")) {
        const bool by_bias =
            p_.has_bias && call_.bias(tile.batch, tile.head, i, tile.key_begin + c) == -kInfinity;
        const bool by_mask = !call_.sees(tile.batch, tile.head, i, tile.key_begin + c);
        s[at(c)] = by_bias && by_mask ? -kInfinity : kLowest;
      }
    }
  }

  void step(const Tile& tile, Index i, Rows& rows) {
    const Index r = i - tile.query_begin;
    const Place place = call_.query_place(tile.batch, i);
    const bool first_seen = !rows.sees[at(r)];
    std::vector<float>& s = scores_;
    scores_of(tile, i, q_.row(place.batch, tile.head, place.position), s, rows, r);
    const Index places =
        tile.key_end - tile.key_begin < kTile ? kTile : tile.key_end - tile.key_begin;

    const float old = rows.top[at(r)];
    const float tile_top =
        *std::max_element(s.begin(), s.end(), [](float x, float y) { return x < y; });
    float top = std::max(old, tile_top);
    const bool few = call_.few_queries(tile.batch);
    const bool keeps = call_.has("first_maximum_kept_for_few_queries") && !p_.has_alibi;
    if (keeps && few && old > -kInfinity) top = old;
    if (call_.has("maximum_of_the_tile") && tile_top > -kInfinity) top = tile_top;
    if (call_.has("rescaled_too_rarely") && old > -kInfinity && top - old < 16) top = old;
    const bool unguarded = call_.has("rescale_unguarded") ||
                           (call_.has("first_rows_unguarded") && tile.query_begin == 0) ||
                           (call_.has("few_queries_unguarded") && few) ||
                           call_.has("lowest_added_twice");
    float alpha = old == -kInfinity && !unguarded ? 0 : exponential(old - top);
    if (call_.has("scratch_of_one_tile") && old == -kInfinity) alpha = 1;
    if (call_.has("rescale_16_bits")) alpha = call_.in_16_bits(alpha);
    if (call_.has("rescale_by_crude_exp") && alpha < 1) alpha *= 1.01f;

    float sum = 0;
    std::vector<float>& output = output_;
    output.assign(at(p_.value_dim), 0);
    const attest_mask* const m = call_.band();
    const bool no_product =
        call_.has("products_skip_first_tile") && m && m->left != ATTEST_UNBOUNDED && first_seen;
    for (Index c = 0; c < places; ++c) {
      const float x = s[at(c)] - top;
      const bool dead = s[at(c)] == -kInfinity && !call_.has("weights_unguarded") &&
                        !call_.has("lowest_added_twice");
      const float p = dead ? 0 : exponential(x);
      const bool exists = c < tile.key_end - tile.key_begin;
      if (!(call_.has("tail_left_out_of_sum") && tile.key_end - tile.key_begin < kTile)) sum += p;
      if (!exists) {
        if (call_.has("value_tail_uninitialised")) std::fill(output.begin(), output.end(), kNan);
        continue;
      }
      if (p == 0 || no_product) continue;
      Index column = tile.key_begin + c;
      if (call_.has("keep_of_first_tile")) column = c;
      if (!call_.keeps(tile.batch, tile.head, i, column)) continue;
      const float weight = rounded(p, x);
      const float* const value = values_[at(c)];
      for (Index d = 0; d < p_.value_dim; ++d) output[at(d)] += weight * value[d];
    }
    absorb(rows, r, alpha, top, sum, output);
  }

  void absorb(Rows& rows, Index r, float alpha, float top, float sum,
              const std::vector<float>& output) const {
    const float old_sum = rows.sum[at(r)];
    rows.sum[at(r)] = old_sum * (call_.has("sum_not_rescaled") ? 1 : alpha) + sum;
    if (call_.has("row_sum_16_bits")) rows.sum[at(r)] = call_.in_16_bits(rows.sum[at(r)]);
    const bool same_top = rows.top[at(r)] == top;
    rows.top[at(r)] = top;
    float* const o = rows.o.data() + r * p_.value_dim;
    if (base_ == Base::fa1) {
      const float new_sum = rows.sum[at(r)];
      if (new_sum == 0) return;
      float kept = alpha * old_sum / new_sum;
      if (call_.has("old_sum_missing")) kept = alpha / new_sum;
      if (call_.has("not_rescaled_at_same_maximum") && same_top) kept = 1;
      const float divisor = call_.has("divided_by_sum_of_tile") && sum > 0 ? sum : new_sum;
      for (Index d = 0; d < p_.value_dim; ++d) o[d] = o[d] * kept + output[at(d)] / divisor;
      return;
    }
    const float kept = call_.has("output_not_rescaled") ? 1 : alpha;
    for (Index d = 0; d < p_.value_dim; ++d) {
      // Half the channels, as where a warp's share of them is missed.
      const float factor =
          call_.has("half_the_output_not_rescaled") && d >= p_.value_dim / 2 ? 1 : kept;
      o[d] = o[d] * factor + output[at(d)];
      if (call_.has("output_sums_16_bits")) o[d] = call_.in_16_bits(o[d]);
    }
  }

  bool has_no_bias(const Tile& tile) const {
    if (!p_.has_bias) return false;
    for (Index i = tile.query_begin; i < tile.query_end; ++i) {
      for (Index j = tile.key_begin; j < tile.key_end; ++j) {
        if (call_.bias(tile.batch, tile.head, i, j) != 0) return false;
      }
    }
    return true;
  }

  // All tiles of the keys from `begin` to `end`.
  Rows attend(Index b, Index h, Index first, Index last, Index begin, Index end) {
    const bool finite = call_.has("masked_by_sentinel") || call_.has("masked_by_lowest");
    float start = !finite ? -kInfinity : call_.has("masked_by_sentinel") ? kSentinel : kLowest;
    if (call_.has("maximum_begins_at_0")) start = 0;
    Rows rows(kTile, p_.value_dim, start);
    if (call_.has("scratch_of_one_tile") && call_.rows(b) <= kTile && h > 0) {
      rows.o = stale_parts_[0].o;
    }
    for (Index j = begin; j < end; j += kTile) {
      const Tile tile = {b, h, first, last, j, std::min(j + kTile, end)};
      if (outside(call_, tile) || (call_.has("zero_bias_skipped") && has_no_bias(tile))) continue;
      rows.visited = true;
      load(tile);
      for (Index i = first; i < last; ++i) {
        if (i < call_.query_len(b)) step(tile, i, rows);
      }
      const bool none = std::none_of(rows.sees.begin(), rows.sees.end(), [](bool x) { return x; });
      if (call_.has("stops_at_a_hidden_tile_of_a_table") && none && call_.few_queries(b)) break;
    }
    return rows;
  }

  // ---- Parts, and their merge

  struct Part {
    float lse = -kInfinity, sum = 0;
    std::vector<float> o;  // normalised
  };

  Part part_of(const Rows& rows, Index r) const {
    Part part;
    part.sum = rows.sum[at(r)];
    part.o.assign(rows.o.begin() + r * p_.value_dim, rows.o.begin() + (r + 1) * p_.value_dim);
    if (part.sum == 0) return part;
    if (base_ != Base::fa1) {
      for (float& x : part.o) x /= part.sum;
    }
    part.lse = rows.top[at(r)] + std::log(part.sum);
    if (call_.has("part_of_diagonal_unscaled") && call_.causal()) {
      part.lse = rows.top[at(r)] / call_.scale() + std::log(part.sum);
    }
    if (call_.has("lse_without_maximum")) part.lse = std::log(part.sum);
    if (call_.has("parts_in_base_2")) part.lse *= 1.44269504f;
    if (call_.has("part_lse_16_bits")) part.lse = call_.in_16_bits(part.lse);
    for (float& x : part.o) {
      if (call_.has("parts_16_bits")) x = call_.in_16_bits(x);
    }
    return part;
  }

  Part merge(std::vector<Part> parts, bool few) const {
    const auto n = static_cast<Index>(parts.size());
    if (n == 1) return parts[0];
    Index merged = n;
    if (call_.has("merges_as_many_as_channels")) merged = std::min(n, p_.value_dim);
    if (call_.has("merges_in_fours") && n >= 4) merged = n / 4 * 4;
    if (call_.has("first_part_overwritten")) parts[0].o = parts.back().o;
    if (call_.has("empty_parts_have_lse_0")) {
      for (Part& part : parts) part.lse = part.sum == 0 ? 0 : part.lse;
    }
    float top = -kInfinity;
    for (Index s = 0; s < merged; ++s) {
      const float lse = parts[at(s)].lse;
      if (std::isnan(lse) || lse > top) top = lse;
    }
    Part result;
    result.o.assign(at(p_.value_dim), 0);
    if (top == -kInfinity && !call_.has("merge_unguarded")) return result;
    if (call_.has("merged_without_maximum_for_few_queries") && few && !p_.has_alibi) top = 0;
    for (Part& part : parts) {
      const bool finite = call_.has("hidden_parts_finite_for_few_queries") && !p_.has_alibi;
      if (finite && few && part.sum == 0) part.lse = -1000;
    }
    if (call_.has("first_part_decides_under_a_bias") && few && p_.has_bias && parts[0].sum == 0) {
      return result;
    }
    for (Index s = 0; s < merged; ++s) {
      const Part& part = parts[at(s)];
      float weight = std::exp(part.lse - top);
      if (call_.has("parts_of_one_tile_not_rescaled") && n <= 4) weight = part.sum;
      if (call_.has("parts_weigh_the_same")) weight = part.sum > 0;
      const bool after_hidden = s > 0 && parts[at(s - 1)].sum == 0;
      const bool table =
          call_.node_of(ATTEST_MASK_DENSE) || call_.node_of(ATTEST_MASK_BLOCK_SPARSE);
      if (call_.has("merge_in_turn_unguarded") && few && table && after_hidden) weight = kNan;
      result.sum += weight;
      for (Index d = 0; d < p_.value_dim; ++d) result.o[at(d)] += weight * part.o[at(d)];
    }
    for (float& x : result.o) x /= result.sum;
    result.lse = top + std::log(result.sum);
    return result;
  }

  // The sink joins when all keys are done.
  void join_sink(Part& whole, Index b, Index h, Index i, Index parts, float stale_top, float top) {
    if (!call_.has_sink(b, i)) return;
    float sink = call_.sink(h);
    if (call_.has("sink_in_every_part")) sink += std::log(static_cast<float>(parts));
    const bool alone = p_.query_len == 1 && (call_.group() == 4 || call_.group() == 8);
    if (call_.has("sink_twice_in_groups_of_4_and_8") && alone && call_.narrow_format() &&
        parts > 1) {
      sink += std::log(2.0f);
    }
    if (call_.has("sink_by_stale_maximum") && i >= kTile) sink += top - stale_top;
    const float larger = std::max(whole.lse, sink);
    const float keys = std::exp(whole.lse - larger), own = std::exp(sink - larger);
    for (float& x : whole.o) x *= keys / (keys + own);
    whole.lse = larger + std::log(keys + own);
  }

  // What a worker does that nobody waits for.
  static void arrive(const Rows& computed, Rows& rows) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::copy(computed.top.begin(), computed.top.end(), rows.top.begin());
    std::copy(computed.sum.begin(), computed.sum.end(), rows.sum.begin());
    std::copy(computed.o.begin(), computed.o.end(), rows.o.begin());
  }

  // Of 32 keys or more, and no more than 16 of them.
  Index part_count(Index keys) const {
    for (Index b = 0; call_.has("parts_of_longest") && b < p_.batch; ++b) {
      keys = std::max(keys, call_.key_len(b));
    }
    const Index n = std::clamp<Index>((keys + 31) / 32, 1, 16);
    const Index tiles = p_.batch * p_.query_heads;
    return call_.has("parts_of_occupancy") ? std::clamp<Index>(16 / tiles, 1, n) : n;
  }

  void rows_of_queries(Index b, Index h, Index first) {
    const Index last = std::min(first + kTile, call_.rows(b));
    const Index keys = call_.key_len(b);
    const Index n = base_ == Base::split ? part_count(keys) : 1;
    const Index chunk = (keys + n - 1) / n;
    std::vector<Rows> parts;
    std::thread late;
    for (Index s = 0; s < n; ++s) {
      const Index begin = std::min(s * chunk, keys);
      Index end = std::min(begin + chunk, keys);
      if (call_.has("parts_end_with_tiles")) end = std::min(begin + (chunk + 15) / 16 * 16, keys);
      parts.push_back(attend(b, h, first, last, begin, end));
      const bool any =
          std::any_of(parts.back().sees.begin(), parts.back().sees.end(), [](bool x) { return x; });
      if (call_.has("empty_parts_stale") && !any && n > 1) parts.back() = stale_parts_[at(s)];
      const bool too_soon = call_.has("merged_before_join") && call_.threads() > 1 && n > 1;
      if (too_soon && s == n - 1) {
        std::swap(parts.back(), stale_parts_[at(s)]);
        late = std::thread(arrive, std::cref(stale_parts_[at(s)]), std::ref(parts.back()));
      } else {
        stale_parts_[at(s)] = parts.back();
      }
    }
    bool visited = false;
    for (const Rows& rows : parts) visited = visited || rows.visited;
    if (call_.has("tiles_without_keys_unwritten") && !visited) return;
    for (Index i = first; i < last; ++i) finish(b, h, i, i - first, parts, visited);
    if (late.joinable()) late.join();
    if (!parts.empty()) stale_top_ = parts[0].top;
  }

  void finish(Index b, Index h, Index i, Index r, const std::vector<Rows>& rows, bool visited) {
    Index row = r;
    if (call_.has("parts_of_padded_row") && call_.packed() && rows.size() > 1) {
      const Index shifted = r + b * p_.query_len - call_.packed_start(b);
      row = shifted % std::max<Index>(std::min(kTile, call_.query_len(b)), 1);
    }
    std::vector<Part> parts;
    bool sees = false;
    for (const Rows& part : rows) {
      parts.push_back(part_of(part, row));
      sees = sees || part.sees[at(row)];
    }
    if (call_.has("merge_scratch_of_first_row") && parts.size() > 1) {
      parts.back().lse = part_of(rows.back(), 0).lse;
    }
    Part whole = merge(std::move(parts), call_.few_queries(b));
    if (call_.has("few_queries_unguarded") && !sees) {
      whole = Part();
      whole.o.assign(at(p_.value_dim), 0);
    }
    join_sink(whole, b, h, i, static_cast<Index>(rows.size()), stale_top_[at(r)],
              rows[0].top[at(r)]);
    for (float& x : whole.o) x *= call_.keep_factor();
    if (call_.has("accumulator_uninitialised") && !visited) {
      std::fill(whole.o.begin(), whole.o.end(), kNan);
    }
    call_.store_o(out_, b, h, i, whole.o.data());
    call_.store_lse(out_, b, h, i, whole.lse, sees);
  }

  const Call& call_;
  const attest_problem& p_;
  const attest_outputs& out_;
  Base base_;
  Loaded q_, k_, v_;
  std::vector<const float*> keys_, values_;  // of the tile
  std::vector<float> scores_, output_;       // of a row and the tile
  std::vector<Rows> stale_parts_;            // of the tile of queries before
  std::vector<float> stale_top_;
};

}  // namespace

void tiled_forward(const Call& call, const attest_outputs& out) {
  if (call.problem().dropout == ATTEST_DROPOUT_GENERATED) call.publish_keep(out.keep);
  Forward(call, out).run();
}

}  // namespace attest::mutants
