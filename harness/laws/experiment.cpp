#include "harness/laws/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/judge/judge.h"
#include "harness/judge/schedule.h"
#include "spec/assert.h"

namespace attest::laws {
namespace {

const Returned* find_returned(const Trial& trial, TensorName tensor) {
  const auto found = std::find_if(trial.returned.begin(), trial.returned.end(),
                                  [&](const Returned& r) { return r.name == tensor; });
  return found == trial.returned.end() ? nullptr : &*found;
}

const Expected& expected_in(TensorName tensor, const Bounds& bounds) {
  return is_gradient(tensor) ? bounds.backward()[tensor] : bounds.forward()[tensor];
}

// Makes what it is asked for when it is asked first; copies share it.
template <class Made, class Make>
std::function<const Made&()> once(Make make) {
  return [made = std::make_shared<std::optional<Made>>(), make]() -> const Made& {
    if (!*made) *made = make();
    return **made;
  };
}

std::string name_of(TensorName tensor, const At& place) {
  return fmt::format("{}[{}]", name(tensor), fmt::join(place, ","));
}

}  // namespace

Known Result::at(const At& place) const {
  if (!is_judged(place)) return nothing_known();
  const auto element =
      static_cast<std::size_t>(dense_index(tensor_.shape, place[0], place[1], place[2], place[3]));
  return returned(tensor_.dtype, value(place), expected_.bound[element], rounding_);
}

Known Result::cell(const At& place) const {
  return returned(tensor_.dtype, value(place), 0, rounding_);
}

bool Result::is_judged(const At& place) const {
  const auto element =
      static_cast<std::size_t>(dense_index(tensor_.shape, place[0], place[1], place[2], place[3]));
  const bool unspecified = !expected_.value.empty() && std::isnan(expected_.value[element]);
  return !unspecified && !exemptions_.unjudged(tensor_.name, tensor_.shape, element);
}

// ---- A sample ----------------------------------------------------------------------------------

Bounds reference_bounds(const Problem& problem, const Inputs& inputs,
                        const Arithmetic& arithmetic) {
  return {.forward = once<ForwardExpected>([&problem, &inputs, arithmetic] {
            return expect_forward(problem, inputs, arithmetic);
          }),
          .backward = once<BackwardExpected>([&problem, &inputs, arithmetic] {
            return expect_backward(problem, inputs, arithmetic);
          })};
}

Bounds coarse_bounds(const Problem& problem, const Inputs& inputs, const Arithmetic& arithmetic) {
  const auto backward = once<CoarseBackward>(
      [&problem, &inputs, arithmetic] { return coarse_backward(problem, inputs, arithmetic); });
  return {.forward = once<ForwardExpected>([&problem, &inputs, arithmetic] {
            return coarse_forward(problem, inputs, arithmetic);
          }),
          .backward = [backward]() -> const BackwardExpected& { return backward().each; },
          .sums = [backward]() -> const KeySums& { return backward().sums; }};
}

Sample::Sample(const Problem& problem, const Inputs& inputs, const Trial& trial,
               const Description& testee, const Arithmetic& arithmetic, Bounds bounds)
    : problem_(problem),
      inputs_(inputs),
      trial_(trial),
      arithmetic_(arithmetic),
      exemptions_(problem, inputs, testee),
      bounds_(std::move(bounds)) {}

bool Sample::has(TensorName tensor) const { return find_returned(trial_, tensor); }

Result Sample::operator[](TensorName tensor) const {
  const Returned* found = find_returned(trial_, tensor);
  ATTEST_ASSERT(found);
  return Result(*found, expected_in(tensor, bounds_), rounding_of(tensor, arithmetic_),
                exemptions_);
}

Known Sample::o(const Position& row, Index c) const {
  const Place place = problem_.query_place(row.batch, row.query);
  return (*this)[TensorName::o].at({place.batch, row.head, place.position, c});
}

Known Sample::lse(const Position& row) const {
  const Place place = problem_.query_place(row.batch, row.query);
  return (*this)[TensorName::lse].at({place.batch, row.head, place.position, 0});
}

Known Sample::sum_over_keys(TensorName tensor, Index b, Index h, Index c) const {
  const Result result = (*this)[tensor];
  const Index channels = result.shape()[kChannel];
  double bound = 0;
  if (is_long()) {
    const KeySums& sums = bounds_.sums();
    bound = (tensor == TensorName::dk
                 ? sums.dk
                 : sums.dv)[static_cast<std::size_t>((b * problem_.key_heads + h) * channels + c)];
  }
  Known sum = exactly(0);
  for (Index j = 0; j < problem_.lengths(b).key; ++j) {
    const Place place = problem_.key_place(b, j);
    const At at = {place.batch, h, place.position, c};
    sum = sum + (is_long() ? result.cell(at) : result.at(at));
  }
  return bound < HUGE_VAL ? widened(sum, bound) : nothing_known();
}

bool Sample::sees(const Position& at) const { return attest::sees(problem_, inputs_, at); }

bool Sample::sees_any(Position row) const {
  if (has_reaches(problem_)) return keys_seen(problem_, row.batch, row.query).size() > 0;
  for (row.key = 0; row.key < problem_.lengths(row.batch).key; ++row.key) {
    if (sees(row)) return true;
  }
  return false;
}

// ---- An experiment -----------------------------------------------------------------------------

// Owns all that its sample refers to.
struct Experiment::Attempt {
  Variant variant;
  Trial trial;
  std::optional<Sample> sample = {};
};

const Sample* Experiment::attempt(Variant variant, const Variant* between) {
  if (tally_.stopped || !tally_.refused.empty()) return nullptr;
  const auto defect = defect_of(variant.problem);
  ATTEST_ASSERT(!defect);
  if (auto finding = ask(calling_, variant.problem)) {
    if (finding->outcome == Outcome::unsupported) {
      tally_.refused = fmt::format("{}: {}", to_string(variant.problem), finding->message);
    } else {
      tally_.stopped = std::move(finding);
    }
    return nullptr;
  }
  auto made = std::make_shared<Attempt>();
  Attempt& a = *made;
  attempts_.push_back(std::move(made));
  a.variant = std::move(variant);
  const Variant& other = between ? *between : a.variant;
  const Interlude interlude = {other.problem, other.inputs};
  a.trial = attest::try_out(calling_, a.variant.problem, a.variant.inputs, Placement::end_flush,
                            between ? &interlude : nullptr);
  if (a.trial.stopped) {
    tally_.stopped = a.trial.stopped;
    return nullptr;
  }
  // Of generated dropout, the problem is the mask that was drawn too.
  if (a.trial.keep) a.variant.inputs.keep = *a.trial.keep;
  const auto bounds = first_.is_long() ? coarse_bounds : reference_bounds;
  a.sample.emplace(a.variant.problem, a.variant.inputs, a.trial, calling_.testee, arithmetic_,
                   bounds(a.variant.problem, a.variant.inputs, arithmetic_));
  return &*a.sample;
}

void Experiment::expect_equal(TensorName tensor, const At& place, const Known& left,
                              const Known& right, const std::string& how) {
  if (left.tells_nothing() || right.tells_nothing()) return;
  ++tally_.compared;
  const Gap gap = gap_between(left, right);
  if (!(gap.ratio > 1) || gap.ratio <= worst_) return;
  worst_ = gap.ratio;
  tally_.broken = fmt::format("{} = {} and {} {}: {:.3g} apart, where the bounds allow {:.3g}",
                              name_of(tensor, place), static_cast<double>(left.value),
                              static_cast<double>(right.value), how, static_cast<double>(gap.apart),
                              static_cast<double>(gap.allowed));
}

void Experiment::expect_slope(TensorName tensor, const Known& analytic, const Known& difference) {
  if (analytic.tells_nothing() || difference.tells_nothing()) return;
  tally_.slopes.push_back(
      {.tensor = tensor,
       .analytic = static_cast<double>(analytic.value),
       .difference = static_cast<double>(difference.value),
       .allowed = static_cast<double>(gap_between(analytic, difference).allowed)});
  expect_equal(tensor, {0, 0, 0, 0}, analytic, difference,
               "as a difference of the loss, for its sum along a direction");
}

void Experiment::expect_same_bits(const Result& left, const At& place, const Result& right,
                                  const At& other_place, const std::string& how) {
  if (!left.is_judged(place) || !right.is_judged(other_place)) return;
  ++tally_.compared;
  const double a = left.value(place), b = right.value(other_place);
  if (left.bits(place) == right.bits(other_place) || (a == 0 && b == 0)) return;
  if (worst_ == std::numeric_limits<double>::infinity()) return;
  worst_ = std::numeric_limits<double>::infinity();
  tally_.broken = fmt::format("{} = {} and {} {}, where a deterministic kernel has the same bits",
                              name_of(left.name(), place), a, b, how);
}

void Experiment::expect_exactly(const Result& result, const At& place, double value,
                                const std::string& how) {
  if (!result.is_judged(place)) return;
  ++tally_.compared;
  if (result.value(place) == value) return;
  if (worst_ == std::numeric_limits<double>::infinity()) return;
  worst_ = std::numeric_limits<double>::infinity();
  tally_.broken = fmt::format("{} = {}, which is exactly {} {}", name_of(result.name(), place),
                              result.value(place), value, how);
}

void Experiment::expect_finite(const Result& result, const At& place, double most) {
  const Known known = result.at(place);
  if (known.tells_nothing()) return;
  ++tally_.compared;
  const double value = result.value(place);
  if (std::isfinite(value) || (known.low <= most && known.high >= -most)) return;
  if (worst_ == std::numeric_limits<double>::infinity()) return;
  worst_ = std::numeric_limits<double>::infinity();
  tally_.broken =
      fmt::format("{} = {}, whose bound is finite", name_of(result.name(), place), value);
}

namespace {

// All heads and channels of one position.
void compare_row(Experiment& experiment, TensorName tensor, const Sample& base,
                 const Place& of_base, const Sample& variant, const Place& of_variant,
                 const std::string& how, bool bits) {
  if (!variant.has(tensor) || !base.has(tensor)) return;
  const Result theirs = variant[tensor], ours = base[tensor];
  for (Index h = 0; h < ours.shape()[kHead]; ++h) {
    for (Index c = 0; c < ours.shape()[kChannel]; ++c) {
      const At here = {of_base.batch, h, of_base.position, c};
      const At there = {of_variant.batch, h, of_variant.position, c};
      if (bits) {
        experiment.expect_same_bits(ours, here, theirs, there, how);
      } else {
        experiment.expect_equal(tensor, here, ours.at(here), theirs.at(there), how);
      }
    }
  }
}

}  // namespace

void Experiment::expect_same_rows(const Sample& base, const Sample& variant,
                                  const Counterpart& of_base, const std::string& how, bool bits) {
  const Problem& p = variant.problem();
  for (Index b = 0; b < p.batch; ++b) {
    for (Index i = 0; i < p.stored_queries(b); ++i) {
      const auto other = of_base(b, i);
      if (!other) continue;
      for (const TensorName tensor : kQueryTensors) {
        compare_row(*this, tensor, base, base.problem().query_place(other->batch, other->position),
                    variant, p.query_place(b, i), how, bits);
      }
    }
  }
}

void Experiment::expect_same_keys(const Sample& base, const Sample& variant,
                                  const Counterpart& of_base, const std::string& how, bool bits) {
  const Problem& p = variant.problem();
  for (Index b = 0; b < p.batch; ++b) {
    for (Index j = 0; j < p.stored_keys(b); ++j) {
      const auto other = of_base(b, j);
      if (!other) continue;
      for (const TensorName tensor : kKeyTensors) {
        compare_row(*this, tensor, base, base.problem().key_place(other->batch, other->position),
                    variant, p.key_place(b, j), how, bits);
      }
    }
  }
}

void Experiment::expect_same(const Sample& base, const Sample& variant, TensorName tensor,
                             const std::string& how, bool bits) {
  if (!variant.has(tensor) || !base.has(tensor)) return;
  const Result ours = base[tensor], theirs = variant[tensor];
  ATTEST_ASSERT(ours.shape() == theirs.shape());
  for (Index n = 0; n < element_count(ours.shape()); ++n) {
    const At place = coordinates(ours.shape(), n);
    if (bits) {
      expect_same_bits(ours, place, theirs, place, how);
    } else {
      expect_equal(tensor, place, ours.at(place), theirs.at(place), how);
    }
  }
}

}  // namespace attest::laws
