#include "cases/side_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/random_source.h"
#include "spec/assert.h"

namespace attest {
namespace {

// The numbers of a tensor beside Q, K, V and dO: its random numbers come from its name.
template <class Make>
Values fill_named(const Case& test_case, TensorName tensor, const Shape& shape, DType dtype,
                  const Layout& layout, Make make) {
  Values values = zeros(shape);
  const auto key = key_of(test_case, tensor);
  for (Index i = 0; i < element_count(shape); ++i) {
    const Coordinates at = canonical(layout, coordinates(shape, i));
    ElementRandom random(key, dense_index(shape, at[0], at[1], at[2], at[3]), 0);
    values.data[static_cast<std::size_t>(i)] = round_to(dtype, make(at, random));
  }
  return values;
}

struct Kind {
  std::string_view name;
  double (*make)(const Coordinates&, ElementRandom&);
};
constexpr Kind kBiasKinds[] = {
    // As large as the scores.
    {"normal", [](const Coordinates&, ElementRandom& random) { return 2 * random.normal(); }},
    // Exact in every format; another element of the table is another number.
    {"integers", [](const Coordinates&,
                    ElementRandom& random) { return static_cast<double>(random.integer(-8, 8)); }},
    // Falls with the distance from the diagonal, differently for each head and batch element.
    {"ramp",
     [](const Coordinates& at, ElementRandom&) {
       const auto distance = std::min<Index>(std::abs(at[2] - at[3]), 60);
       return -static_cast<double>(distance) / (4 << ((at[0] + at[1]) % 3));
     }},
    // Below what stands for -inf in some kernels (-10000): a masked key would win. Exact in every
    // format; a third of the keys counts.
    {"deep",
     [](const Coordinates&, ElementRandom& random) {
       return -20480 + 128 * static_cast<double>(random.integer(-1, 1));
     }},
    // The only thing that counts: a bias read from a wrong place is another row of P.
    {"loud", [](const Coordinates&,
                ElementRandom& random) { return 8 * static_cast<double>(random.integer(-2, 2)); }},
};
constexpr Kind kSinkKinds[] = {
    // Takes a few per cent of a row of some tens of keys.
    {"normal", [](const Coordinates&, ElementRandom& random) { return 2 + random.normal(); }},
    // Takes nearly all, and is above every score.
    {"dominant", [](const Coordinates&, ElementRandom& random) { return 7 + random.normal(); }},
    // Far below all scores: what is first merged into it must be rescaled.
    {"negligible", [](const Coordinates&, ElementRandom& random) { return -40 + random.normal(); }},
};

template <std::size_t N>
std::vector<std::string> names_of(const Kind (&kinds)[N]) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

template <std::size_t N>
auto kind_named(const Kind (&kinds)[N], const std::string& name) {
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const Kind& known) { return known.name == name; });
  ATTEST_ASSERT(kind != std::end(kinds));
  return kind->make;
}

// 2^(-8/heads) to the power of head + 1, as ALiBi has it for powers of two; heads beyond one take
// every other slope of twice as many.
double standard_slope(Index head, Index heads) {
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  if (head >= power) {
    head = 2 * (head - power);
    power *= 2;
  }
  double root = power_of_two(-8);
  for (Index n = power; n > 1; n /= 2) root = std::sqrt(root);
  double slope = 1;
  for (Index n = 0; n <= head; ++n) slope *= root;
  return slope;
}

}  // namespace

std::vector<std::string> bias_kinds() { return names_of(kBiasKinds); }
std::vector<std::string> sink_kinds() { return names_of(kSinkKinds); }

Values make_bias(const Case& test_case) {
  const Problem& p = test_case.problem;
  Values bias = fill_named(test_case, TensorName::bias, *p.bias_shape, p.dtype, p.layouts.bias,
                           kind_named(kBiasKinds, test_case.extras.bias));
  const auto& allowed = test_case.extras.bias_allows.allowed;
  ATTEST_ASSERT(allowed.empty() || allowed.size() == bias.data.size());
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const auto [b, h, q, k] =
        canonical(p.layouts.bias, coordinates(bias.shape, static_cast<Index>(i)));
    if (allowed[static_cast<std::size_t>(dense_index(bias.shape, b, h, q, k))]) continue;
    bias.data[i] = -std::numeric_limits<double>::infinity();
  }
  return bias;
}

Values make_slopes(const Case& test_case) {
  const Problem& p = test_case.problem;
  const auto& given = test_case.extras.slopes;
  Values slopes = zeros(*p.slopes_shape);
  for (std::size_t i = 0; i < slopes.data.size(); ++i) {
    const auto [b, h, s, d] = coordinates(slopes.shape, static_cast<Index>(i));
    // Each further batch element has other slopes.
    const double slope =
        given.empty() ? standard_slope(h, p.query_heads) * static_cast<double>(b + 1) : given[i];
    slopes.data[i] = round_to(DType::f32, slope);
  }
  return slopes;
}

Values make_sink(const Case& test_case) {
  return fill_named(test_case, TensorName::sink, test_case.problem.sink_shape(), DType::f32, {},
                    kind_named(kSinkKinds, test_case.extras.sink));
}

Values make_d_lse(const Case& test_case) {
  const Problem& p = test_case.problem;
  const auto any = [](const Coordinates&, ElementRandom& random) { return random.normal(); };
  return fill_named(test_case, TensorName::d_lse, p.lse_shape(), p.lse_dtype(), {}, any);
}

}  // namespace attest
