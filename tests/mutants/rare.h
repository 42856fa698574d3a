// Faults that few cases show: a selfcheck tries those first, and finds in seconds what it would
// find after hundreds of others. It finds them without this list too.
#pragma once

#include <array>
#include <string_view>

namespace attest::mutants {

struct Rare {
  std::string_view fault;
  const char* shown_by;  // a pattern of case ids
};

inline constexpr std::array kRare = std::to_array<Rare>({
    {"columns_16_bits", "**beyond_*"},
    {"dbias_of_last_query_tile", "pairs/tiles/bias_broadcast_backward/**"},
    {"dense_mask_of_first_tile_at_128", "pairs/server/**"},
    {"dbias_of_65535_rows", "grad/sizes/biases_beyond_65535_alone/**"},
    {"dk_of_65535_rows", "grad/sizes/seen_beyond_65535_alone/**"},
    {"dk_of_first_2000_tokens", "grad/sizes/packed_tokens/**"},
    {"dk_of_first_tile_at_128", "pairs/training/**"},
    {"dk_of_long_squares", "value/long/square_backward/**"},
    {"dk_of_narrower_values_in_batches", "grad/sizes/**d=192,dv=128**"},
    {"dk_of_packed_rows_beyond_512", "sizes/tiles/backward_long_packed/**"},
    {"dk_of_wide_heads_beyond_256", "sizes/tiles/backward_**"},
    {"dq_of_131072_packed_rows", "grad/sizes/beyond_65535_packed_rows/**"},
    {"dq_of_first_1000_tokens", "grad/sizes/packed_tokens/**"},
    {"dq_of_wide_heads_in_batches", "grad/sizes/**"},
    {"dq_without_keys_beyond_65535", "grad/sizes/seen_beyond_65535_alone/**"},
    {"dsink_of_65535_rows", "grad/sizes/sinks_beyond_65535_alone/**"},
    {"dv_of_wide_heads_in_5_elements", "sizes/tiles/backward_fifth_element**"},
    {"dv_of_wide_packed_heads", "grad/sizes/packed_in_**"},
    {"exp_off_in_output", "value/statistical/exponents/**"},
    {"high_scores_of_a_masked_tail", "pairs/tails/high_scores_with_a_mask/**"},
    {"keys_beyond_4096_in_pages", "sizes/forward/*_long/**"},
    {"keys_beyond_4096_of_later_heads", "sizes/forward/*_long/**"},
    {"keys_beyond_4096_of_odd_groups", "sizes/forward/*_long/**"},
    {"keys_beyond_4096_of_wide_heads", "sizes/forward/*_long/**"},
    {"last_query_tile_dropped", "sizes/backward/packed_full_**"},
    {"low_scores_of_a_biased_tail", "pairs/tails/low_scores_with_a_bias/**"},
    {"lse_of_first_tile", "sizes/backward/packed_full_**"},
    {"maximum_of_the_tile", "paged/one_query/inputs/**"},
    {"offset_32_bits", "**/*offset*/**"},
    {"parts_end_with_tiles", "value/classes/rescale_small/**"},
    {"rare_window", "mask/window/every_residue/**"},
    {"right_cut_to_the_keys", "mask/edges/right_beyond_the_keys/**"},
    {"rows_of_later_heads_16_bits", "grad/sizes/beyond_65535_packed_rows_of_heads/**"},
    {"tile_lost_in_long_squares", "value/long/square/**"},
    {"variant_by_number_of_decoded", "contract/invariance/neighbours_by_number_of_long/**"},
    {"variant_by_number_of_packed", "contract/invariance/neighbours_by_number_of_long_packed/**"},
    {"window_begins_with_a_tile", "mask/edges/edges_at_tiles**"},
    {"window_ends_with_a_tile", "mask/edges/edges_at_tiles**"},
    {"zero_bias_skipped", "score/bias/broadcast/**"},
});

}  // namespace attest::mutants
