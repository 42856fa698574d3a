// Gradients are slopes: along a direction, the loss of the exact forward pass changes as the
// testee's gradient says (LAW-16).
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/laws/law.h"
#include "harness/laws/variant.h"
#include "reference/exact.h"

namespace attest::laws {
namespace {

// How precise a type is, and a step that balances the errors of a difference: h^2 of what the
// series leaves out, roundoff / h of what the values are.
template <class T>
struct Step {
  static constexpr int kDigits = 64, kExponent = -16;
};
template <>
struct Step<exact::Quad> {
  static constexpr int kDigits = 113, kExponent = -32;
};

// The largest sum of magnitudes over the channels of a row.
double largest_row(const Values& x) {
  const std::size_t channels = static_cast<std::size_t>(x.shape[kChannel]);
  double most = 0;
  for (std::size_t n = 0; channels > 0 && n < x.data.size(); n += channels) {
    double sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += std::abs(x.data[n + c]);
    most = std::max(most, sum);
  }
  return most;
}

std::string unmet_by_directions(const Problem& p, const Inputs& in) {
  if (!p.backward) return "there are no gradients";
  // A step in K moves a score by as much as Q has, and the other way round; it has to be small.
  const double step = std::ldexp(
      1.0, p.dtype == DType::f64 ? Step<exact::Quad>::kExponent : Step<long double>::kExponent);
  const double moved = step * std::abs(p.scale) * std::max(largest_row(in.q), largest_row(in.k));
  if (!(moved <= 0.25 * (p.softcap > 0 ? std::min(1.0, p.softcap) : 1))) {
    return "a score changes too much from one step to the next";
  }
  const double work = static_cast<double>(p.batch * p.query_heads) *
                      static_cast<double>(p.query_len) * static_cast<double>(p.key_len) *
                      static_cast<double>(p.head_dim + p.value_dim + 32);
  const double most = p.dtype == DType::f64 ? 1 << 14 : 1 << 20;
  return work > most ? "differences of so many elements take too long" : "";
}

// A direction has a sign for each element of one tensor; the second leaves out two of three.
double direction(std::size_t element, int which) {
  std::uint64_t x = element * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(which) + 1;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  if (which == 1 && x % 3 != 0) return 0;
  return x >> 40 & 1 ? 1 : -1;
}

template <class T>
T loss_of(const Problem& p, const exact::Inputs<T>& in) {
  const exact::Outputs<T> out = exact::forward(p, in);
  T loss = 0;
  for (std::size_t n = 0; n < out.o.data.size(); ++n) loss += in.d_o.data[n] * out.o.data[n];
  for (std::size_t n = 0; p.d_lse && n < out.lse.data.size(); ++n) {
    if (out.lse.data[n] > T(-1e30)) loss += in.d_lse.data[n] * out.lse.data[n];
  }
  return loss;
}

// How far rounding may take that loss, in unit roundoffs, where no input moves by more than
// `moved`. O and LSE may be far smaller than what they are made of: V may cancel, and LSE is the
// logarithm of a sum behind the largest score.
double roundoffs_of(const Problem& p, const Inputs& in, double moved) {
  const auto total = [](const Values& x) {
    double sum = 0;
    for (const double each : x.data) sum += std::isfinite(each) ? std::abs(each) : 0;
    return sum;
  };
  const auto largest = [&](const Values& x) {
    double most = 0;
    for (const double each : x.data)
      most = std::isfinite(each) ? std::max(most, std::abs(each)) : most;
    return most + moved;
  };
  const auto channels = static_cast<double>(p.head_dim), keys = static_cast<double>(p.key_len) + 1;
  // A score at most, and by how much it is off: of its sum of products, and what is added to that.
  const double score = std::abs(p.scale) * (largest_row(in.q) + channels * moved) * largest(in.k) +
                       largest(in.bias) + largest(in.sink) +
                       largest(in.slopes) * static_cast<double>(p.query_len + p.key_len);
  const double of_score = (channels + 8) * score;
  // A weight errs by as much as its score and the largest one, and by the sum of all.
  const double of_o = largest(in.v) / (1 - p.dropout.probability) * (2 * of_score + 2 * keys + 8);
  const double of_lse = of_score + score + 2 * keys + 8;
  // The sum over all elements, and what is of second order.
  const double terms = static_cast<double>(in.d_o.data.size() + in.d_lse.data.size());
  return 2 * (total(in.d_o) * (of_o + terms * largest(in.v)) +
              total(in.d_lse) * (of_lse + terms * (score + keys)));
}

// The slope of the loss along a direction in the tensor that `pick` picks, give or take its error.
template <class T>
Known slope(const Problem& p, const Inputs& inputs, exact::Tensor<T> exact::Inputs<T>::*pick,
            int which) {
  const auto moved = [&](const T& step) {
    exact::Inputs<T> in = exact::inputs_as<T>(inputs);
    std::vector<T>& data = (in.*pick).data;
    for (std::size_t n = 0; n < data.size(); ++n) data[n] += step * T(direction(n, which));
    return loss_of(p, in);
  };
  const auto difference = [&](double step) -> T {
    return (moved(T(step)) - moved(T(-step))) / T(2 * step);
  };
  const double step = std::ldexp(1.0, Step<T>::kExponent);
  const T wide = difference(2 * step), narrow = difference(step);
  // The series leaves out a third of what the two differ by, but for h^4.
  const long double left_out = std::abs(static_cast<long double>(T(wide - narrow)));
  const long double rounding =
      std::ldexp(roundoffs_of(p, inputs, 2 * step), -Step<T>::kDigits - Step<T>::kExponent);
  return widened(exactly(static_cast<long double>(narrow)), left_out + rounding);
}

template <class T>
void check_directions(Experiment& experiment) {
  const Sample& first = experiment.first();
  struct Gradient {
    TensorName tensor;
    exact::Tensor<T> exact::Inputs<T>::*of;
  };
  const Gradient gradients[] = {{TensorName::dq, &exact::Inputs<T>::q},
                                {TensorName::dk, &exact::Inputs<T>::k},
                                {TensorName::dv, &exact::Inputs<T>::v},
                                {TensorName::dbias, &exact::Inputs<T>::bias},
                                {TensorName::dsink, &exact::Inputs<T>::sink}};
  for (const Gradient& gradient : gradients) {
    if (!first.has(gradient.tensor)) continue;
    const Result result = first[gradient.tensor];
    for (const int which : {0, 1}) {
      Known along = exactly(0);
      for (Index n = 0; n < element_count(result.shape()); ++n) {
        const double sign = direction(static_cast<std::size_t>(n), which);
        if (sign != 0) along = along + sign * result.at(coordinates(result.shape(), n));
      }
      experiment.expect_slope(gradient.tensor, along,
                              slope<T>(first.problem(), first.inputs(), gradient.of, which));
    }
  }
}

void directions(Experiment& experiment) {
  if (experiment.first().problem().dtype == DType::f64) {
    check_directions<exact::Quad>(experiment);
  } else {
    check_directions<long double>(experiment);
  }
}

constexpr std::array kLawsOfDirections = {
    Law{.name = "directions", .unmet = unmet_by_directions, .check = directions},
};

}  // namespace

std::span<const Law> laws_of_directions() { return kLawsOfDirections; }

}  // namespace attest::laws
