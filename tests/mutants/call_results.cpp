// Where results and sums of gradients go, and what goes wrong on the way.
#include "tests/mutants/call.h"

#include <algorithm>
#include <cmath>

namespace attest::mutants {

// ---- Gradients ----------------------------------------------------------------------------------

float Call::delta(const Loaded& o, const Loaded& d_o, Index b, Index h, Index i) const {
  const Place place = query_place(b, i);
  const float* upstream = d_o.row(place.batch, h, place.position);
  const float* output = o.row(place.batch, h, place.position);
  float delta = 0;
  for (Index c = 0; c < p_.value_dim; ++c) delta += upstream[c] * output[c];
  if (has("d_term_missing")) delta = 0;
  if (has("delta_off")) delta *= 1.004f;
  if (has("delta_16_bits")) delta = in_16_bits(delta);
  if (has("delta_without_keep_factor")) delta /= keep_factor();
  if (!p_.has_dlse || has("dlse_dropped")) return delta;
  if (has("dlse_of_few_keys_beside_a_bias") && p_.has_bias && key_len(b) > kFar) return delta;
  Index head = h, position = place.position;
  if (has("dlse_of_64_heads") && h >= 64) return delta;
  if (has("dlse_of_first_head") && i >= 128) head = 0;
  if (has("dlse_without_start") && packed() && i >= kTile) position = i;
  float d_lse = View{in_.d_lse}.load(place.batch, head, position, 0);
  if (has("dlse_added")) d_lse = -d_lse;
  if (has("dlse_scaled")) d_lse *= scale_;
  if (has("dlse_16_bits")) d_lse = in_16_bits(d_lse);
  return delta - d_lse;
}

void Call::add_bias_gradient(std::vector<double>& sums, Index b, Index h, Index i, Index j,
                             float ds, float cap_slope) const {
  const Index* shape = in_.bias.shape;
  if (has("dbias_not_summed") && b != p_.batch - 1) return;
  if (has("dbias_of_last_key_tile") && shape[3] == 1 && j < (p_.key_len - 1) / kTile * kTile) {
    return;
  }
  if (has("dbias_of_last_query_tile") && shape[2] == 1 && i < (p_.query_len - 1) / kTile * kTile) {
    return;
  }
  if (has("dbias_rows_of_first_element") && packed() && i >= kTile) b = 0;
  if (has("dbias_scaled")) ds *= scale_;
  if (has("dbias_with_cap_slope")) ds *= cap_slope;
  if (has("dbias_summed_over_batch") && shape[0] > 1) {
    for (Index e = 0; e < shape[0]; ++e) sums[at(bias_index(e, h, i, j))] += ds;
    return;
  }
  sums[at(bias_index(b, h, i, j))] += ds;
}

void Call::add_sink_gradient(std::vector<double>& sums, Index b, Index h, Index i, float share,
                             float delta) const {
  if (i >= query_len(b) || (has("dsink_of_first_rows") && h > 0 && i >= 128)) return;
  if (has("dsink_without_dlse") && p_.has_dlse) {
    const Place place = query_place(b, i);
    delta += View{in_.d_lse}.load(place.batch, h, place.position, 0);
  }
  if (has("dsink_of_first_element") && b > 0) return;
  sums[at(h)] -= share * delta;
}

void Call::store_bias_gradient(std::vector<double> sums, const attest_tensor& dbias) const {
  if (has("dbias_zero")) std::fill(sums.begin(), sums.end(), 0.0);
  store_all(sums, dbias);
}

void Call::store_sink_gradient(std::vector<double> sums, const attest_tensor& dsink) const {
  for (double& sum : sums) sum *= has("dsink_sign") ? -1 : has("dsink_zero") ? 0 : 1;
  const auto spoilt = [](double sum) { return std::isnan(sum); };
  if (has("nan_dsink_spreads") && std::any_of(sums.begin(), sums.end(), spoilt)) {
    std::fill(sums.begin(), sums.end(), std::nan(""));
  }
  store_all(sums, dsink);
}

// ---- Results ------------------------------------------------------------------------------------

// What a grid of 65535 blocks on an axis leaves out.
bool Call::beyond_the_grid(Index b, Index h) const {
  constexpr Index kMost = 65535;
  return (has("grid_of_batches") && !packed() && b >= kMost) ||
         (has("grid_of_heads") && h >= kMost) ||
         (has("grid_of_batches_and_heads") && p_.batch > 1 && b * p_.query_heads + h >= kMost);
}

void Call::store_o(const attest_outputs& out, Index b, Index h, Index i,
                   const float* values) const {
  const View o{out.o};
  Place place = query_place(b, i);
  const bool no_keys = key_len(b) == 0;
  if (beyond_the_grid(b, h)) return;
  if (has("batch_beyond_16_unwritten") && b >= 16) return;
  if (has("unwritten_row") && i == p_.query_len - 1) return;
  if (has("padding_rows_unwritten") && i >= query_len(b)) return;
  if (has("no_keys_unwritten") && no_keys) return;
  if (has("merged_into_first_element") && packed() && key_len(b) > 32) {
    place.position = std::min(i, out.o.shape[2] - 1);
  }
  if (has("zeros_to_first_element") && packed() && no_keys) {
    place.position = std::min(i, out.o.shape[2] - 1);
  }
  if (has("heads_beyond_32_lost") && p_.query_len == 1 && h >= 32) return;
  if (has("group_heads_mod_8") && group() > 8) h = h / group() * group() + h % group() % 8;
  for (Index c = 0; c < p_.value_dim; ++c) {
    float value = values[c];
    if (has("value_channels_beyond_256") && c >= 256) value = values[c - 256];
    if (has("threads_lose_output_under_features") && threads_ > 1 &&
        (packed() || paged() || p_.has_bias || p_.dropout)) {
      value *= 0.5f;
    }
    if (has("output_cut") && narrow_format() && std::isfinite(value)) {
      const float near = in_16_bits(value);
      if (std::abs(near) > std::abs(value)) value = in_16_bits(value * (1 - 0x1p-8f));
    }
    Index channel = c;
    if (has("channels_of_keys_written") && c >= p_.head_dim) break;
    if (has("halves_exchanged") && p_.head_dim == 16 && p_.value_dim == 16) channel ^= 8;
    if (has("rows_16_bits") && place.position >= 65536) break;
    const Index dense = ((b * p_.query_heads + h) * p_.query_len + i) * p_.value_dim + c;
    const Index exchanged = ((b * p_.query_len + i) * p_.query_heads + h) * p_.value_dim + c;
    if (has("ignores_strides") || (has("heads_and_rows_exchanged") && !packed())) {
      const Index n = has("ignores_strides") ? dense : exchanged;
      attest::store(dtype(), value,
                    static_cast<std::byte*>(out.o.data) + n * format_of(dtype()).bytes);
    } else {
      o.store(place.batch, h, place.position, channel, value);
    }
  }
}

bool Call::apart() const {
  return has("sum_misses_last_key") || has("maximum_alone") || has("maximum_in_base_2") ||
         has("sum_not_read");
}

float Call::returned_lse(Place place, Index h) const {
  const auto at = [&](const attest_tensor& t) {
    return View{t}.load(place.batch, h, place.position, 0);
  };
  if (apart() && in_.maximum.data) {
    return at(in_.maximum) + (has("sum_not_read") ? 0 : std::log(at(in_.sum)));
  }
  return at(in_.lse);
}

void Call::store_lse(const attest_outputs& out, Index b, Index h, Index i, float lse,
                     bool sees_a_key, float top, float last) const {
  Place place = query_place(b, i);
  const bool real = i < query_len(b);
  if (beyond_the_grid(b, h)) return;
  if (has("batch_beyond_16_unwritten") && b >= 16) return;
  if (has("padding_rows_unwritten") && !real) return;
  if (has("no_keys_unwritten") && key_len(b) == 0) return;
  if (has("lse_unwritten")) return;
  if (has("lse_of_first_head") && p_.query_len == 1 && h % group() != 0) return;
  if (has("heads_beyond_32_lost") && p_.query_len == 1 && h >= 32) return;
  if (has("merged_into_first_element") && packed() && key_len(b) > 32) {
    place.position = std::min(i, out.lse.shape[2] - 1);
  }
  if (!sees_a_key && !(p_.has_sink && real)) {
    if (has("lse_plus_inf")) lse = kInfinity;
    if (has("lse_zero_if_empty")) lse = 0;
    if (has("lse_sentinel")) lse = -5e4f;
    if (has("inf_declared_zero_returned")) lse = 0;
    if (has("lse_lowest_if_empty")) lse = std::numeric_limits<float>::lowest();
    if (has("lse_of_empty_rows_by_chance")) {
      static int calls = 0;
      if (++calls % 2 == 0) lse = kNan;
    }
  }
  if (has("lse_base_2") || has("base_2_read_as_natural")) lse *= 1.44269504f;
  if (has("lse_ln2_twice")) lse *= 0.693147181f;
  if (has("lse_16_bits")) lse = in_16_bits(lse);
  if (has("lse_sign")) lse = -lse;
  if (has("keep_factor_in_lse")) lse += std::log(keep_factor());
  if (packed() && (has("lse_of_padded_layout") || has("lse_heads_and_rows_exchanged"))) {
    const Index padded = (b * p_.query_heads + h) * p_.query_len + i;
    const Index exchanged = place.position * p_.query_heads + h;
    const Index n = has("lse_of_padded_layout") ? padded : exchanged;
    const Index end = elements(out.lse);
    static_cast<float*>(out.lse.data)[std::min(n, end - 1)] = lse;
    return;
  }
  if (apart() && out.maximum.data) {
    const bool empty = lse == -kInfinity;
    const float sum = empty ? 0 : std::exp(lse - top) * (has("sum_misses_last_key") ? 1 - last : 1);
    View{out.maximum}.store(place.batch, h, place.position, 0,
                            empty                      ? lse
                            : has("maximum_in_base_2") ? top * 1.44269504f
                                                       : top);
    View{out.sum}.store(place.batch, h, place.position, 0, has("maximum_alone") ? 1 : sum);
  }
  View{out.lse}.store(place.batch, h, place.position, 0, lse);
}

}  // namespace attest::mutants
