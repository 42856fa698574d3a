// O as a weighted mean of the visible V: LAW-3 and LAW-4; and finite (SOFTMAX-2).
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/laws/law.h"
#include "harness/laws/running.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

double value_of_key(const Sample& sample, const Position& at, Index c) {
  const Problem& p = sample.problem();
  const Place place = p.key_place(at.batch, at.key);
  return sample.inputs().v.at(place.batch, at.head / p.group_size(), place.position, c);
}

// What the keys have of a row: 1 less the sink's share.
Known share_of_keys(const Sample& sample, const Position& row) {
  if (!sample.problem().sink) return exactly(1);
  const Known sink = exactly(sample.inputs().sink.at(0, row.head, 0, 0));
  return exactly(1) - exp_of_difference(sink, sample.lse(row));
}

std::string unmet_by_any_v(const Problem&, const Inputs&) { return ""; }
std::string unmet_by_dropout(const Problem& p, const Inputs&) {
  return p.dropout.mode != Dropout::Mode::none ? "dropout leaves keys out" : "";
}

// ---- O is linear in V (LAW-3) ------------------------------------------------------------------

void linear_values(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant one = {first.problem(), first.inputs()};
  one.problem.backward = one.problem.d_lse = false;
  one.inputs.v = coarse(first.inputs().v);
  Variant two = one, both = one;
  two.inputs.v = shuffled(first.inputs().v);
  both.inputs.v = less_twice(one.inputs.v, two.inputs.v);
  const Sample* a = experiment.attempt(std::move(one));
  const Sample* b = a ? experiment.attempt(std::move(two)) : nullptr;
  const Sample* sum = b ? experiment.attempt(std::move(both)) : nullptr;
  if (!sum) return;
  for (const TensorName tensor : kReturnedTensors) {
    if (!sum->has(tensor)) continue;
    const Result of_sum = (*sum)[tensor], of_a = (*a)[tensor], of_b = (*b)[tensor];
    const bool is_o = tensor == TensorName::o;
    for (Index n = 0; n < element_count(of_sum.shape()); ++n) {
      const At at = coordinates(of_sum.shape(), n);
      const Known right = is_o ? of_a.at(at) + -2 * of_b.at(at) : of_a.at(at);
      experiment.expect_equal(tensor, at, of_sum.at(at), right,
                              is_o ? "of O(V) - 2 O(W), for V - 2 W" : "with another V");
    }
  }
}

// ---- Shares of a row add up to 1 (LAW-4) -------------------------------------------------------

void ones(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  for (double& v : variant.inputs.v.data) v = 1;
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  for_each_query(p, [&](const Position& row, const Place& place) {
    const bool empty = !sample->sees_any(row);
    const Known share = empty ? exactly(0) : share_of_keys(*sample, row);
    for (Index c = 0; c < p.value_dim; ++c) {
      experiment.expect_equal(TensorName::o, {place.batch, row.head, place.position, c},
                              sample->o(row, c), share, "for V = 1, less the sink's share");
    }
  });
}

std::string unmet_by_identity(const Problem& p, const Inputs& in) {
  if (p.key_len > p.value_dim) return "V has fewer channels than there are keys";
  return unmet_by_dropout(p, in);
}

// V that names its keys gives the rows of P.
void identity_values(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  Variant variant = {p, first.inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  Values& v = variant.inputs.v;
  v = zeros(v.shape);
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.lengths(b).key; ++j) {
      const Place place = p.key_place(b, j);
      for (Index h = 0; h < p.key_heads; ++h) {
        for (Index c = 0; c < p.value_dim; ++c) v.at(place.batch, h, place.position, c) = j == c;
      }
    }
  }
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Result o = (*sample)[TensorName::o];
  for_each_query(p, [&](const Position& row, const Place& place) {
    Known sum = exactly(0);
    for (Index c = 0; c < p.value_dim; ++c) {
      const At at = {place.batch, row.head, place.position, c};
      const Known share = o.at(at);
      sum = sum + share;
      if (share.tells_nothing()) continue;  // of scores for which nothing is required (SOFTMAX-2)
      Position key = row;
      key.key = c;
      if (c >= p.lengths(row.batch).key || !sample->sees(key)) {
        experiment.expect_exactly(o, at, 0, "for a key that the row does not see");
      } else if (o.value(at) < 0) {
        experiment.expect_exactly(o, at, 0, "or more, being a share");
      }
    }
    if (!sample->sees_any(row)) return;
    experiment.expect_equal(TensorName::o, {place.batch, row.head, place.position, 0}, sum,
                            share_of_keys(*sample, row), "as the sum of its row of P");
  });
}

// Calls visit(row, place, c, low, high) with the least and the largest visible V of each channel,
// for the rows that see a key.
template <class Visit>
void for_each_hull(const Sample& sample, const Visit& visit) {
  const Problem& p = sample.problem();
  if (!has_reaches(p)) {
    for_each_query(p, [&](const Position& row, const Place& place) {
      if (!sample.sees_any(row)) return;
      for (Index c = 0; c < p.value_dim; ++c) {
        double low = HUGE_VAL, high = -HUGE_VAL;
        Position at = row;
        for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
          if (!sample.sees(at)) continue;
          low = std::min(low, value_of_key(sample, at, c));
          high = std::max(high, value_of_key(sample, at, c));
        }
        visit(row, place, c, low, high);
      }
    });
    return;
  }
  for (Position row; row.batch < p.batch; ++row.batch) {
    for (row.head = 0; row.head < p.query_heads; ++row.head) {
      for (Index c = 0; c < p.value_dim; ++c) {
        RunningExtreme least(-1), largest(1);
        const auto v = [&](Index key) {
          return value_of_key(sample, {.batch = row.batch, .head = row.head, .key = key}, c);
        };
        for (row.query = 0; row.query < p.lengths(row.batch).query; ++row.query) {
          const Reach keys = keys_seen(p, row.batch, row.query);
          if (keys.size() == 0) continue;
          visit(row, p.query_place(row.batch, row.query), c, least.over(keys, v),
                largest.over(keys, v));
        }
      }
    }
  }
}

// min V <= O <= max V.
void hull(Experiment& experiment) {
  const Sample& sample = experiment.first();
  const Result o = sample[TensorName::o];
  const bool sink = sample.problem().sink;
  for_each_hull(sample,
                [&](const Position& row, const Place& place, Index c, double low, double high) {
                  if (sink) low = std::min(low, 0.0), high = std::max(high, 0.0);
                  const At at = {place.batch, row.head, place.position, c};
                  const Known known = o.at(at);
                  const double nearest = std::clamp(static_cast<double>(known.value), low, high);
                  experiment.expect_equal(TensorName::o, at, known, {nearest, low, high},
                                          "as the nearest that lies among the visible V");
                });
}

// ---- What has a bound is a number (SOFTMAX-2) --------------------------------------------------

// What the size of no exact value exceeds: shares add up to 1, and X is a difference of dP, or
// dLSE.
struct Sizes {
  Sizes(const Problem& p, const Inputs& in) {
    const double kept = p.dropout.mode == Dropout::Mode::none ? 1 : 1 / (1 - p.dropout.probability);
    const double scale = std::abs(p.scale), q = largest_of(in.q), k = largest_of(in.k);
    o = kept * largest_of(in.v);
    const bool adds = p.bias_shape || p.slopes_shape || p.sink;
    lse = adds ? HUGE_VAL
               : scale * static_cast<double>(p.head_dim) * q * k +
                     std::log(static_cast<double>(p.key_len));
    if (!p.backward) return;
    const double loss = largest_of(in.d_o),
                 rows = static_cast<double>(p.group_size() * p.query_len);
    const double x = 2 * static_cast<double>(p.value_dim) * loss * o + largest_of(in.d_lse);
    gradient = rows * std::max(kept * loss, scale * std::max(q, k) * x);
  }

  double o, lse, gradient = 0;
};

void finite(Experiment& experiment) {
  const Sample& sample = experiment.first();
  const Problem& p = sample.problem();
  const Sizes sizes(p, sample.inputs());
  const auto visit = [&](TensorName tensor, Index h, const Place& place, double size) {
    if (!sample.has(tensor)) return;
    const Result result = sample[tensor];
    for (Index c = 0; c < result.shape()[kChannel]; ++c) {
      experiment.expect_finite(result, {place.batch, h, place.position, c}, size);
    }
  };
  for_each_query(p, [&](const Position& row, const Place& place) {
    visit(TensorName::o, row.head, place, sizes.o);
    if (sample.sees_any(row)) visit(TensorName::lse, row.head, place, sizes.lse);
    visit(TensorName::dq, row.head, place, sizes.gradient);
  });
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; p.backward && j < p.lengths(b).key; ++j) {
      for (Index h = 0; h < p.key_heads; ++h) {
        visit(TensorName::dk, h, p.key_place(b, j), sizes.gradient);
        visit(TensorName::dv, h, p.key_place(b, j), sizes.gradient);
      }
    }
  }
}

// ---- A query of zeros sees all keys alike (LAW-4) ----------------------------------------------

std::string unmet_by_zero_query(const Problem& p, const Inputs& in) {
  if (p.bias_shape || p.slopes_shape) return "a bias tells keys apart";
  if (p.sink) return "a sink takes its share";
  return unmet_by_dropout(p, in);
}

// Calls visit(row, place, count, sum) for the rows that see a key, where sum(c) is that of V over
// the keys they see.
template <class Visit>
void for_each_sum(const Sample& sample, const Visit& visit) {
  const Problem& p = sample.problem();
  if (!has_reaches(p)) {
    for_each_query(p, [&](const Position& row, const Place& place) {
      Index count = 0;
      std::vector<Known> sums(static_cast<std::size_t>(p.value_dim), exactly(0));
      Position at = row;
      for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
        if (!sample.sees(at)) continue;
        ++count;
        for (Index c = 0; c < p.value_dim; ++c) {
          Known& sum = sums[static_cast<std::size_t>(c)];
          sum = sum + exactly(value_of_key(sample, at, c));
        }
      }
      if (count == 0) return;
      visit(row, place, count, [&](Index c) { return sums[static_cast<std::size_t>(c)]; });
    });
    return;
  }
  for (Position row; row.batch < p.batch; ++row.batch) {
    for (Index head = 0; head < p.key_heads; ++head) {
      KnownSums sums(p.lengths(row.batch).key, p.value_dim);
      const Index first = head * p.group_size();
      for (Index j = 0; j < p.lengths(row.batch).key; ++j) {
        for (Index c = 0; c < p.value_dim; ++c) {
          sums.add(j, c, value_of_key(sample, {.batch = row.batch, .head = first, .key = j}, c));
        }
      }
      sums.run();
      for (row.query = 0; row.query < p.lengths(row.batch).query; ++row.query) {
        const Reach keys = keys_seen(p, row.batch, row.query);
        const Place place = p.query_place(row.batch, row.query);
        for (row.head = first; keys.size() > 0 && row.head < first + p.group_size(); ++row.head) {
          visit(row, place, keys.size(), [&](Index c) { return sums.over(keys, c); });
        }
      }
    }
  }
}

void zero_query(Experiment& experiment) {
  Variant variant = {experiment.first().problem(), experiment.first().inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  for (double& q : variant.inputs.q.data) q = 0;
  if (experiment.first().is_long()) {
    // Or one key of so many is lost among the roundings; and a row of zeros, where no channel has
    // a mean far from 0.
    Values& v = variant.inputs.v;
    for (Index n = 0; n < element_count(v.shape); ++n) {
      double& x = v.data[static_cast<std::size_t>(n)];
      x = whole(x) + (n % 2 == 0 ? 0 : 8);
    }
  }
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  const Result o = (*sample)[TensorName::o];
  for_each_sum(*sample, [&](const Position& row, const Place& place, Index count, const auto& sum) {
    const long double share = 1 / static_cast<long double>(count);
    for (Index c = 0; c < p.value_dim; ++c) {
      const At at = {place.batch, row.head, place.position, c};
      experiment.expect_equal(TensorName::o, at, o.at(at), share * sum(c),
                              "as the mean of the visible V, for Q = 0");
    }
    if (!sample->has(TensorName::lse)) return;
    const long double log = std::log(static_cast<long double>(count));
    experiment.expect_equal(TensorName::lse, {place.batch, row.head, place.position, 0},
                            sample->lse(row), 1 * exactly(log),
                            "as the logarithm of the number of keys, for Q = 0");
  });
}

// ---- A key that is louder than all others is all that a row sees (LAW-4) -----------------------

// A number that nobody takes for n.
Index mixed(Index n) {
  return static_cast<Index>(static_cast<std::uint64_t>(n + 1) * 0x9e3779b97f4a7c15u >> 33);
}

// Keys are +-1 in as many channels as it takes to tell them apart, or as there are, and others in
// each head; a query is one of them, times a power of two that sets any other key back by at least
// 32, and differs among rows, or they had one LSE.
class Loudness {
 public:
  explicit Loudness(const Problem& p) : shares_pages_(p.paging.page_size > 0) {
    while (bits_ < p.head_dim && (Index(1) << bits_) < p.key_len) ++bits_;
    for (gap_ = 2 * std::abs(p.scale); gap_ > 0 && gap_ < 32; gap_ *= 2) query_ *= 2;
    if (p.scale < 0) query_ = -query_;
  }
  // Of a key head of a batch element.
  double key(Index b, Index h, Index j, Index c) const {
    const Index name = j ^ mixed(131 * (shares_pages_ ? 0 : b) + h) % period();
    return c >= bits_ ? 0 : (name >> c & 1) != 0 ? 1 : -1;
  }
  // What the query is that many times the key.
  double factor(const Position& row) const {
    return query_ * static_cast<double>(1 << mixed(row.query + 61 * row.head + 17 * row.batch) % 3);
  }
  // Of a key and a query that is that key; all keys that far apart are the same.
  long double score(double scale, const Position& row) const {
    return static_cast<long double>(scale) * factor(row) * static_cast<long double>(bits_);
  }
  Index period() const { return Index(1) << bits_; }
  double loudest() const { return 4 * std::abs(query_); }
  double gap() const { return gap_; }

 private:
  bool shares_pages_;  // a key may be that of several batch elements
  Index bits_ = 0;
  double query_ = 1, gap_ = 0;
};

// The key that is loud for a query: every other query asks for one not far from the end of those it
// sees, the rest for any of them.
Index target_of(const Reach& keys, Index h, Index i) {
  const Index n = keys.size();
  if (i % 2 == 0) return keys.end - 1 - (i / 2 + h) % std::min<Index>(n, 61);
  return keys.begin + mixed(i + 131 * h) % n;
}

std::string unmet_by_loud_key(const Problem& p, const Inputs& in) {
  if (p.softcap != 0) return "a softcap makes no key loud";
  if (p.scale == 0) return "the scale is 0";
  if (!has_reaches(p)) return "keys that a row sees do not lie side by side";
  if (Loudness(p).loudest() > largest_finite(p.dtype) / 4) return "the scale is too small";
  return unmet_by_zero_query(p, in);
}

void loud_key(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant variant = {first.problem(), first.inputs()};
  variant.problem.backward = variant.problem.d_lse = false;
  {
    const Problem& p = variant.problem;
    const Loudness loudness(p);
    Values &q = variant.inputs.q, &k = variant.inputs.k;
    for_each_query(p, [&](const Position& row, const Place& place) {
      const Reach keys = keys_seen(p, row.batch, row.query);
      const Index target = keys.size() > 0 ? target_of(keys, row.head, row.query) : 0;
      for (Index c = 0; c < p.head_dim; ++c) {
        q.at(place.batch, row.head, place.position, c) =
            loudness.factor(row) * loudness.key(row.batch, row.head / p.group_size(), target, c);
      }
    });
    for (Index b = 0; b < p.batch; ++b) {
      for (Index j = 0; j < p.lengths(b).key; ++j) {
        const Place place = p.key_place(b, j);
        for (Index h = 0; h < p.key_heads; ++h) {
          for (Index c = 0; c < p.head_dim; ++c) {
            k.at(place.batch, h, place.position, c) = loudness.key(b, h, j, c);
          }
        }
      }
    }
  }
  const Sample* sample = experiment.attempt(std::move(variant));
  if (!sample) return;
  const Problem& p = sample->problem();
  const Loudness loudness(p);
  const Result o = (*sample)[TensorName::o];
  const long double largest = largest_of(sample->inputs().v);
  for_each_query(p, [&](const Position& row, const Place& place) {
    const Reach keys = keys_seen(p, row.batch, row.query);
    if (keys.size() == 0) return;
    const Index target = target_of(keys, row.head, row.query);
    // Where there are not enough channels, others look the same.
    const Index before = (target - keys.begin) / loudness.period();
    std::vector<Index> alike;
    for (Index j = target - before * loudness.period(); j < keys.end; j += loudness.period()) {
      alike.push_back(j);
    }
    // What all others weigh, in units of a loud one.
    const long double rest = 1.01L * static_cast<long double>(keys.size()) *
                             std::exp(-static_cast<long double>(loudness.gap()));
    const auto count = static_cast<long double>(alike.size());
    for (Index c = 0; c < p.value_dim; ++c) {
      Known sum = exactly(0);
      for (const Index j : alike) {
        Position key = row;
        key.key = j;
        sum = sum + exactly(value_of_key(*sample, key, c));
      }
      const At at = {place.batch, row.head, place.position, c};
      experiment.expect_equal(TensorName::o, at, o.at(at),
                              widened(1 / count * sum, 2 * largest * rest),
                              "as the V of the one key that is loud");
    }
    if (!sample->has(TensorName::lse)) return;
    const Known loud = 1 * exactly(loudness.score(p.scale, row)) + 1 * exactly(std::log(count));
    experiment.expect_equal(TensorName::lse, {place.batch, row.head, place.position, 0},
                            sample->lse(row), widened(loud, rest),
                            "as the score of the one key that is loud");
  });
}

constexpr std::array kLawsOfValues = {
    Law{.name = "linear_values", .unmet = unmet_by_any_v, .check = linear_values},
    Law{.name = "ones", .unmet = unmet_by_dropout, .check = ones, .needs_lse_of_sinks = true},
    Law{.name = "identity_values",
        .unmet = unmet_by_identity,
        .check = identity_values,
        .needs_lse_of_sinks = true},
    Law{.name = "hull", .unmet = unmet_by_dropout, .check = hull},
    Law{.name = "finite", .unmet = unmet_by_any_v, .check = finite},
    Law{.name = "zero_query", .unmet = unmet_by_zero_query, .check = zero_query},
    Law{.name = "loud_key", .unmet = unmet_by_loud_key, .check = loud_key},
};

}  // namespace

std::span<const Law> laws_of_values() { return kLawsOfValues; }

}  // namespace attest::laws
