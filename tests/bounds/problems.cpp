#include "tests/bounds/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/bounds/random.h"

namespace attest::bounds {
namespace {

constexpr std::array kFeatureNames = {"softcap", "bias",   "ALiBi",  "sink",   "dLSE",
                                      "dropout", "packed", "stored", "blocks", "plain"};
constexpr std::array kKindNames = {"normal",
                                   "logits 10",
                                   "logits 50",
                                   "heavy tails",
                                   "near ties",
                                   "equal",
                                   "one-hot",
                                   "ascending",
                                   "q = 0",
                                   "V +-1000",
                                   "V in halves",
                                   "V around 100",
                                   "equal large scores",
                                   "huge scores",
                                   "late maximum",
                                   "outliers",
                                   "large",
                                   "tiny",
                                   "subnormal"};

// Random numbers for one purpose of one problem.
Random stream(const Subject& subject, std::uint64_t purpose) {
  return Random(subject.seed,
                64 * subject.number + 2 * purpose + (subject.problem.backward ? 1 : 0));
}

DenseMask random_table(const Shape& shape, double share, Random& random) {
  DenseMask table = {.shape = shape, .allowed = {}};
  for (Index e = 0; e < element_count(shape); ++e) table.allowed.push_back(random.chance(share));
  return table;
}

SegmentNumbers random_segments(Index batches, Index length, Random& random) {
  SegmentNumbers numbers = {.batches = batches, .length = length};
  for (Index b = 0; b < batches; ++b) {
    std::int32_t segment = 0;
    for (Index i = 0; i < length; ++i) {
      if (random.chance(0.15)) ++segment;
      numbers.number.push_back(segment);
    }
  }
  return numbers;
}

Mask random_mask(const Problem& p, Random& random, int depth = 0) {
  const Anchor anchor = random.chance(0.5) ? Anchor::bottom_right : Anchor::top_left;
  const auto axis = [&](Index size) { return random.chance(0.5) ? size : Index(1); };
  switch (random.below(depth == 0 ? 9 : 6)) {
    case 0:
      return Mask::causal(anchor, random.between(-2, 2));
    case 1:
      return Mask::window(random.below(9), random.below(5), anchor, random.between(-3, 3));
    case 2:
      return Mask::dense(random_table(
          {axis(p.batch), axis(p.query_heads), axis(p.query_len), axis(p.key_len)}, 0.7, random));
    case 3:
      return Mask::documents({.query = random_segments(p.batch, p.query_len, random),
                              .key = random_segments(1, p.key_len, random)});
    case 4: {
      const Index bq = random.between(1, 8), bk = random.between(1, 8);
      return Mask::block_sparse(
          bq, bk,
          random_table({axis(p.batch), axis(p.query_heads), (p.query_len + bq - 1) / bq,
                        (p.key_len + bk - 1) / bk},
                       0.6, random));
    }
    case 5:
      return Mask::dilated(random.between(1, 5), anchor, random.below(3));
    case 6:
      return Mask::any_of({Mask::prefix({random.between(0, p.key_len)}), Mask::causal(anchor)});
    case 7:
      return Mask::all_of({random_mask(p, random, 1), random_mask(p, random, 1)});
    default:
      return Mask::any_of({random_mask(p, random, 1), random_mask(p, random, 1)});
  }
}

std::vector<Index> random_lens(Index batch, Index most, bool reach, Random& random) {
  std::vector<Index> lens;
  for (Index b = 0; b < batch; ++b) lens.push_back(random.between(0, most));
  if (reach) lens[static_cast<std::size_t>(random.below(batch))] = most;
  return lens;
}

}  // namespace

std::string feature_name(int feature) { return kFeatureNames[static_cast<std::size_t>(feature)]; }
std::string kind_name(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::string Subject::name() const {
  return fmt::format("{}{}", problem.backward ? 'b' : 'f', number);
}

Subject make_subject(std::uint64_t seed, bool backward, std::uint64_t number) {
  Subject subject = {.seed = seed, .number = number, .problem = {}, .kind = {}, .has = {}};
  Problem& p = subject.problem;
  p.backward = backward;
  Random random = stream(subject, 0);
  p.dtype = random.pick(kDTypes);
  subject.kind = static_cast<Kind>(random.below(kKinds));

  // Mostly small; now and then a medium one, in one batch element.
  const bool medium = number % 400 == 399, larger = number % 5000 == 4999;
  p.batch = medium || larger ? 1 : random.between(1, 2);
  p.key_heads = larger ? 1 : random.between(1, 2);
  p.query_heads = p.key_heads * (larger ? 1 : random.between(1, 3));
  p.query_len = larger ? 256 : medium ? 64 : random.between(1, 12);
  p.key_len = larger ? 256 : medium ? 64 : random.between(1, 40);
  p.head_dim = medium || larger ? 64 : random.between(1, 24);
  p.value_dim = medium || larger ? 32 : random.between(1, 16);
  p.scale = random.pick(std::array{1 / std::sqrt(double(p.head_dim)), 0.3, 1.0, -0.5, 0.125});

  if (random.chance(0.75)) {
    for (bool& each : subject.has) {
      if (&each != &subject.has[kBlocks]) each = random.chance(0.25);
    }
  }
  bool* const has = subject.has;
  has[kBlocks] = false;  // until something is stored
  has[kDLse] = has[kDLse] && backward;
  has[kFeatures] = true;
  for (int feature = 0; feature < kFeatures; ++feature) has[kFeatures] &= !has[feature];

  if (has[kPacked]) {
    p.packed = true;
    p.batch = random.between(1, 3);
    p.query_lens = random_lens(p.batch, p.query_len, true, random);
    p.key_lens = random_lens(p.batch, p.key_len, true, random);
  } else {
    if (random.chance(0.2)) p.query_lens = random_lens(p.batch, p.query_len, false, random);
    if (random.chance(0.2)) p.key_lens = random_lens(p.batch, p.key_len, false, random);
  }
  if (random.chance(0.5)) p.mask = random_mask(p, random);
  if (has[kSoftcap]) p.softcap = random.pick(std::array{0.7, 5.0, 30.0, 50.0});
  const auto axis = [&](Index size) { return random.chance(0.6) ? size : Index(1); };
  if (has[kBias]) {
    p.bias_shape = {axis(p.batch), axis(p.query_heads), axis(p.query_len), axis(p.key_len)};
  }
  if (has[kAlibi]) p.slopes_shape = {axis(p.batch), p.query_heads, 1, 1};
  p.sink = has[kSink];
  if (has[kDropout]) {
    p.dropout.mode = Dropout::Mode::given;
    p.dropout.probability = random.pick(std::array{0.1, 0.2, 0.5, 0.9});
  }
  p.d_lse = has[kDLse];
  has[kStored] = !backward && p.dtype != DType::f64 && random.chance(0.2);
  if (has[kStored]) {
    has[kFeatures] = false;
    const auto any = [&] {
      return Stored{.dtype = random.pick(kStoredDTypes),
                    .by_batch = random.chance(0.5),
                    .by_head = random.chance(0.5),
                    .by_position = random.chance(0.5)};
    };
    p.stored.k = any();
    if (random.chance(0.6)) p.stored.q = any();
    if (!p.stored.q || random.chance(0.6)) p.stored.v = any();
    const bool in_blocks = has[kBlocks] = random.chance(0.4);
    for (std::optional<Stored>* each : {&p.stored.q, &p.stored.k, &p.stored.v}) {
      if (in_blocks && *each) *each = Stored::in_blocks((*each)->dtype);
    }
  }
  return subject;
}

namespace {

// Rounds the numbers to what is stored times scales, by which the largest of each lies within the
// format's range, or far below it.
void store(const std::optional<Stored>& stored, Random& random, Values& values, Values& scales) {
  if (!stored) return;
  scales = zeros(stored->scale_shape(values.shape));
  const double most = largest_finite(stored->dtype);
  for_each_with_scale(values, scales, [](double value, double& largest) {
    largest = std::max(largest, std::abs(value));
  });
  for (double& scale : scales.data) {
    const double room = (1 + random.uniform()) * random.pick(std::array{1.0, 1.0, 64.0});
    const double fitting = std::clamp(scale / most * room, kLeastScale, kMostScale);
    scale =
        stored->by_channels ? power_of_two(exponent_of(fitting)) : round_to(DType::f32, fitting);
  }
  for_each_with_scale(values, scales, [&](double& value, double scale) {
    value = round_to(stored->dtype, std::clamp(value / scale, -most, most)) * scale;
  });
}

constexpr std::array kPlainDTypes = {DType::f32, DType::f16, DType::bf16};
constexpr std::uint64_t kPlainKinds = static_cast<std::uint64_t>(Kind::offset_v) + 1;

std::vector<std::size_t> plain_sizes(bool backward) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 0; n < kPlainSizes.size(); ++n) {
    if (kPlainSizes[n].backward == backward) sizes.push_back(n);
  }
  return sizes;
}

}  // namespace

std::uint64_t plain_round(bool backward) {
  return kPlainDTypes.size() * kPlainKinds * plain_sizes(backward).size();
}

Subject make_plain_subject(std::uint64_t seed, bool backward, std::uint64_t number) {
  const auto sizes = plain_sizes(backward);
  const std::uint64_t inputs = number / kPlainDTypes.size(), place = inputs / kPlainKinds;
  Subject subject = {.seed = seed,
                     .number = number,
                     .problem = {},
                     .kind = static_cast<Kind>(inputs % kPlainKinds),
                     .has = {},
                     .size = sizes[place % sizes.size()]};
  const PlainSize& size = kPlainSizes[*subject.size];
  Problem& p = subject.problem;
  p.dtype = kPlainDTypes[number % kPlainDTypes.size()];
  p.backward = backward;
  p.batch = size.batch;
  p.query_heads = backward ? 2 : 1;
  p.query_len = size.query_len;
  p.key_len = size.key_len;
  p.head_dim = p.value_dim = size.head_dim;
  p.scale = 1 / std::sqrt(double(p.head_dim));
  if (backward) {
    // Another of the four for the same inputs in the next size, and in the next round.
    const std::uint64_t turn = inputs + place + place / sizes.size();
    if (turn & 1) p.mask = Mask::causal(Anchor::bottom_right, 0);
    if (turn & 2) p.softcap = 30;
  }
  subject.has[kSoftcap] = p.softcap > 0;
  subject.has[kFeatures] = !subject.has[kSoftcap];
  return subject;
}

Inputs make_inputs(const Subject& subject) {
  const Problem& p = subject.problem;
  Random random = stream(subject, 1);
  const auto draw_in = [](DType dtype, const Shape& shape, const auto& value) {
    Values result = zeros(shape);
    for (Index e = 0; e < element_count(shape); ++e) {
      result.data[static_cast<std::size_t>(e)] = round_to(dtype, value(coordinates(shape, e)));
    }
    return result;
  };
  const auto draw = [&](const Shape& shape, const auto& value) {
    return draw_in(p.dtype, shape, value);
  };
  using Place4 = std::array<Index, 4>;
  const auto normal = [&](const Place4&) { return random.normal(); };
  // Student's t with two degrees of freedom, clipped where f16 would overflow.
  const auto heavy = [&](const Place4&) {
    const double chi = -2 * std::log(random.uniform());
    return std::clamp(random.normal() / std::sqrt(chi / 2), -1000.0, 1000.0);
  };
  const auto times = [&](double factor) {
    return [&random, factor](const Place4&) { return factor * random.normal(); };
  };
  const auto constant = [](double value) { return [value](const Place4&) { return value; }; };
  const double large = has_short_range(p.dtype) ? 300 : random.chance(0.5) ? 300 : 1e12;
  const double smallest = smallest_normal(p.dtype);

  Inputs in = {.q = draw(p.q_shape(), normal),
               .k = draw(p.k_shape(), normal),
               .v = draw(p.v_shape(), normal)};
  if (p.backward) in.d_o = draw(p.o_shape(), normal);
  const auto spread = [&](double deviation) {
    in.q =
        draw(p.q_shape(), times(deviation / (std::sqrt(double(p.head_dim)) * std::abs(p.scale))));
  };
  switch (subject.kind) {
    case Kind::normal:
      break;
    case Kind::logits_10:
      spread(10);
      break;
    case Kind::logits_50:
      spread(50);
      break;
    case Kind::heavy_tails:
      in.q = draw(p.q_shape(), heavy);
      in.k = draw(p.k_shape(), heavy);
      in.v = draw(p.v_shape(), heavy);
      if (p.backward) in.d_o = draw(p.o_shape(), heavy);
      break;
    case Kind::near_ties:
      in.k = draw(p.k_shape(), [&](const Place4& c) {
        return 1 + 0.25 * double(c[3] % 3) + 0x1p-6 * double(random.below(2));
      });
      break;
    case Kind::equal:
      in.q = draw(p.q_shape(), constant(0.7));
      in.k = draw(p.k_shape(), constant(1.3));
      in.v = draw(p.v_shape(), constant(1.5));
      break;
    case Kind::one_hot: {
      const auto hot = [&](const Place4& c) { return c[2] % p.head_dim == c[3] ? 8.0 : 0.0; };
      in.q = draw(p.q_shape(), hot);
      in.k = draw(p.k_shape(), hot);
      break;
    }
    case Kind::ascending:
      in.q = draw(p.q_shape(), constant(1));
      in.k = draw(p.k_shape(),
                  [&](const Place4& c) { return 0.1 * double(c[2]) + 0.01 * random.normal(); });
      break;
    case Kind::zero_q:
      in.q = zeros(p.q_shape());
      in.v = draw(p.v_shape(), [&](const Place4&) { return double(random.between(-1000, 1000)); });
      break;
    case Kind::alternating:
      in.v = draw(p.v_shape(), [](const Place4& c) { return c[2] % 2 ? -1000.0 : 1000.0; });
      break;
    case Kind::halves:
      in.v = draw(p.v_shape(),
                  [&](const Place4& c) { return c[2] < p.key_len / 2 ? 1000.0 : -1000.0; });
      break;
    case Kind::offset_v:
      in.v = draw(p.v_shape(), [&](const Place4&) { return 100 + random.normal(); });
      break;
    case Kind::offset_scores: {
      const double size = random.pick(std::array{30.0, 300.0});
      in.q = draw(p.q_shape(),
                  [&](const Place4& c) { return c[3] == 0 ? size : 0.1 * random.normal(); });
      in.k = draw(p.k_shape(), [&](const Place4& c) { return c[3] == 0 ? 3.0 : random.normal(); });
      if (random.chance(0.5))
        in.v = draw(p.v_shape(), [&](const Place4&) { return 100 + random.normal(); });
      break;
    }
    case Kind::huge_scores:
      in.q = draw(p.q_shape(), times(3000));
      in.k = draw(p.k_shape(), times(1000));
      break;
    case Kind::late_maximum: {
      const Index late = random.between(1, 20);
      in.q = draw(p.q_shape(), [](const Place4& c) { return c[3] == 0 ? 1.0 : 0.0; });
      in.k = draw(p.k_shape(), [&](const Place4& c) {
        return ((c[2] < late ? -5.0 : 0.0) + 0.1 * random.normal()) / p.scale;
      });
      if (random.chance(0.5)) {
        in.v = draw(p.v_shape(), [&](const Place4&) { return random.chance(0.5) ? 1.0 : -1.0; });
      }
      break;
    }
    case Kind::outliers:
      in.k = draw(p.k_shape(),
                  [&](const Place4&) { return random.normal() * (random.chance(0.03) ? 10 : 1); });
      in.v = draw(p.v_shape(),
                  [&](const Place4&) { return random.normal() * (random.chance(0.03) ? 100 : 1); });
      break;
    case Kind::large:
      in.v = draw(p.v_shape(), times(large));
      if (p.backward) in.d_o = draw(p.o_shape(), times(large));
      break;
    case Kind::tiny:
      in.q = draw(p.q_shape(), times(1e-3));
      in.v = draw(p.v_shape(), times(1e-7));
      if (p.backward) in.d_o = draw(p.o_shape(), times(1e-6));
      break;
    case Kind::subnormal: {
      const auto small = [&](const Place4&) {
        return random.normal() * (random.chance(0.5) ? smallest : 1);
      };
      in.q = draw(p.q_shape(), small);
      in.k = draw(p.k_shape(), small);
      in.v = draw(p.v_shape(), times(random.chance(0.5) ? smallest : 1));
      if (p.backward) in.d_o = draw(p.o_shape(), small);
      break;
    }
  }

  if (p.bias_shape) {
    const double size = random.pick(std::array{1.0, 5.0, 50.0});
    const double hidden = random.pick(std::array{0.0, 0.1, 0.6});
    in.bias = draw(*p.bias_shape, [&](const Place4&) {
      return random.chance(hidden) ? -std::numeric_limits<double>::infinity()
                                   : size * random.normal();
    });
  }
  if (p.slopes_shape) {
    in.slopes = draw_in(DType::f32, *p.slopes_shape,
                        [&](const Place4&) { return std::exp2(-8 * random.uniform()); });
  }
  if (p.sink) {
    const double size = random.pick(std::array{1.0, 10.0, 100.0});
    in.sink = draw_in(DType::f32, p.sink_shape(), times(size));
  }
  if (p.dropout.mode != Dropout::Mode::none) {
    in.keep.shape = p.keep_shape();
    for (Index e = 0; e < element_count(in.keep.shape); ++e) {
      in.keep.kept.push_back(!random.chance(p.dropout.probability));
    }
  }
  if (p.d_lse) {
    in.d_lse =
        draw_in(p.lse_dtype(), p.lse_shape(), times(random.pick(std::array{0.01, 1.0, 100.0})));
  }
  store(p.stored.q, random, in.q, in.q_scale);
  store(p.stored.k, random, in.k, in.k_scale);
  store(p.stored.v, random, in.v, in.v_scale);
  return in;
}

}  // namespace attest::bounds
