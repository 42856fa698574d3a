#include "cases/hide_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/input_classes.h"
#include "cases/stored_inputs.h"

namespace attest {
namespace {

// For each key head and stored key, whether anybody's key lies there (within the lengths), and
// whether any row sees it.
struct KeyUse {
  std::vector<bool> exists, seen;  // in dense order of [batch, head, position] as stored
};
KeyUse use_of_keys(const Problem& p, const Inputs& inputs) {
  const Shape shape = p.k_shape();
  const auto count = static_cast<std::size_t>(shape[0] * shape[1] * shape[2]);
  KeyUse use{.exists = std::vector<bool>(count), .seen = std::vector<bool>(count)};
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.lengths(b).key; ++j) {
      const Place place = p.key_place(b, j);
      for (Index h = 0; h < p.key_heads; ++h) {
        const auto index =
            static_cast<std::size_t>((place.batch * shape[1] + h) * shape[2] + place.position);
        use.exists[index] = true;
        for (Index of_group = 0; of_group < p.group_size() && !use.seen[index]; ++of_group) {
          for (Index i = 0; i < p.query_len && !use.seen[index]; ++i) {
            use.seen[index] =
                sees(p, inputs,
                     {.batch = b, .head = h * p.group_size() + of_group, .query = i, .key = j});
          }
        }
      }
    }
  }
  return use;
}

double largest(const Values& values) {
  double most = 1;
  for (const double value : values.data) most = std::max(most, std::abs(value));
  return most;
}

// Finite numbers for hidden keys: as large as keeps every product with Q and dO finite in the
// accumulator, and those with Q in the format of the inputs, where that is asked for.
struct HugeNumbers {
  double k, v;
};
HugeNumbers huge_numbers(const Problem& p, const Inputs& inputs, Hidden hidden) {
  const double room = p.dtype == DType::f64 ? 1e300 : 1e36;
  const double most = largest_finite(p.dtype) / 4;
  const double of_scores = hidden == Hidden::large ? std::min(room, most) : room;
  const auto times = [](Index channels) {
    return static_cast<double>(std::max<Index>(channels, 1));
  };
  return {.k = std::min(
              most, of_scores / (times(p.head_dim) * largest(inputs.q) * std::max(1.0, reach(p)))),
          .v = std::min(most, room / (times(p.value_dim) * largest(inputs.d_o)))};
}

// Overwrites the row of `values` at (b, h, s), as it is stored, with NaN and infinities.
void poison(MainTensor tensor, Values& values, const RandomSource& source, Index b, Index h,
            Index s) {
  for (Index d = 0; d < values.shape[kChannel]; ++d) {
    ElementRandom random = source.random(tensor, {b, h, s, d}, 2);
    const double side = random.sign();
    values.at(b, h, s, d) = random.integer(0, 1) == 0
                                ? std::numeric_limits<double>::quiet_NaN()
                                : side * std::numeric_limits<double>::infinity();
  }
}

void hide_keys(const Case& test_case, const RandomSource& source, Inputs& inputs) {
  const Problem& p = test_case.problem;
  const HugeNumbers sizes = huge_numbers(p, inputs, test_case.hidden);
  const bool finite = test_case.hidden == Hidden::huge || test_case.hidden == Hidden::large;
  const KeyUse use = use_of_keys(p, inputs);
  const auto overwrite = [&](MainTensor tensor, Values& values, double size, Index b, Index h,
                             Index s) {
    if (!finite) return poison(tensor, values, source, b, h, s);
    for (Index d = 0; d < values.shape[kChannel]; ++d) {
      const double side = source.random(tensor, {b, h, s, d}, 2).sign();
      values.at(b, h, s, d) = side * round_to(p.dtype, size);
    }
  };
  std::size_t index = 0;
  for (Index b = 0; b < inputs.k.shape[kBatch]; ++b) {
    for (Index h = 0; h < p.key_heads; ++h) {
      for (Index s = 0; s < inputs.k.shape[kPosition]; ++s, ++index) {
        const bool hidden = test_case.hidden == Hidden::nan ? !use.exists[index]
                            : finite                        ? !use.seen[index]
                                                            : use.exists[index] && !use.seen[index];
        if (!hidden) continue;
        overwrite(kK, inputs.k, sizes.k, b, h, s);
        overwrite(kV, inputs.v, sizes.v, b, h, s);
      }
    }
  }
}

// Scales of K and V that no key beneath a length has.
void hide_scales(const Problem& p, Inputs& inputs) {
  for (Values* scales : {&inputs.k_scale, &inputs.v_scale}) {
    if (scales->data.empty()) continue;
    const std::vector<bool> used = scales_in_use(p, inputs.k.shape, scales->shape, true);
    for (std::size_t n = 0; n < used.size(); ++n) {
      if (!used[n]) scales->data[n] = std::numeric_limits<double>::quiet_NaN();
    }
  }
}

// Queries beyond a length: all that is told of them.
void hide_rows(const Problem& p, const RandomSource& source, Inputs& inputs) {
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = p.lengths(b).query; i < p.query_len; ++i) {
        poison(kQ, inputs.q, source, b, h, i);
        if (p.backward) poison(kDO, inputs.d_o, source, b, h, i);
        if (p.d_lse) inputs.d_lse.at(b, h, i, 0) = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

// Whether a row of this head isn't finite. Some heads are clean in every batch element, since dSink
// sums over the batch, and some groups are, since dK and dV sum over the group; of a single group,
// some batch elements are.
bool is_spoilt(const Problem& p, Index b, Index head, bool of_keys) {
  const Index group = of_keys ? head : head / p.group_size();
  const bool clean_group = p.key_heads > 1 ? group % 2 == 1 : b % 2 == 1;
  return !clean_group && head % 2 == 0;
}

// One row of each such head, and some of its channels only.
void poison_some(const Case& test_case, const RandomSource& source, Inputs& inputs) {
  const Problem& p = test_case.problem;
  const auto [tensor, values] = test_case.hidden == Hidden::nan_query ? std::pair(kQ, &inputs.q)
                                : test_case.hidden == Hidden::nan_key ? std::pair(kK, &inputs.k)
                                : test_case.hidden == Hidden::nan_value
                                    ? std::pair(kV, &inputs.v)
                                    : std::pair(kDO, &inputs.d_o);
  const bool of_keys = tensor == kK || tensor == kV;
  for (Index b = 0; b < p.batch; ++b) {
    const Index rows = of_keys ? p.lengths(b).key : p.lengths(b).query;
    for (Index h = 0; h < values->shape[kHead] && rows > 0; ++h) {
      if (!is_spoilt(p, b, h, of_keys)) continue;
      const Index row = source.random(tensor, {b, h, 0, 0}, 3).integer(0, rows - 1);
      const Place place = of_keys ? p.key_place(b, row) : p.query_place(b, row);
      Values whole = *values;
      poison(tensor, whole, source, place.batch, h, place.position);
      for (Index d = 0; d < values->shape[kChannel]; d += 3) {
        values->at(place.batch, h, place.position, d) = whole.at(place.batch, h, place.position, d);
      }
    }
  }
}

}  // namespace

void hide(const Case& test_case, const RandomSource& source, Inputs& inputs) {
  switch (test_case.hidden) {
    case Hidden::plain:
      return;
    case Hidden::huge:
    case Hidden::large:
    case Hidden::nan:
    case Hidden::nan_masked:
      return hide_keys(test_case, source, inputs);
    case Hidden::nan_scales:
      return hide_scales(test_case.problem, inputs);
    case Hidden::nan_rows:
      return hide_rows(test_case.problem, source, inputs);
    case Hidden::nan_query:
    case Hidden::nan_key:
    case Hidden::nan_value:
    case Hidden::nan_gradient:
      return poison_some(test_case, source, inputs);
  }
}

}  // namespace attest
