#include "harness/diagnosis/setting.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace attest {

Score score_of(const Setting& setting, const Position& at) {
  const Problem& p = setting.problem;
  const Inputs& in = setting.inputs;
  const Place query = p.query_place(at.batch, at.query), key = p.key_place(at.batch, at.key);
  const Index key_head = setting.key_head.empty()
                             ? at.head / p.group_size()
                             : setting.key_head[static_cast<std::size_t>(at.head)];
  Score score = {};
  const double* const q =
      in.q.data.data() + dense_index(in.q.shape, query.batch, at.head, query.position, 0);
  const double* const k =
      in.k.data.data() + dense_index(in.k.shape, key.batch, key_head, key.position, 0);
  for (Index d = 0; d < p.head_dim; ++d) score.product += q[d] * k[d];
  const double scaled = p.scale * score.product;
  score.capped = p.softcap > 0 ? p.softcap * std::tanh(scaled / p.softcap) : scaled;
  if (p.bias_shape) score.bias = in.bias.data[broadcast_index(*p.bias_shape, at)];
  if (p.slopes_shape) {
    const Lengths lengths = p.lengths(at.batch);
    const Index ahead = at.key - (at.query + lengths.key - lengths.query);
    score.alibi = -in.slopes.data[broadcast_index(*p.slopes_shape, at)] *
                  std::abs(static_cast<double>(ahead));
  }
  return score;
}

std::function<double(const Position&)> largest_scores(const Setting& setting) {
  const Problem& p = setting.problem;
  Shape rows = p.keep_shape();
  rows[3] = 1;
  std::vector<std::optional<double>> known(static_cast<std::size_t>(element_count(rows)));
  return [&, rows, known](const Position& at) mutable {
    std::optional<double>& largest = known[broadcast_index(rows, at)];
    if (largest) return *largest;
    largest = p.sink ? setting.inputs.sink.data[static_cast<std::size_t>(at.head)] : -kInfinite;
    for (Index j = 0; j < p.lengths(at.batch).key; ++j) {
      const Position other = {at.batch, at.head, at.query, j};
      if (visible(p, other)) largest = std::max(*largest, score_of(setting, other).whole());
    }
    return *largest;
  };
}

void for_each_pair(const Problem& problem, const std::function<void(const Position&)>& visit) {
  for (Index b = 0; b < problem.batch; ++b) {
    const Lengths lengths = problem.lengths(b);
    for (Index h = 0; h < problem.query_heads; ++h) {
      for (Index i = 0; i < lengths.query; ++i) {
        for (Index j = 0; j < lengths.key; ++j) visit({b, h, i, j});
      }
    }
  }
}

void set_visible(Setting& setting, const std::function<bool(const Position&)>& sees) {
  DenseMask table = {.shape = setting.problem.keep_shape(), .allowed = {}};
  table.allowed.resize(static_cast<std::size_t>(element_count(table.shape)));
  for_each_pair(setting.problem, [&](const Position& at) {
    table.allowed[broadcast_index(table.shape, at)] = sees(at);
  });
  setting.problem.mask = Mask::dense(std::move(table));
}

bool set_scores(Setting& setting, const std::function<double(const Position&, const Score&)>& score,
                bool drops_cap) {
  Problem& p = setting.problem;
  Values bias = zeros(p.keep_shape());
  bool finite = true;
  for_each_pair(p, [&](const Position& at) {
    if (!visible(p, at)) return;
    const Score before = score_of(setting, at);
    const double wanted = score(at, before);
    const double fixed = drops_cap ? p.scale * before.product : before.capped;
    finite &= std::isfinite(fixed) && wanted < kInfinite;
    bias.data[broadcast_index(bias.shape, at)] = wanted - fixed;
  });
  if (drops_cap) p.softcap = 0;
  p.bias_shape = bias.shape;
  p.slopes_shape = {};
  setting.inputs.bias = std::move(bias);
  setting.inputs.slopes = {};
  return finite;
}

bool fill_empty_rows(Setting& setting) {
  const Problem before = setting.problem;
  std::vector<bool> sees(static_cast<std::size_t>(element_count(before.keep_shape())));
  Shape rows = before.keep_shape();
  rows[3] = 1;
  for_each_pair(before, [&](const Position& at) {
    if (visible(before, at)) sees[broadcast_index(rows, at)] = true;
  });
  set_visible(setting, [&](const Position& at) {
    return !sees[broadcast_index(rows, at)] || visible(before, at);
  });
  return set_scores(setting, [&](const Position& at, const Score& score) {
    return sees[broadcast_index(rows, at)] ? score.whole() : 0;
  });
}

bool change_bands(Mask& mask, const std::function<bool(Mask&)>& change) {
  bool changed = mask.kind == Mask::Kind::band && change(mask);
  for (Mask& part : mask.parts) changed |= change_bands(part, change);
  return changed;
}

bool drop_parts(Mask& mask, Mask::Kind kind) {
  if (mask.kind == kind) {
    mask = Mask::full();
    return true;
  }
  bool dropped = false;
  for (Mask& part : mask.parts) dropped |= drop_parts(part, kind);
  return dropped;
}

Values moved(const Values& values, const Move& move) {
  Values result = values;
  for (Index b = 0; b < values.shape[0]; ++b) {
    for (Index h = 0; h < values.shape[1]; ++h) {
      for (Index s = 0; s < values.shape[2]; ++s) {
        Index from_b = b, from_h = h, from_s = s;
        move(from_b, from_h, from_s);
        for (Index d = 0; d < values.shape[3]; ++d) {
          result.at(b, h, s, d) = values.at(from_b, from_h, from_s, d);
        }
      }
    }
  }
  return result;
}

}  // namespace attest
