#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/judge/checks.h"
#include "spec/contains.h"

namespace attest {
namespace {

// Which channels of the row of `values` at (b, h, s), as it is stored, are NaN.
std::vector<bool> nan_channels(const Values& values, Index b, Index h, Index s) {
  std::vector<bool> nan(static_cast<std::size_t>(values.shape[kChannel]));
  for (std::size_t d = 0; d < nan.size(); ++d) {
    nan[d] = std::isnan(values.at(b, h, s, static_cast<Index>(d)));
  }
  return nan;
}

// In which channels of the row's O a NaN of Q, K or V must show.
std::vector<bool> shown_channels(const Problem& p, const Inputs& in, Index b, Index h, Index i) {
  const auto any = [](const std::vector<bool>& of) { return contains(of, true); };
  const Place query = p.query_place(b, i);
  const bool of_query = any(nan_channels(in.q, query.batch, h, query.position));
  std::vector<bool> shown(static_cast<std::size_t>(p.value_dim));
  for (Index j = 0; j < p.lengths(b).key; ++j) {
    if (!sees(p, in, {.batch = b, .head = h, .query = i, .key = j})) continue;
    const Place key = p.key_place(b, j);
    const Index of_group = h / p.group_size();
    if (of_query || any(nan_channels(in.k, key.batch, of_group, key.position))) {
      return std::vector<bool>(shown.size(), true);
    }
    const auto of_value = nan_channels(in.v, key.batch, of_group, key.position);
    for (std::size_t c = 0; c < shown.size(); ++c) shown[c] = shown[c] || of_value[c];
  }
  return shown;
}

}  // namespace

std::optional<Finding> check_shown(PreparedCase& prepared, const Trial& trial) {
  const Problem& p = prepared.problem();
  const bool cited = contains(prepared.test_case().clauses, std::string("FINITE-4"));
  if (!cited || p.dropout.mode != Dropout::Mode::none) return std::nullopt;
  const auto o = std::find_if(trial.returned.begin(), trial.returned.end(),
                              [](const Returned& each) { return each.name == TensorName::o; });
  if (o == trial.returned.end()) return std::nullopt;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) {
        const auto shown = shown_channels(p, prepared.inputs(), b, h, i);
        const Place at = p.query_place(b, i);
        for (Index c = 0; c < p.value_dim; ++c) {
          if (!shown[static_cast<std::size_t>(c)]) continue;
          const auto n = dense_index(o->shape, at.batch, h, at.position, c);
          const double actual = decode(o->dtype, o->bits[static_cast<std::size_t>(n)]);
          if (!std::isfinite(actual)) continue;
          return Finding{.outcome = Outcome::warn,
                         .reason = "swallowed",
                         .message = fmt::format("o[{},{},{},{}] = {}, though a NaN that the row "
                                                "sees makes it NaN",
                                                at.batch, h, at.position, c, actual),
                         .clause = "FINITE-4"};
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace attest
