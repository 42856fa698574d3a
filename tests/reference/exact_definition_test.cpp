// The exact reference against what defines each feature in terms of plainer ones: ALiBi is a bias,
// a sink is a key, masks of all kinds are tables, a bias of -inf is a mask, packed and paged
// sequences are dense ones alone. Where the two sides do the same sums, to the bit.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/exact.h"
#include "tests/reference/filled.h"
#include "tests/reference/random_problem.h"

namespace attest::exact {
namespace {

const double kMinusInfinity = -std::numeric_limits<double>::infinity();

template <typename T>
struct Results {
  Outputs<T> forward;
  Gradients<T> backward;
};

// The gradients stay empty where there is no backward pass.
template <typename T>
Results<T> results(const Problem& problem, const Inputs<T>& in) {
  Results<T> all = {forward(problem, in), {}};
  if (problem.backward) all.backward = backward(problem, in);
  return all;
}

// Equal to the bit, except that +0 is -0 (and NaN is nothing).
template <typename T>
bool same(const Results<T>& a, const Results<T>& b) {
  return a.forward.o.data == b.forward.o.data && a.forward.lse.data == b.forward.lse.data &&
         a.backward.dq.data == b.backward.dq.data && a.backward.dk.data == b.backward.dk.data &&
         a.backward.dv.data == b.backward.dv.data &&
         a.backward.dbias.data == b.backward.dbias.data &&
         a.backward.dsink.data == b.backward.dsink.data;
}

// Equal but for the rounding of sums in 100 digits, or to `digits`.
bool near(const Tensor<Digits100>& a, const Tensor<Digits100>& b, int digits = 90) {
  if (a.shape != b.shape) return false;
  const Digits100 tolerance = pow(Digits100(10), -digits);
  for (std::size_t n = 0; n < a.data.size(); ++n) {
    const Digits100 &x = a.data[n], &y = b.data[n];
    if (x == y) continue;  // -inf too
    if (!(abs(Digits100(x - y)) <= tolerance * (1 + abs(y)))) return false;
  }
  return true;
}

// The elements of the score matrix that a mask allows, by painting them: no question is ever asked
// of a single element.
std::vector<std::uint8_t> painted(const Mask& mask, const Problem& problem) {
  using Kind = Mask::Kind;
  const Shape shape = problem.keep_shape();
  std::vector<std::uint8_t> table(static_cast<std::size_t>(element_count(shape)));
  const auto paint = [&](Index b, Index h, Index i, Index j) {
    if (i < 0 || i >= shape[2] || j < 0 || j >= shape[3]) return;
    table[static_cast<std::size_t>(dense_index(shape, b, h, i, j))] = 1;
  };
  // Calls row(b, h, i, diagonal) for all queries.
  const auto each_row = [&](const auto& row) {
    for (Index b = 0; b < shape[0]; ++b) {
      for (Index h = 0; h < shape[1]; ++h) {
        for (Index i = 0; i < shape[2]; ++i) {
          Index diagonal = i + mask.offset;
          if (mask.anchor == Anchor::bottom_right) {
            diagonal += problem.lengths(b).key - problem.lengths(b).query;
          }
          row(b, h, i, diagonal);
        }
      }
    }
  };
  switch (mask.kind) {
    case Kind::full:
      std::fill(table.begin(), table.end(), std::uint8_t(1));
      break;
    case Kind::band:
      each_row([&](Index b, Index h, Index i, Index diagonal) {
        const Index first = mask.left == kUnbounded ? 0 : diagonal - mask.left;
        const Index last = mask.right == kUnbounded ? shape[3] : diagonal + mask.right;
        for (Index j = first; j <= last; ++j) paint(b, h, i, j);
      });
      break;
    case Kind::dilated:
      each_row([&](Index b, Index h, Index i, Index diagonal) {
        const Index far = shape[2] + shape[3] + 10;
        for (Index step = -far; step <= far; ++step)
          paint(b, h, i, diagonal + step * mask.dilation);
      });
      break;
    case Kind::prefix:
      each_row([&](Index b, Index h, Index i, Index) {
        const bool shared = mask.prefix_lens.size() == 1;
        const Index len = shared ? mask.prefix_lens[0] : mask.prefix_lens.at(std::size_t(b));
        for (Index j = 0; j < len; ++j) paint(b, h, i, j);
      });
      break;
    case Kind::segments: {
      const auto positions = [](const SegmentNumbers& numbers, Index b, std::int32_t wanted) {
        std::vector<Index> found;
        const Index start = numbers.batches == 1 ? 0 : b * numbers.length;
        for (Index n = 0; n < numbers.length; ++n) {
          if (numbers.number.at(std::size_t(start + n)) == wanted) found.push_back(n);
        }
        return found;
      };
      for (Index b = 0; b < shape[0]; ++b) {
        for (std::int32_t document = 0; document <= 9; ++document) {
          for (const Index i : positions(mask.segments->query, b, document)) {
            for (const Index j : positions(mask.segments->key, b, document)) {
              for (Index h = 0; h < shape[1]; ++h) paint(b, h, i, j);
            }
          }
        }
      }
      break;
    }
    case Kind::dense:
    case Kind::block_sparse: {
      // Each entry is a rectangle; an axis that broadcasts makes it as long as the axis.
      const Shape& entries = mask.table->shape;
      const bool blocks = mask.kind == Kind::block_sparse;
      Shape size = {1, 1, blocks ? mask.block_query : 1, blocks ? mask.block_key : 1};
      for (std::size_t axis = 0; axis < (blocks ? 2u : 4u); ++axis) {
        if (entries[axis] == 1) size[axis] = shape[axis];
      }
      for (Index n = 0; n < element_count(entries); ++n) {
        if (mask.table->allowed[std::size_t(n)] == 0) continue;
        const auto [b, h, i, j] = coordinates(entries, n);
        for (Index m = 0; m < element_count(size); ++m) {
          const auto [db, dh, di, dj] = coordinates(size, m);
          paint(b * size[0] + db, h * size[1] + dh, i * size[2] + di, j * size[3] + dj);
        }
      }
      break;
    }
    case Kind::all_of:
    case Kind::any_of: {
      const bool all = mask.kind == Kind::all_of;
      std::fill(table.begin(), table.end(), std::uint8_t(all));
      for (const Mask& part : mask.parts) {
        const std::vector<std::uint8_t> other = painted(part, problem);
        for (std::size_t n = 0; n < table.size(); ++n) {
          table[n] = all ? table[n] & other[n] : table[n] | other[n];
        }
      }
      break;
    }
  }
  return table;
}

RC_GTEST_PROP(ExactDefinitionTest, EveryMaskIsTheTableOfWhatItAllows,
              (const RandomProblem<6>& random)) {
  Problem painted_mask = random.problem;
  painted_mask.mask =
      Mask::dense({random.problem.keep_shape(), painted(random.problem.mask, random.problem)});
  const Inputs<double> in = inputs_as<double>(random.inputs);
  RC_ASSERT(same(results(random.problem, in), results(painted_mask, in)));
}

// One batch element of a problem as a problem of its own: dense, without lengths, its mask and bias
// written out.
struct Alone {
  Problem problem;
  Inputs<Digits100> in;
};

Alone alone(const Problem& whole, const Inputs<Digits100>& in, Index b) {
  using T = Digits100;
  const auto [query_len, key_len] = whole.lengths(b);
  Problem one = whole;
  one.batch = 1;
  one.query_len = query_len;
  one.key_len = key_len;
  one.query_lens = one.key_lens = {};
  one.packed = false;
  one.paging = {};
  const Shape scores = one.keep_shape();
  const auto at = [b](Index h, Index i, Index j) {
    return Position{.batch = b, .head = h, .query = i, .key = j};
  };
  DenseMask table = {scores, {}};
  Keep keep = {scores, {}};
  for (Index n = 0; n < element_count(scores); ++n) {
    const auto [none, h, i, j] = coordinates(scores, n);
    table.allowed.push_back(whole.mask.allows(at(h, i, j), whole.lengths(b)));
    if (!in.keep.kept.empty()) keep.kept.push_back(in.keep.at(at(h, i, j)));
  }
  one.mask = Mask::dense(std::move(table));
  if (whole.bias_shape) one.bias_shape = scores;
  if (whole.slopes_shape) one.slopes_shape = Shape{1, whole.query_heads, 1, 1};

  const auto queries = [&](const Tensor<T>& tensor, const Shape& shape) {
    return filled<T>(shape, [&](Index, Index h, Index i, Index c) {
      return query_element(whole, tensor, at(h, i, 0), c);
    });
  };
  const auto keys = [&](const Tensor<T>& tensor, const Shape& shape) {
    return filled<T>(shape, [&](Index, Index g, Index j, Index c) {
      const Place place = whole.key_place(b, j);
      return tensor.at(place.batch, g, place.position, c);
    });
  };
  const auto broadcast = [&](const Tensor<T>& tensor, const Shape& shape) {
    return filled<T>(shape, [&](Index, Index h, Index i, Index j) {
      return broadcast_element(tensor, at(h, i, j));
    });
  };
  Inputs<T> cut = {.q = queries(in.q, one.q_shape()),
                   .k = keys(in.k, one.k_shape()),
                   .v = keys(in.v, one.v_shape()),
                   .sink = in.sink,
                   .keep = std::move(keep)};
  if (one.bias_shape) cut.bias = broadcast(in.bias, *one.bias_shape);
  if (one.slopes_shape) cut.slopes = broadcast(in.slopes, *one.slopes_shape);
  if (one.backward) cut.d_o = queries(in.d_o, one.o_shape());
  if (one.d_lse) cut.d_lse = queries(in.d_lse, one.lse_shape());
  return {std::move(one), std::move(cut)};
}

// LAYOUT-5, PAGE-1, MASK-5, MASK-6. What is no element's row or key is 0, its LSE -inf.
RC_GTEST_PROP(ExactDefinitionTest, PackedPagedAndPaddedBatchElementsAreThoseElementsAlone,
              (const RandomProblem<5>& random)) {
  using T = Digits100;
  const Problem& problem = random.problem;
  const Inputs<T> in = inputs_as<T>(random.inputs);
  const Results<T> whole = results(problem, in);

  Results<T> together = whole;
  for (Tensor<T>* tensor :
       {&together.forward.o, &together.backward.dq, &together.backward.dk, &together.backward.dv,
        &together.backward.dbias, &together.backward.dsink}) {
    std::fill(tensor->data.begin(), tensor->data.end(), T(0));
  }
  std::fill(together.forward.lse.data.begin(), together.forward.lse.data.end(), T(kMinusInfinity));
  for (Index b = 0; b < problem.batch; ++b) {
    const auto [one, in_one] = alone(problem, in, b);
    const Results<T> part = results(one, in_one);
    const auto put = [](const Tensor<T>& from, Tensor<T>& to, const auto& place) {
      for (Index n = 0; n < element_count(from.shape); ++n) {
        const auto [none, h, s, c] = coordinates(from.shape, n);
        const Place at = place(s);
        to.at(at.batch, h, at.position, c) = from.data[std::size_t(n)];
      }
    };
    const auto query_place = [&, b = b](Index i) { return problem.query_place(b, i); };
    put(part.forward.o, together.forward.o, query_place);
    put(part.forward.lse, together.forward.lse, query_place);
    if (!problem.backward) continue;
    const auto key_place = [&, b = b](Index j) { return problem.key_place(b, j); };
    put(part.backward.dq, together.backward.dq, query_place);
    put(part.backward.dk, together.backward.dk, key_place);
    put(part.backward.dv, together.backward.dv, key_place);
    for (Index n = 0; problem.bias_shape && n < element_count(*one.bias_shape); ++n) {
      const auto [none, h, i, j] = coordinates(*one.bias_shape, n);
      broadcast_element(together.backward.dbias, {b, h, i, j}) +=
          part.backward.dbias.data[std::size_t(n)];
    }
    for (std::size_t h = 0; h < part.backward.dsink.data.size(); ++h) {
      together.backward.dsink.data[h] += part.backward.dsink.data[h];
    }
  }
  RC_ASSERT(near(whole.backward.dbias, together.backward.dbias));
  RC_ASSERT(near(whole.backward.dsink, together.backward.dsink));
  together.backward.dbias = whole.backward.dbias;  // sums in another order
  together.backward.dsink = whole.backward.dsink;
  RC_ASSERT(same(whole, together));
}

// SCORE-4
RC_GTEST_PROP(ExactDefinitionTest, AlibiIsABias, (RandomProblem<5, kTraining> random)) {
  using T = Digits100;
  Problem& with = random.problem;
  with.slopes_shape = {one_or(with.batch), with.query_heads, 1, 1};
  random.inputs.slopes = any_values(*with.slopes_shape);
  const Inputs<T> in = inputs_as<T>(random.inputs);

  Problem without = with;
  without.slopes_shape = {};
  without.bias_shape = with.keep_shape();
  Inputs<T> in_without = in;
  in_without.slopes = {};
  in_without.bias = filled<T>(with.keep_shape(), [&](Index b, Index h, Index i, Index j) {
    const Position at = {b, h, i, j};
    const T bias = with.bias_shape ? broadcast_element(in.bias, at) : T(0);
    const double distance =
        static_cast<double>(with.lengths(b).key - 1 - j - (with.lengths(b).query - 1 - i));
    return T(bias - broadcast_element(in.slopes, at) * T(std::abs(distance)));
  });
  const Results<T> one = results(with, in), other = results(without, in_without);
  RC_ASSERT(near(one.forward.o, other.forward.o));
  RC_ASSERT(near(one.forward.lse, other.forward.lse));
  RC_ASSERT(near(one.backward.dq, other.backward.dq));
  RC_ASSERT(near(one.backward.dk, other.backward.dk));
  RC_ASSERT(near(one.backward.dv, other.backward.dv));
  RC_ASSERT(near(one.backward.dsink, other.backward.dsink));
}

// SINK-1, SINK-2, EMPTY-4: the sink is one key more, which all existing queries see, with K and V
// of 0 and the sink as its bias. Dropout may have what it likes of it.
constexpr Possible kPaddedOnly = {.alibi = false, .packed = false, .paged = false};
RC_GTEST_PROP(ExactDefinitionTest, ASinkIsAKeyWithoutValue,
              (RandomProblem<4, kPaddedOnly> random)) {
  using T = Digits100;
  Problem& with = random.problem;
  with.sink = true;
  random.inputs.sink = any_values(with.sink_shape());
  const Inputs<T> in = inputs_as<T>(random.inputs);

  const Index last = with.key_len;
  Problem without = with;
  without.sink = false;
  without.key_len = last + 1;
  without.key_lens = {};
  const Shape scores = without.keep_shape();
  without.bias_shape = scores;
  DenseMask table = {scores, {}};
  Keep keep = {scores, {}};
  for (Index n = 0; n < element_count(scores); ++n) {
    const auto [b, h, i, j] = coordinates(scores, n);
    const Position at = {b, h, i, j};
    table.allowed.push_back(j == last || visible(with, at));
    keep.kept.push_back(j == last ? i % 2 == 0 : in.keep.kept.empty() || in.keep.at(at));
  }
  without.mask = Mask::dense(std::move(table));
  Inputs<T> in_without = in;
  const auto longer = [&](const Tensor<T>& tensor, const Shape& shape) {
    return filled<T>(shape, [&](Index b, Index g, Index j, Index c) {
      return j == last ? T(0) : tensor.at(b, g, j, c);
    });
  };
  in_without.k = longer(in.k, without.k_shape());
  in_without.v = longer(in.v, without.v_shape());
  in_without.keep = std::move(keep);
  in_without.sink = {};
  in_without.bias = filled<T>(scores, [&](Index b, Index h, Index i, Index j) {
    if (j == last) return in.sink.at(0, h, 0, 0);
    return with.bias_shape ? broadcast_element(in.bias, {b, h, i, j}) : T(0);
  });

  const Results<T> one = results(with, in), other = results(without, in_without);
  const auto shorter = [&](const Tensor<T>& tensor, const Shape& shape) {
    return filled<T>(shape, [&](auto... at) { return tensor.at(at...); });
  };
  Tensor<T> dsink(with.sink_shape());
  for (Index n = 0; n < element_count(scores); ++n) {
    const auto [b, h, i, j] = coordinates(scores, n);
    if (j == last) dsink.at(0, h, 0, 0) += other.backward.dbias.data[std::size_t(n)];
  }
  RC_ASSERT(near(one.forward.o, other.forward.o));
  RC_ASSERT(near(one.forward.lse, other.forward.lse));
  RC_ASSERT(near(one.backward.dq, other.backward.dq));
  RC_ASSERT(near(one.backward.dk, shorter(other.backward.dk, with.k_shape())));
  RC_ASSERT(near(one.backward.dv, shorter(other.backward.dv, with.v_shape())));
  RC_ASSERT(near(one.backward.dsink, dsink));
}

// MASK-14: whatever number stands where the mask hides.
RC_GTEST_PROP(ExactDefinitionTest, ABiasOfMinusInfinityIsAMask, (RandomProblem<5> random)) {
  Problem& biased = random.problem;
  biased.bias_shape = any_broadcast(biased.keep_shape());
  random.inputs.bias = any_values(*biased.bias_shape);
  DenseMask table = {*biased.bias_shape, any_bits(*biased.bias_shape)};
  const Inputs<double> in_masked = inputs_as<double>(random.inputs);
  Inputs<double> in_biased = in_masked;
  for (std::size_t n = 0; n < table.allowed.size(); ++n) {
    if (table.allowed[n] == 0) in_biased.bias.data[n] = kMinusInfinity;
  }
  Problem masked = biased;
  masked.mask = Mask::all_of({biased.mask, Mask::dense(std::move(table))});
  RC_ASSERT(same(results(biased, in_biased), results(masked, in_masked)));
}

// A bias that every key of a row has in common shifts LSE and nothing else, unless there is a sink.
constexpr Possible kNoSink = {.sink = false};
RC_GTEST_PROP(ExactDefinitionTest, ABiasOfAWholeRowMovesItsLseAlone,
              (RandomProblem<5, kNoSink> random)) {
  using T = Digits100;
  Problem& biased = random.problem;
  biased.bias_shape = {1, biased.query_heads, biased.query_len, 1};
  random.inputs.bias = any_values(*biased.bias_shape);
  const Inputs<T> in = inputs_as<T>(random.inputs);
  Problem plain = biased;
  plain.bias_shape = {};
  Results<T> shifted = results(plain, in);
  for (Index b = 0; b < plain.batch; ++b) {
    for (Index h = 0; h < plain.query_heads; ++h) {
      for (Index i = 0; i < plain.lengths(b).query; ++i) {
        query_element(plain, shifted.forward.lse, {b, h, i, 0}, 0) += in.bias.at(0, h, i, 0);
      }
    }
  }
  const Results<T> got = results(biased, in);
  RC_ASSERT(near(got.forward.o, shifted.forward.o));
  RC_ASSERT(near(got.forward.lse, shifted.forward.lse));
  RC_ASSERT(near(got.backward.dq, shifted.backward.dq));
  RC_ASSERT(near(got.backward.dk, shifted.backward.dk));
  RC_ASSERT(near(got.backward.dv, shifted.backward.dv));
}

// DROP-1
RC_GTEST_PROP(ExactDefinitionTest, DropoutThatKeepsAllAtProbabilityZeroIsNone,
              (RandomProblem<5> random)) {
  Problem none = random.problem, all = random.problem;
  none.dropout = {};
  all.dropout = {.mode = any_of<Dropout::Mode>({Dropout::Mode::given, Dropout::Mode::generated})};
  Inputs<double> in = inputs_as<double>(random.inputs);
  in.keep = {all.keep_shape(), std::vector<std::uint8_t>(
                                   static_cast<std::size_t>(element_count(all.keep_shape())), 1)};
  RC_ASSERT(same(results(none, in), results(all, in)));
}

// DROP-1, DROP-2: where all queries of a group drop the same keys, it is as if the values of the
// others had been divided by 1 - p, and those of the dropped ones were 0. LSE doesn't change.
RC_GTEST_PROP(ExactDefinitionTest, DroppingAKeyForAllQueriesScalesItsValues,
              (RandomProblem<5, kTraining> random)) {
  using T = Digits100;
  Problem& dropping = random.problem;
  dropping.dropout = {.mode = Dropout::Mode::given, .probability = any_of<double>({0.25, 0.1})};
  const Shape keys = {dropping.batch, dropping.key_heads, 1, dropping.key_len};
  const Keep of_key = {keys, any_bits(keys)};
  Inputs<T> in = inputs_as<T>(random.inputs);
  in.keep = {dropping.keep_shape(), {}};
  Problem plain = dropping;
  plain.dropout = {};
  Inputs<T> in_plain = in;
  const auto factor = [&](const Position& at) {
    const bool kept = of_key.at(
        {.batch = at.batch, .head = at.head / dropping.group_size(), .query = 0, .key = at.key});
    return kept ? 1 / (1 - T(dropping.dropout.probability)) : T(0);
  };
  for_each_position(dropping, [&](const Position& at) { in.keep.kept.push_back(factor(at) > 0); });
  // Each stored value once: through the first head of its group.
  const auto scale = [&](Tensor<T>& tensor) {
    for (Index b = 0; b < dropping.batch && dropping.query_heads > 0; ++b) {
      for (Index g = 0; g < dropping.key_heads; ++g) {
        for (Index j = 0; j < dropping.stored_keys(b); ++j) {
          for (Index c = 0; c < dropping.value_dim; ++c) {
            const Position at = {b, g * dropping.group_size(), 0, j};
            key_element(dropping, tensor, at, c) *= factor(at);
          }
        }
      }
    }
  };
  scale(in_plain.v);
  const Results<T> got = results(dropping, in);
  Results<T> expected = results(plain, in_plain);
  scale(expected.backward.dv);
  RC_ASSERT(got.forward.lse.data == expected.forward.lse.data);
  RC_ASSERT(near(got.forward.o, expected.forward.o));
  RC_ASSERT(near(got.backward.dq, expected.backward.dq));
  RC_ASSERT(near(got.backward.dk, expected.backward.dk));
  RC_ASSERT(near(got.backward.dv, expected.backward.dv));
  RC_ASSERT(near(got.backward.dbias, expected.backward.dbias));
  RC_ASSERT(near(got.backward.dsink, expected.backward.dsink));
}

// SCORE-2: c tanh(x / c) is x (1 - (x/c)^2 / 3 ...).
RC_GTEST_PROP(ExactDefinitionTest, AHugeSoftcapIsNone, (RandomProblem<4> random)) {
  using T = Digits100;
  Problem none = random.problem, huge = random.problem;
  none.softcap = 0;
  huge.softcap = 1e30;
  const Inputs<T> in = inputs_as<T>(random.inputs);
  const Results<T> got = results(huge, in), expected = results(none, in);
  constexpr int kDigits = 45;
  RC_ASSERT(near(got.forward.o, expected.forward.o, kDigits));
  RC_ASSERT(near(got.forward.lse, expected.forward.lse, kDigits));
  RC_ASSERT(near(got.backward.dq, expected.backward.dq, kDigits));
  RC_ASSERT(near(got.backward.dk, expected.backward.dk, kDigits));
  RC_ASSERT(near(got.backward.dv, expected.backward.dv, kDigits));
  RC_ASSERT(near(got.backward.dbias, expected.backward.dbias, kDigits));
}

}  // namespace
}  // namespace attest::exact
