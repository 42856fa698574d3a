// What must not matter: keys that a row does not see (HIDE-1), what was called before (DET-1), and
// who drew a keep-mask (DROP-3).
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"

namespace attest::laws {
namespace {

// A flag for each stored key of each key head.
class KeyFlags {
 public:
  explicit KeyFlags(const Problem& p) : p_(p), shape_(p.k_shape()) {
    flags_.resize(static_cast<std::size_t>(shape_[0] * shape_[1] * shape_[2]));
  }
  // Of the key of a batch element and query head.
  void set(const Position& at) { flags_[of(at)] = true; }
  bool test(const Position& at) const { return flags_[of(at)]; }
  // Of the keys of a reach, for all key heads of a batch element.
  void set(Index b, const Reach& keys) {
    for (Position at = {.batch = b}; at.head < p_.query_heads; at.head += p_.group_size()) {
      for (at.key = keys.begin; at.key < keys.end; ++at.key) set(at);
    }
  }
  bool stored(Index b, Index h, Index s) const { return flags_[index(b, h, s)]; }

 private:
  std::size_t index(Index b, Index h, Index s) const {
    return static_cast<std::size_t>((b * shape_[1] + h) * shape_[2] + s);
  }
  std::size_t of(const Position& at) const {
    const Place place = p_.key_place(at.batch, at.key);
    return index(place.batch, at.head / p_.group_size(), place.position);
  }

  const Problem& p_;
  Shape shape_;
  std::vector<bool> flags_;
};

// Calls visit(position) for each pair that is visible.
template <class Visit>
void for_each_visible(const Sample& sample, const Visit& visit) {
  const Problem& p = sample.problem();
  for_each_query(p, [&](const Position& row, const Place&) {
    Position at = row;
    for (at.key = 0; at.key < p.lengths(row.batch).key; ++at.key) {
      if (sample.sees(at)) visit(at);
    }
  });
}

// The keys that some row sees.
KeyFlags seen_keys(const Sample& sample) {
  const Problem& p = sample.problem();
  KeyFlags seen(p);
  if (!has_reaches(p)) {
    for_each_visible(sample, [&](const Position& at) { seen.set(at); });
    return seen;
  }
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.lengths(b).key; ++j) {
      if (queries_that_see(p, b, j).size() > 0) seen.set(b, {j, j + 1});
    }
  }
  return seen;
}

// ---- Keys that a row does not see (HIDE-1) -----------------------------------------------------

std::string unmet_by_hidden_keys(const Problem& p, const Inputs& in) {
  for (const Values* values : {&in.k, &in.v}) {
    for (const double x : values->data) {
      if (std::abs(x) > 1024) return "K and V are so large that others might overflow";
    }
  }
  return p.query_len > 0 ? "" : "there are no queries";
}

// Other numbers for a key: twice its neighbours in the other direction, or, where nobody at all
// sees it, as large as keeps products with Q and dO finite in the accumulator, and those with Q in
// the format in which scores are stored.
Values with_other_keys(const Values& values, DType dtype, double huge, const KeyFlags& kept,
                       const KeyFlags& seen) {
  return tabulated(values.shape, [&](Index b, Index h, Index s, Index c) {
    if (kept.stored(b, h, s)) return values.at(b, h, s, c);
    const double next = values.at(b, h, s, (c + 1) % values.shape[3]);
    if (seen.stored(b, h, s)) return -2 * next;
    return round_to(dtype, (c + s) % 2 == 0 ? huge : -huge);
  });
}

// One row of each head keeps its keys, and with it whatever row sees no other keys.
Index row_kept(const Problem& p, Index b) { return p.lengths(b).query / 3; }

KeyFlags kept_keys(const Sample& sample) {
  const Problem& p = sample.problem();
  KeyFlags kept(p);
  if (has_reaches(p)) {
    for (Index b = 0; b < p.batch; ++b) kept.set(b, keys_seen(p, b, row_kept(p, b)));
  } else {
    for_each_visible(sample, [&](const Position& at) {
      if (at.query == row_kept(p, at.batch)) kept.set(at);
    });
  }
  return kept;
}

// Rows that see a key that is not kept, and keys that such a row sees.
class Moved {
 public:
  Moved(const Sample& sample, const KeyFlags& kept)
      : p_(sample.problem()),
        rows_(static_cast<std::size_t>(p_.batch * p_.query_heads * p_.query_len)),
        keys_(p_) {
    if (has_reaches(p_)) {
      find_by_reaches();
      return;
    }
    for_each_visible(sample, [&](const Position& at) {
      if (!kept.test(at)) rows_[index(at)] = true;
    });
    for_each_visible(sample, [&](const Position& at) {
      if (row(at)) keys_.set(at);
    });
  }

  bool row(const Position& at) const { return rows_[index(at)]; }
  bool key(const Position& at) const { return keys_.test(at); }

 private:
  std::size_t index(const Position& at) const {
    return static_cast<std::size_t>((at.batch * p_.query_heads + at.head) * p_.query_len +
                                    at.query);
  }

  void find_by_reaches() {
    for_each_query(p_, [&](const Position& row, const Place&) {
      const Reach keys = keys_seen(p_, row.batch, row.query);
      rows_[index(row)] = !keys.within(keys_seen(p_, row.batch, row_kept(p_, row.batch)));
    });
    for (Index b = 0; b < p_.batch; ++b) {
      std::vector<Index> moved_before = {0};
      for (Index i = 0; i < p_.lengths(b).query; ++i) {
        moved_before.push_back(moved_before.back() + row({.batch = b, .query = i}));
      }
      for (Index j = 0; j < p_.lengths(b).key; ++j) {
        const Reach rows = queries_that_see(p_, b, j);
        const auto count = [&](Index i) { return moved_before[static_cast<std::size_t>(i)]; };
        if (rows.size() > 0 && count(rows.end) > count(rows.begin)) keys_.set(b, {j, j + 1});
      }
    }
  }

  const Problem& p_;
  std::vector<bool> rows_;
  KeyFlags keys_;
};

void hidden_keys(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const KeyFlags kept = kept_keys(first), seen = seen_keys(first);
  const double wide = p.dtype == DType::f64 ? 1e300 : 1e36, most = largest_finite(p.dtype) / 4;
  const double of_scores = experiment.stores_scores() ? std::min(wide, most) : wide;
  const auto huge = [&](double room, Index channels, double factor) {
    return std::min(most, room / (static_cast<double>(std::max<Index>(channels, 1)) * factor));
  };
  Variant variant = {p, first.inputs()};
  Inputs& in = variant.inputs;
  const double q_most = std::max(1.0, largest_of(in.q)) * std::max(1.0, std::abs(p.scale));
  in.k = with_other_keys(in.k, p.dtype, huge(of_scores, p.head_dim, q_most), kept, seen);
  in.v = with_other_keys(in.v, p.dtype, huge(wide, p.value_dim, std::max(1.0, largest_of(in.d_o))),
                         kept, seen);
  const Sample* other = experiment.attempt(std::move(variant));
  if (!other) return;

  const Moved moved(first, kept);
  const std::string how = "with other numbers in keys that it does not see";
  const bool bits = experiment.deterministic();
  const auto compare = [&](TensorName tensor, const At& at) {
    const Result ours = first[tensor], theirs = (*other)[tensor];
    if (bits) return experiment.expect_same_bits(ours, at, theirs, at, how);
    experiment.expect_equal(tensor, at, ours.at(at), theirs.at(at), how);
  };
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (moved.row(row)) return;
    for (const TensorName tensor : kQueryTensors) {
      if (!first.has(tensor)) continue;
      const Index channels = first[tensor].shape()[kChannel];
      for (Index c = 0; c < channels; ++c)
        compare(tensor, {place.batch, row.head, place.position, c});
    }
  });
  if (!p.backward) return;
  for (Index b = 0; b < p.batch; ++b) {
    for (Position at = {.batch = b}; at.key < p.lengths(b).key; ++at.key) {
      const Place place = p.key_place(b, at.key);
      for (Index h = 0; h < p.key_heads; ++h) {
        at.head = h * p.group_size();
        if (moved.key(at) || !kept.test(at)) continue;
        for (const TensorName tensor : kKeyTensors) {
          const Index channels = first[tensor].shape()[kChannel];
          for (Index c = 0; c < channels; ++c) compare(tensor, {place.batch, h, place.position, c});
        }
      }
    }
  }
}

std::string unmet_by_unseen_keys(const Problem& p, const Inputs&) {
  return p.backward ? "" : "there are no gradients";
}

// Keys that nobody sees have no gradient, and neither have rows that see nobody.
void unseen_keys(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  const KeyFlags seen = seen_keys(first);
  const Shape shape = p.k_shape();
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index s = 0; s < shape[2]; ++s) {
        if (seen.stored(b, h, s)) continue;
        for (Index c = 0; c < p.head_dim; ++c) {
          experiment.expect_exactly(first[TensorName::dk], {b, h, s, c}, 0,
                                    "for a key that nobody sees");
        }
        for (Index c = 0; c < p.value_dim; ++c) {
          experiment.expect_exactly(first[TensorName::dv], {b, h, s, c}, 0,
                                    "for a key that nobody sees");
        }
      }
    }
  }
  for_each_query(p, [&](const Position& row, const Place& place) {
    if (first.sees_any(row)) return;
    for (Index c = 0; c < p.head_dim; ++c) {
      experiment.expect_exactly(first[TensorName::dq], {place.batch, row.head, place.position, c},
                                0, "for a row that sees no key");
    }
  });
}

// ---- What was called before (DET-1) ------------------------------------------------------------

std::string unmet_by_no_law(const Problem&, const Inputs&) { return ""; }

void after_others(Experiment& experiment) {
  const Sample& first = experiment.first();
  const Problem& p = first.problem();
  // The same sizes with other numbers and another scale; then other sizes.
  Variant same_sizes = {p, first.inputs()};
  same_sizes.problem.scale *= -1.5;
  for (double& k : same_sizes.inputs.k.data) k = -k;
  for (double& v : same_sizes.inputs.v.data) v = round_to(p.dtype, 1 - v / 2);
  Variant small = {{.dtype = p.dtype,
                    .batch = 1,
                    .query_heads = 1,
                    .key_heads = 1,
                    .query_len = 3,
                    .key_len = 5,
                    .head_dim = p.head_dim,
                    .value_dim = p.value_dim,
                    .scale = 0.75,
                    .backward = p.backward},
                   {}};
  const auto any = [](Index, Index, Index s, Index c) {
    return static_cast<double>((s * 5 + c * 3) % 7 - 3);
  };
  small.inputs.q = tabulated(small.problem.q_shape(), any);
  small.inputs.k = tabulated(small.problem.k_shape(), any);
  small.inputs.v = tabulated(small.problem.v_shape(), any);
  if (p.backward) small.inputs.d_o = tabulated(small.problem.o_shape(), any);
  if (!experiment.attempt(same_sizes) || !experiment.attempt(std::move(small))) return;
  // What the forward call left for the backward one may not be another call's.
  const Sample* again = experiment.attempt({p, first.inputs()}, &same_sizes);
  if (!again) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(first, *again, tensor, "after other problems",
                           experiment.deterministic());
  }
}

// ---- Who drew the keep-mask (DROP-3) -----------------------------------------------------------

std::string unmet_by_drawn_as_given(const Problem& p, const Inputs&) {
  return p.dropout.mode == Dropout::Mode::generated ? "" : "the testee draws no keep-mask";
}

void drawn_as_given(Experiment& experiment) {
  const Sample& first = experiment.first();
  Variant variant = {first.problem(), first.inputs()};
  variant.problem.dropout.mode = Dropout::Mode::given;
  const Sample* given = experiment.attempt(std::move(variant));
  if (!given) return;
  for (const TensorName tensor : kReturnedTensors) {
    experiment.expect_same(first, *given, tensor, "where the mask that it drew is given");
  }
}

constexpr std::array kLawsOfIsolation = {
    Law{.name = "hidden_keys",
        .unmet = unmet_by_hidden_keys,
        .check = hidden_keys,
        .in_bits = true},
    Law{.name = "unseen_keys",
        .unmet = unmet_by_unseen_keys,
        .check = unseen_keys,
        .in_bits = true},
    Law{.name = "after_others",
        .unmet = unmet_by_no_law,
        .check = after_others,
        .knows_drawing = true,
        .in_bits = true},
    Law{.name = "drawn_as_given",
        .unmet = unmet_by_drawn_as_given,
        .check = drawn_as_given,
        .knows_drawing = true},
};

}  // namespace

std::span<const Law> laws_of_isolation() { return kLawsOfIsolation; }

}  // namespace attest::laws
