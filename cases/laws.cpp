#include "cases/laws.h"

#include <algorithm>
#include <array>

namespace attest {
namespace {

constexpr std::array kLaws = {
    LawName{"permuted_keys", "LAW-1"},      LawName{"shifted_keys", "LAW-2"},
    LawName{"row_bias", "LAW-2"},           LawName{"linear_values", "LAW-3"},
    LawName{"ones", "LAW-4", true},         LawName{"identity_values", "LAW-4"},
    LawName{"hull", "LAW-4", true},         LawName{"zero_query", "LAW-4", true},
    LawName{"loud_key", "LAW-4", true},     LawName{"rescaled_query", "LAW-5", true},
    LawName{"split_keys", "LAW-6"},         LawName{"causal_prefix", "LAW-7"},
    LawName{"decode_row", "LAW-7"},         LawName{"wide_window", "LAW-8", true},
    LawName{"repeated_heads", "LAW-9"},     LawName{"padded", "LAW-10"},
    LawName{"contiguous", "LAW-10"},        LawName{"alone", "LAW-10"},
    LawName{"layouts", "LAW-10"},           LawName{"sink_as_key", "LAW-11"},
    LawName{"alibi_as_bias", "LAW-12"},     LawName{"huge_softcap", "LAW-13"},
    LawName{"linear_gradient", "LAW-14"},   LawName{"zero_loss", "LAW-14", true},
    LawName{"value_sums", "LAW-15", true},  LawName{"key_sums", "LAW-15", true},
    LawName{"logit_sums", "LAW-15"},        LawName{"zero_scores", "LAW-15", true},
    LawName{"directions", "LAW-16"},        LawName{"hidden_keys", "HIDE-1", true},
    LawName{"unseen_keys", "HIDE-1", true}, LawName{"after_others", "DET-1", true},
    LawName{"drawn_as_given", "DROP-3"},    LawName{"finite", "SOFTMAX-2", true},
    LawName{"packed_bits", "DET-4"},        LawName{"padded_bits", "DET-4"},
    LawName{"paged_bits", "DET-5"},         LawName{"chunk_bits", "DET-6"},
    LawName{"decode_bits", "DET-7"},
};

}  // namespace

std::span<const LawName> law_names() { return kLaws; }

const LawName* find_law(std::string_view name) {
  const auto found = std::find_if(kLaws.begin(), kLaws.end(),
                                  [&](const LawName& law) { return law.name == name; });
  return found == kLaws.end() ? nullptr : &*found;
}

std::vector<std::string_view> clauses_of_variants(const LawName& law, const Problem& p) {
  std::vector<std::string_view> clauses;
  const auto add_if = [&](bool needed, std::initializer_list<std::string_view> more) {
    if (needed) clauses.insert(clauses.end(), more);
  };
  const auto is = [&](std::string_view name) { return law.name == name; };
  const bool rewrites_mask = is("permuted_keys") || is("split_keys") || is("sink_as_key");
  add_if(rewrites_mask && p.mask.kind != Mask::Kind::full, {"MASK-7"});
  add_if(is("wide_window"), {"MASK-4"});
  add_if(is("padded"), {"MASK-5", "MASK-6"});
  add_if(is("packed_bits") || is("padded_bits"), {"MASK-5", "MASK-6"});
  const bool in_a_row = is("contiguous") || is("paged_bits");
  add_if(in_a_row, {"MASK-5"});
  add_if(in_a_row && !p.query_lens.empty(), {"MASK-6"});
  const bool adds_bias = is("sink_as_key") || is("alibi_as_bias");
  add_if(adds_bias, {"SCORE-3"});
  add_if(adds_bias && p.backward, {"GRAD-4"});
  add_if(is("huge_softcap"), {"SCORE-2"});
  add_if(is("drawn_as_given"), {"DROP-1"});
  add_if(is("drawn_as_given") && p.backward, {"DROP-2"});
  return clauses;
}

}  // namespace attest
