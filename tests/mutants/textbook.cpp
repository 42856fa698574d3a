// The textbook, row by row in f32: scores, softmax, P V, and the gradients.
#include <algorithm>
#include <cmath>

#include "tests/mutants/call.h"

namespace attest::mutants {
namespace {

struct Row {
  std::vector<char> seen;              // whether; not of bits, which take longer
  std::vector<float> p, z, cap_slope;  // the weight; keep/(1-p) of dropout; the slope of the cap
  float lse = -kInfinity, top = -kInfinity;  // top: the maximum
  float sink_share = 0;
  bool any_seen = false;
};

Index longest_key(const Call& call) {
  Index longest = 0;
  for (Index b = 0; b < call.problem().batch; ++b) longest = std::max(longest, call.key_len(b));
  return longest;
}

// Sums in another order, where a promise is broken that they aren't.
bool backwards(const Call& call, Index b) {
  const attest_problem& p = call.problem();
  const bool window = call.band() && call.band()->left != ATTEST_UNBOUNDED;
  return (call.has("batch_variant") && p.batch > 1) ||
         (call.has("packed_variant") && call.packed()) ||
         (call.has("paged_variant") && call.paged()) ||
         (call.has("variant_by_padding") && p.key_len > 128 && call.key_len(b) < p.key_len) ||
         (call.has("variant_by_rows") && p.query_len < 32) ||
         (call.has("decode_variant") && p.query_len == 1) ||
         (call.has("batch_variant_in_window") && p.batch > 1 && window) ||
         (call.has("batch_variant_wide") && p.batch > 1 && p.head_dim > 256) ||
         (call.has("variant_by_longest_query_packed") && call.packed() && p.query_len > 60) ||
         (call.has("variant_by_longest_query_backward") && call.backward() && p.query_len > 100) ||
         (call.has("variant_by_longest_key_paged") && call.paged() && longest_key(call) > 250) ||
         (call.has("variant_by_tokens") && call.packed() && call.packed_start(p.batch) > 300) ||
         (call.has("variant_by_number") && p.batch > 20) ||
         (call.has("variant_by_number_of_decoded") && p.batch > 6 && p.query_len == 1 &&
          longest_key(call) > 200) ||
         (call.has("variant_by_number_of_packed") && p.batch > 4 && call.packed() &&
          longest_key(call) > 100) ||
         (call.has("variant_beside_longer_keys_packed") && call.packed() && call.key_len(b) > 64 &&
          call.key_len(b) <= 128 && longest_key(call) > 128) ||
         (call.has("thread_variant") && call.threads() > 1);
}

Row softmax_row(const Call& call, const Loaded& q, const Loaded& k, Index b, Index h, Index i) {
  const Index keys = call.key_len(b);
  Row row{.seen = std::vector<char>(at(keys)),
          .p = std::vector<float>(at(keys)),
          .z = std::vector<float>(at(keys)),
          .cap_slope = std::vector<float>(at(keys), 1.0f)};
  const Place place = call.query_place(b, i);
  const Index head = call.key_head(b, h);
  const bool no_maximum =
      call.has("maximum_is_0") || (call.has("backward_without_maximum") && call.backward() &&
                                   call.problem().dropout != ATTEST_DROPOUT_NONE);
  float top = no_maximum ? 0 : -kInfinity;
  for (Index j = 0; j < keys; ++j) {
    const Place key = call.key_place(b, j);
    const Score score = call.score(b, h, i, j, q.row(place.batch, h, place.position),
                                   k.row(key.batch, head, key.position));
    row.cap_slope[at(j)] = score.cap_slope;
    row.seen[at(j)] = score.seen;
    if (!score.seen) continue;
    if (call.has("nan_scores_left_out") && std::isnan(score.value)) {
      row.seen[at(j)] = false;
      continue;
    }
    row.any_seen = true;
    row.p[at(j)] = score.value;
    if (!no_maximum) top = std::max(top, score.value);
  }
  const bool has_sink = call.has_sink(b, i);
  float sink = has_sink ? call.sink(h) : -kInfinity;
  if (call.has("stats_of_lower_heads") && h >= 32) {
    return softmax_row(call, q, k, b, h - 32, i);
  }
  if (top == -kInfinity && call.has("sink_row_empty")) return row;
  top = std::max(top, sink);
  const bool unguarded =
      call.has("empty_row_nan") || (call.has("minus_inf_row_nan") && call.problem().has_bias);
  if (top == -kInfinity && !unguarded) return row;
  float sum = has_sink ? std::exp(call.has("sink_raw") ? sink : sink - top) : 0;
  if (call.has("sink_per_split") && keys > 1) sum *= 2;
  if (call.has("sink_per_128_keys") && keys > 128) {
    sum *= static_cast<float>((keys + 127) / 128);
  }
  const float sink_weight = sum;
  Index kept = 0, seen = 0;
  const bool reversed = backwards(call, b);
  const bool fused = call.has("fma_exp"), drops_first = call.has("dropout_before_softmax");
  for (Index n = 0; n < keys; ++n) {
    const Index j = reversed ? keys - 1 - n : n;
    if (!row.seen[at(j)]) {
      row.p[at(j)] = 0;
      continue;
    }
    constexpr float kLog2E = 1.44269504f;
    const float shifted = fused ? std::exp2(std::fma(row.p[at(j)], kLog2E, -(top * kLog2E)))
                                : std::exp(row.p[at(j)] - top);
    row.p[at(j)] = shifted;
    const bool keep = call.keeps(b, h, i, j);
    row.z[at(j)] = keep;
    ++seen;
    kept += keep;
    if (drops_first && !keep) continue;
    sum += row.p[at(j)];
  }
  if (call.has("sum_of_8_lanes")) {  // the sum of the row beside it too
    sum *= i % 2 == 0 && i + 1 == call.query_len(b) ? 1 : 2;
  }
  for (float& p : row.p) p /= sum;
  if (call.has("uniform_weights") && call.packed() && call.unmasked()) {
    std::fill(row.p.begin(), row.p.end(), 1 / static_cast<float>(keys));
  }
  const bool drops = call.problem().dropout != ATTEST_DROPOUT_NONE;
  const float realised = static_cast<float>(std::max<Index>(seen, 1)) / static_cast<float>(kept);
  const float factor = call.has("dropout_realised_rate") ? realised : call.keep_factor();
  for (float& z : row.z) z = drops && z != 0 ? factor : z;
  if (unguarded && top == -kInfinity) {
    row.seen.assign(row.seen.size(), true);
    row.z.assign(row.z.size(), 1.0f);
  }
  row.top = top;
  row.lse = top + std::log(call.has("lse_without_sink") ? sum - sink_weight : sum);
  row.sink_share = sink_weight / sum;
  return row;
}

// What pads a tile counts where exp(0 - LSE), or exp without the maximum, overflows.
bool is_low(const Row& row) { return row.any_seen && row.lse < -88.7f; }
bool is_high(const Row& row) { return row.lse > 88.7f; }

// Of a row's own gradient, what calls lose that are large in one way.
bool loses_dq(const Call& call, Index b, Index h, Index i) {
  const attest_problem& p = call.problem();
  const Index token = call.packed() ? call.query_place(b, i).position : 0;
  return (call.has("dq_of_wide_heads_in_batches") && p.batch > 3 && p.head_dim > 80 && i >= 128) ||
         (call.has("dq_of_first_1000_tokens") && p.head_dim >= 64 && token >= 1000) ||
         (call.has("dq_of_131072_packed_rows") && token >= 131072) ||
         (call.has("dq_of_65535_heads") && h >= 65535) ||
         (call.has("dq_of_65535_elements") && b >= 65535);
}
bool loses_dk(const Call& call, Index b, Index i, Index j) {
  const attest_problem& p = call.problem();
  const bool narrower = p.value_dim < p.head_dim && p.value_dim > 64;
  const Index token = call.packed() ? call.key_place(b, j).position : 0;
  return (call.has("dk_of_narrower_values_in_batches") && p.batch > 3 && narrower && j >= 128) ||
         (call.has("dk_of_first_2000_tokens") && p.head_dim >= 64 && token >= 2000) ||
         (call.has("dk_of_65535_rows") && i >= 65535) ||
         (call.has("dk_of_long_squares") && call.is_second_tile_of_long_square(i, j)) ||
         (call.has("dk_of_packed_rows_beyond_512") && call.packed() && p.head_dim <= 64 &&
          i >= 512 && j >= 512) ||
         (call.has("dk_of_wide_heads_beyond_256") && p.head_dim > 80 && i >= 64 && j >= 256);
}
bool loses_dv(const Call& call, Index b, Index h, Index j) {
  const attest_problem& p = call.problem();
  return (call.has("dv_of_wide_packed_heads") && call.packed() && p.batch > 3 && p.head_dim > 200 &&
          j >= 128) ||
         (call.has("dv_of_wide_heads_in_5_elements") && p.head_dim > 160 && b >= 4 && j >= 128) ||
         (call.has("group_overwrites_beyond_64_heads") && h >= 64 && h % call.group() != 0);
}

// Whether some 128 keys that the row sees nothing of come before one that it sees.
bool passes_a_hidden_part(const Row& row) {
  bool passed = false;
  for (std::size_t first = 0; first + 128 <= row.seen.size(); first += 128) {
    const auto begin = row.seen.begin() + static_cast<std::ptrdiff_t>(first);
    const bool seen = std::find(begin, begin + 128, true) != begin + 128;
    if (passed && seen) return true;
    passed |= !seen;
  }
  return false;
}

int calls() {
  static int count = 0;
  return ++count;
}

// The last bits that a fault stirs in one element of O.
float stirred(const Call& call, const Row& row, const Loaded& v, Index b, Index h, Index c,
              float sum) {
  const auto last_value = [&] {
    const Place key = call.key_place(b, call.key_len(b) - 1);
    return v.row(key.batch, call.key_head(b, h), key.position)[c];
  };
  const bool last_hidden = !row.seen.empty() && !row.seen.back();
  const bool stirs = (call.has("random") && calls() % 3 == 0) ||
                     (call.has("small_scales") && call.problem().scale < 0.1) ||
                     (call.has("stirred_by_hidden") && last_hidden && last_value() < 0) ||
                     (call.has("stirred_by_hidden_beyond_4096") && row.seen.size() > 4096 &&
                      last_hidden && last_value() < 0);
  if (!stirs) return sum;
  // By one bit of the format.
  if (!call.narrow_format()) return std::nextafter(sum, kInfinity);
  return sum * (call.dtype() == DType::f16 ? 1 + 0x1p-10f : 1 + 0x1p-7f);
}

}  // namespace

void textbook_forward(const Call& call, const attest_outputs& out) {
  const attest_problem& p = call.problem();
  const attest_inputs& in = call.inputs();
  if (call.has("zeros")) {
    const std::vector<float> zeros(at(p.value_dim));
    call.for_each_row([&](Index b, Index h, Index i) {
      call.store_o(out, b, h, i, zeros.data());
      call.store_lse(out, b, h, i, 0, true);
    });
    return;
  }
  if (p.dropout == ATTEST_DROPOUT_GENERATED) call.publish_keep(out.keep);
  const Loaded q(in.q), k(in.k), v(in.v);
  call.for_each_row([&](Index b, Index h, Index i) {
    const Row row = softmax_row(call, q, k, b, h, i);
    const bool leaks =
        call.has("leaks_hidden") || (call.has("leaks_masked_nan") && i < call.query_len(b));
    const bool no_channels = call.has("no_channels_zero") && p.head_dim == 0;
    std::vector<float> sums(at(p.value_dim));
    const bool padded = !p.cu_key_lens.data && !call.paged();
    const Index keys = call.key_len(b);
    const Index slack = call.has("page_slack_times_0") && call.paged() && keys > 0
                            ? (keys + p.page_size - 1) / p.page_size * p.page_size
                            : keys;
    const Index visited = call.has("leaks_hidden") && padded ? p.key_len : slack;
    const bool reversed = backwards(call, b);
    const Index head = call.key_head(b, h);
    const bool other_pitch = call.has("value_pitch_of_keys");
    for (Index n = 0; n < visited; ++n) {
      const Index j = reversed ? keys - 1 - n : n;
      const bool exists = j < keys;
      if (!(exists && row.seen[at(j)]) && !leaks && exists) continue;
      const Place key = call.value_place(b, j);
      const float weight = exists ? row.p[at(j)] * row.z[at(j)] : 0;
      const float* value = v.row(key.batch, head, key.position);
      std::vector<float> misplaced;
      if (other_pitch) {
        misplaced = v.row_of_pitch(key.batch, head, key.position, p.head_dim);
        value = misplaced.data();
      }
      for (Index c = 0; c < p.value_dim; ++c) {
        if (call.has("nan_values_as_0") && std::isnan(value[c])) continue;
        sums[at(c)] += weight * value[c];
      }
    }
    for (Index c = 0; c < p.value_dim; ++c) {
      sums[at(c)] = no_channels ? 0 : stirred(call, row, v, b, h, c, sums[at(c)]);
    }
    if (call.has("hidden_part_counts_in_odd_groups") && call.paged() && call.group() > 4 &&
        call.few_queries(b) && passes_a_hidden_part(row)) {
      for (float& sum : sums) sum *= 0.9f;
    }
    if (call.has("rows_of_later_heads_16_bits") && call.packed() && h > 0 &&
        call.query_place(b, i).position > 65535) {
      std::fill(sums.begin(), sums.end(), 0.0f);
    }
    if (call.has("high_scores_at_a_tail") && is_high(row) && keys % 64 == 63) sums[0] = kNan;
    if (call.has("no_keys_nan") && keys == 0) std::fill(sums.begin(), sums.end(), kNan);
    if (call.has("decode_channels_of_keys") && p.query_len == 1 && keys > 128) {
      for (Index c = p.head_dim; c < p.value_dim; ++c) sums[at(c)] *= 0.5f;
    }
    if (call.has("clamped_if_empty") && !row.any_seen && i < call.query_len(b)) {
      std::fill(sums.begin(), sums.end(), -65504.0f);
    }
    if (call.has("negative_key_count_unwritten") && call.causal() &&
        i + 1 + call.diagonal(*call.band(), b) < 0) {
      return;
    }
    if (call.has("fourth_worker_lost") && call.threads() > 3 && i == p.query_len - 1) {
      std::fill(sums.begin(), sums.end(), 0.0f);
    }
    call.store_o(out, b, h, i, sums.data());
    const auto last = std::find(row.seen.rbegin(), row.seen.rend(), true);
    const float last_p = last == row.seen.rend() ? 0 : row.p[at(row.seen.rend() - last - 1)];
    call.store_lse(out, b, h, i, row.lse, row.any_seen, row.top, last_p);
  });
}

void textbook_backward(const Call& call, const attest_outputs& out) {
  const attest_problem& p = call.problem();
  const attest_inputs& in = call.inputs();
  const Loaded q(in.q), k(in.k), v(in.v), o(in.o), d_o(in.d_o);
  const View dq{out.dq};
  // Of each key head, channels side by side; places as in K and V.
  std::vector<float> sum_dk(at(elements(out.dk))), sum_dv(at(elements(out.dv)));
  std::vector<double> sum_bias(p.has_bias ? at(elements(in.bias)) : 0);
  std::vector<double> sum_sink(at(p.query_heads));
  const float scale = call.scale();
  const float dq_scale = call.has("dq_without_scale") ? 1 : scale;
  const float dk_scale = call.has("dk_scaled_twice") ? scale * scale : scale;
  call.for_each_row([&](Index b, Index h, Index i) {
    const Place place = call.query_place(b, i);
    if (call.has("zero_gradients")) {
      for (Index d = 0; d < p.head_dim; ++d) dq.store(place.batch, h, place.position, d, 0);
      return;
    }
    if (call.has("padding_rows_unwritten") && i >= call.query_len(b)) return;
    const Row row = softmax_row(call, q, k, b, h, i);
    const float* query = q.row(place.batch, h, place.position);
    const float* upstream = d_o.row(place.batch, h, place.position);
    const Index lower = call.has("heads_beyond_16_backward") && h >= 16 ? h - 16 : h;
    const float delta = call.delta(o, d_o, b, lower, i);
    const bool lost = (call.has("dsink_lost_in_minus_inf_rows") && p.has_bias && !row.any_seen) ||
                      (call.has("dsink_of_65535_rows") && i >= 65535);
    if (!lost) call.add_sink_gradient(sum_sink, b, h, i, row.sink_share, delta);
    std::vector<float> row_dq(at(p.head_dim));
    const bool last_of_group = (h + 1) % call.group() == 0;
    const Index head = call.key_head(b, h);
    for (Index j = 0; j < call.key_len(b); ++j) {
      const bool times_0 = call.has("nan_query_times_0") && i < call.query_len(b);
      if (!row.seen[at(j)] && !times_0) continue;
      const Place key = call.key_place(b, j);
      const float* key_values = k.row(key.batch, head, key.position);
      const float* value = v.row(key.batch, head, key.position);
      const Index channels =
          call.has("dp_of_fewer_channels") ? std::min(p.head_dim, p.value_dim) : p.value_dim;
      float dp = 0;
      for (Index c = 0; c < channels; ++c) dp += upstream[c] * value[c];
      float z = row.z[at(j)];
      if (call.has("dropout_not_scaled_backward") && z != 0) z = 1;
      if (call.has("dropout_left_out_of_ds")) z = 1;
      if (call.has("dropout_left_out_of_wide_packed_ds") && call.packed() && p.head_dim >= 64)
        z = 1;
      float ds = row.p[at(j)] * (dp * z - delta);
      if (!row.seen[at(j)]) ds = 0 * delta;
      if (call.has("dropped_p_in_ds")) ds = row.p[at(j)] * row.z[at(j)] * (dp - delta);
      const bool last = j + 1 == call.key_len(b);
      const Index rest = call.key_len(b) % 32;
      const bool bias_lost =
          (call.has("low_scores_of_a_biased_tail") && is_low(row) && rest == 1 && last) ||
          (call.has("dbias_of_65535_rows") && i >= 65535);
      if (p.has_bias && !bias_lost) {
        call.add_bias_gradient(sum_bias, b, h, i, j, ds, row.cap_slope[at(j)]);
      }
      ds *= row.cap_slope[at(j)];
      if (call.has("low_scores_of_a_biased_half_tile") && is_low(row) && p.has_bias &&
          call.key_len(b) % 128 == 64) {
        ds = kNan;
      }
      if (call.has("low_scores_of_one_query") && is_low(row) && p.query_len == 1 && rest == 0) {
        ds = kNan;
      }
      if (!(call.has("dq_without_keys_beyond_65535") && j >= 65535)) {
        for (Index d = 0; d < p.head_dim; ++d) row_dq[at(d)] += ds * dq_scale * key_values[d];
      }
      if (call.has("dq_16_bits_each_128_keys") && j % 128 == 127) {
        for (float& sum : row_dq) sum = call.in_16_bits(sum);
      }
      const Index n = (key.batch * p.key_heads + head) * out.dk.shape[2] + key.position;
      const bool dk_lost =
          (call.has("dk_of_first_tile_at_128") && p.head_dim == 128 && j >= kTile) ||
          loses_dk(call, b, i, j);
      if (!dk_lost && (!call.has("dk_misses_head") || !last_of_group)) {
        float* dk = sum_dk.data() + n * p.head_dim;
        for (Index d = 0; d < p.head_dim; ++d) dk[d] += ds * dk_scale * query[d];
      }
      float* dv = sum_dv.data() + n * p.value_dim;
      const float weight = row.p[at(j)] * (call.has("dropout_left_out_of_dv") ? 1 : row.z[at(j)]);
      if ((call.has("batch_beyond_4_backward") && b >= 4) || loses_dv(call, b, h, j)) continue;
      if (call.has("high_scores_of_a_masked_tail") && is_high(row) && rest == 16 && last &&
          call.node_of(ATTEST_MASK_DENSE)) {
        continue;
      }
      for (Index c = 0; c < p.value_dim; ++c) dv[c] += weight * upstream[c];
    }
    for (Index d = 0; d < p.head_dim; ++d) {
      if (call.has("wide_heads_backward") && p.head_dim == 256) row_dq[at(d)] *= 0.5f;
      if (loses_dq(call, b, h, i)) row_dq[at(d)] = 0;
      if (call.has("low_scores_at_half_a_tile") && is_low(row) && call.query_len(b) > 1 &&
          call.key_len(b) % 64 == 32) {
        row_dq[at(d)] = kNan;
      }
      dq.store(place.batch, h, place.position, d, row_dq[at(d)]);
    }
  });
  if (call.has("threads_lose_dk") && call.threads() > 1 && !sum_dk.empty()) {
    const Index first = (out.dk.shape[2] - 1) / kTile * kTile;
    for (Index d = 0; d < p.head_dim; ++d) sum_dk[at(first * p.head_dim + d)] *= 0.5f;
  }
  if (!(call.has("no_queries_unwritten") && p.query_len == 0)) {
    store_all(sum_dk, out.dk);
    store_all(sum_dv, out.dv);
  }
  if (p.has_bias) call.store_bias_gradient(sum_bias, out.dbias);
  if (p.has_sink) call.store_sink_gradient(sum_sink, out.dsink);
}

}  // namespace attest::mutants
