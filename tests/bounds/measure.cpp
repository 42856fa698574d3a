#include "tests/bounds/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <list>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace attest::bounds {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kKernelsOfProblem = 6;  // half of them mixtures

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

struct Judgement {
  ForwardExpected forward;
  BackwardExpected backward;
};

// Expected values, made once for each arithmetic of a problem.
class Expectations {
 public:
  Expectations(const Problem& problem, const Inputs& inputs) : problem_(problem), inputs_(inputs) {}

  const Judgement& under(const Arithmetic& arithmetic) {
    for (const auto& [known, judgement] : made_) {
      if (known == arithmetic) return judgement;
    }
    Judgement judgement = {.forward = expect_forward(problem_, inputs_, arithmetic),
                           .backward = {}};
    if (problem_.backward) judgement.backward = expect_backward(problem_, inputs_, arithmetic);
    made_.emplace_back(arithmetic, std::move(judgement));
    return made_.back().second;
  }

 private:
  const Problem& problem_;
  const Inputs& inputs_;
  std::list<std::pair<Arithmetic, Judgement>> made_;
};

// How far a returned number lies beyond what rounds to it, over its bound.
double ratio(DType dtype, double returned, long double exact, double bound, Rounding rounding) {
  if (std::isnan(returned)) return kInfinity;
  if (static_cast<long double>(returned) == exact) return 0;  // also of infinities
  if (std::isinf(static_cast<double>(exact))) return kInfinity;
  const Cell cell = rounding_cell(dtype, returned, rounding);
  const long double distance = std::max({0.0L, cell.low - exact, exact - cell.high});
  return distance == 0 ? 0 : static_cast<double>(distance / bound);
}

// Adds errors to histograms itself. `known`: a ratio that is of no interest any more.
Tally judge(const Expected& expected, DType dtype, Rounding rounding,
            const std::vector<double>& returned, double known, bool details,
            const std::vector<Tally*>& to) {
  Tally tally;
  const double u = unit_roundoff(dtype), least = half_smallest_subnormal(dtype);
  for (std::size_t e = 0; e < returned.size(); ++e) {
    const double bound = expected.bound[e];
    if (bound == kInfinity) {
      ++tally.inconclusive;
      continue;
    }
    ++tally.elements;
    const long double exact = static_cast<long double>(expected.value[e]) +
                              (expected.rest.empty() ? 0 : expected.rest[e]);
    const double error = static_cast<double>(std::abs(returned[e] - exact));
    const double room = bound + std::max(u * std::abs(expected.value[e]), least);
    // Equal infinities differ by NaN, and no error is none even if there is no room.
    const bool same = error == 0 || static_cast<long double>(returned[e]) == exact;
    const double share = same ? 0 : error / room;
    for (Tally* each : to) each->errors.add(share);
    if (error <= bound * known) continue;
    const double each = ratio(dtype, returned[e], exact, bound, rounding);
    if (details && each > 0.9) {
      fmt::print("element {}: {:.17g}, exactly {:.17g}, bound {:.4g}, ratio {:.5g}\n", e,
                 returned[e], exact, bound, each);
    }
    tally.failures += !(each <= 1);
    tally.largest = std::max(tally.largest, each);
  }
  return tally;
}

struct Tensor {
  const std::vector<double>* returned;
  const Expected* expected;
  DType dtype;
};

PerTensor<Tensor> tensors_of(const Problem& problem, const Outputs& out,
                             const Judgement& judgement) {
  PerTensor<Tensor> tensors = {};
  tensors.forward.o = {&out.o, &judgement.forward.o, problem.dtype};
  tensors.forward.lse = {&out.lse, &judgement.forward.lse, problem.lse_dtype()};
  if (!problem.backward) return tensors;
  const BackwardExpected& expected = judgement.backward;
  PerGradient<Tensor>& gradients = tensors.backward;
  gradients.dq = {&out.dq, &expected.dq, problem.dtype};
  gradients.dk = {&out.dk, &expected.dk, problem.dtype};
  gradients.dv = {&out.dv, &expected.dv, problem.dtype};
  if (problem.bias_shape) gradients.dbias = {&out.dbias, &expected.dbias, problem.dtype};
  if (problem.sink) gradients.dsink = {&out.dsink, &expected.dsink, DType::f32};
  return tensors;
}

struct Contender {
  Style style;
  std::size_t number;  // in kernel_names()
};

std::vector<Contender> contenders(const Options& options, const Subject& subject) {
  static const std::vector<Style> correct = correct_styles(), faulty = faulty_styles();
  const std::string& filter = options.kernel;
  Random random(subject.seed, 64 * subject.number + 4 + (subject.problem.backward ? 1 : 0));
  std::vector<Contender> chosen;
  if (options.plain) {
    for (const std::string& name : plain_kernels(subject.problem.backward)) {
      if (name.find(filter) == std::string::npos) continue;
      const auto found = std::find_if(correct.begin(), correct.end(),
                                      [&](const Style& style) { return style.name == name; });
      chosen.push_back({*found, at(found - correct.begin())});
    }
    return chosen;
  }
  if (filter.empty()) {
    while (chosen.size() < kKernelsOfProblem / 2) {
      const std::size_t n = at(random.below(Index(correct.size())));
      chosen.push_back({correct[n], n});
    }
  } else {
    const auto consider = [&](const std::vector<Style>& styles, std::size_t first) {
      for (std::size_t n = 0; n < styles.size(); ++n) {
        if (styles[n].name.find(filter) != std::string::npos) {
          chosen.push_back({styles[n], first + n});
        }
      }
    };
    consider(correct, 0);
    consider(faulty, correct.size() + 1);
  }
  for (std::size_t n = 0; n < kKernelsOfProblem / 2; ++n) {
    Style style = mixed_style(random);
    if (style.name.find(filter) == std::string::npos) break;
    chosen.push_back({std::move(style), correct.size()});
  }
  return chosen;
}

void judge_kernel(const Options& options, const Subject& subject, const Contender& contender,
                  const Outputs& out, Expectations& expectations, Statistics& statistics) {
  const Problem& problem = subject.problem;
  const std::size_t format = place_of(problem.dtype);
  const Arithmetic own = declared(contender.style, problem.dtype);
  const bool ordinary = contender.style.operand_digits == 0 && !own.flushes_inputs &&
                        !own.flushes_outputs &&
                        (problem.softcap == 0 || !contender.style.coarse_tanh);
  for (const bool loosely : {false, true}) {
    // Operands that are rounded are beyond the caps; other things are so unless they are declared.
    if (loosely && (contender.style.operand_digits > 0 || !beyond_default(own).empty())) continue;
    const Arithmetic arithmetic = loosely ? loosest(problem.dtype) : own;
    const auto tensors = tensors_of(problem, out, expectations.under(arithmetic));
    for (const TensorName t : kReturnedTensors) {
      const Tensor& tensor = tensors[t];
      if (!tensor.returned) continue;
      // O and LSE of plain problems are those of the forward pass, whose sizes are others.
      if (options.plain && problem.backward && !is_gradient(t)) continue;
      std::vector<Tally*> to;
      if (loosely) {
        to = {&statistics.by_format_loosest[format][t]};
      } else {
        to = {&statistics.by_format[format][t], &statistics.by_kernel[contender.number][t],
              &statistics.by_kind[static_cast<std::size_t>(subject.kind)][t]};
        if (subject.size) to.push_back(&statistics.by_size[format][*subject.size][t]);
        if (ordinary) to.push_back(&statistics.by_format_ordinary[format][t]);
        for (int feature = 0; feature <= kFeatures; ++feature) {
          if (subject.has[feature]) to.push_back(&statistics.by_feature[at(feature)][t]);
        }
      }
      // Below 1, so that every failure is counted.
      double known = 1;
      for (const Tally* each : to) known = std::min(known, each->largest);
      if (options.details) fmt::print("{} of {}\n", name(t), describe(contender.style));
      Tally tally = judge(*tensor.expected, tensor.dtype, arithmetic.output_rounding,
                          *tensor.returned, known, options.details, to);
      tally.backward = problem.backward;
      tally.number = subject.number;
      if (tally.largest >= known) tally.kernel = describe(contender.style);
      for (Tally* each : to) each->add(tally);
      if (!loosely) {
        (is_gradient(t) ? statistics.backward_elements : statistics.forward_elements) +=
            tally.elements + tally.inconclusive;
      }
    }
  }
}

// Does nothing if the problem is not asked for.
void measure_subject(const Options& options, bool backward, std::uint64_t number,
                     Statistics& statistics) {
  const Subject subject = subject_of(options, backward, number);
  if (options.dtype && subject.problem.dtype != *options.dtype) return;
  if (options.feature && !subject.has[*options.feature]) return;
  if (const auto defect = defect_of(subject.problem)) {
    throw std::logic_error(subject.name() + ": " + defect->clause + ": " + defect->what);
  }
  ++statistics.problems;
  const Inputs inputs = make_inputs(subject);
  const auto visible = visible_elements(subject.problem, inputs);
  Expectations expectations(subject.problem, inputs);
  for (const Contender& contender : contenders(options, subject)) {
    const Outputs out = run_kernel(subject.problem, inputs, visible, contender.style);
    judge_kernel(options, subject, contender, out, expectations, statistics);
  }
}

// A pass over problems first, first + 1, ... until there are enough elements. Whether there are is
// asked after each batch, so that the answer does not depend on the threads.
void measure_pass(const Options& options, bool backward, Statistics& whole) {
  const std::uint64_t batch = options.plain ? plain_round(backward) : 512;
  const std::int64_t wanted = backward ? options.backward : options.forward;
  const auto count = [&](const Statistics& s) {
    return backward ? s.backward_elements : s.forward_elements;
  };
  std::vector<Statistics> of_thread(at(options.threads));
  const std::int64_t already = count(whole);
  std::int64_t done = already;
  for (std::uint64_t begin = options.first; done < wanted; begin += batch) {
    std::atomic<std::uint64_t> next = begin;
    const auto work = [&](Statistics& statistics) {
      for (std::uint64_t n = next++; n < begin + batch; n = next++) {
        measure_subject(options, backward, n, statistics);
      }
    };
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < of_thread.size(); ++t)
      others.emplace_back(work, std::ref(of_thread[t]));
    work(of_thread[0]);
    for (std::thread& other : others) other.join();
    done = already;
    for (const Statistics& each : of_thread) done += count(each);
    if (options.plain && done == already) break;  // a round has all there is, but not what is asked
    if (!options.quiet && begin / batch % 64 == 0) {
      fmt::print(stderr, "{} {} elements: {} of {}\n", begin + batch,
                 backward ? "backward" : "forward", done, wanted);
    }
  }
  for (const Statistics& each : of_thread) whole.add(each);
}

template <class List>
void add_all(List& to, const List& from) {
  for (std::size_t n = 0; n < to.size(); ++n) {
    for (const TensorName t : kReturnedTensors) to[n][t].add(from[n][t]);
  }
}

}  // namespace

void Tally::add(const Tally& other) {
  elements += other.elements;
  inconclusive += other.inconclusive;
  failures += other.failures;
  errors.add(other.errors);
  const bool earlier = other.largest == largest &&
                       std::tie(other.backward, other.number) < std::tie(backward, number);
  if (other.largest > largest || (earlier && largest > 0)) {
    largest = other.largest;
    backward = other.backward;
    number = other.number;
    kernel = other.kernel;
  }
}

Statistics::Statistics() : by_kernel(kernel_names().size()) {}

void Statistics::add(const Statistics& other) {
  forward_elements += other.forward_elements;
  backward_elements += other.backward_elements;
  problems += other.problems;
  add_all(by_format, other.by_format);
  add_all(by_format_loosest, other.by_format_loosest);
  add_all(by_format_ordinary, other.by_format_ordinary);
  add_all(by_feature, other.by_feature);
  add_all(by_kind, other.by_kind);
  for (std::size_t n = 0; n < by_size.size(); ++n) add_all(by_size[n], other.by_size[n]);
  add_all(by_kernel, other.by_kernel);
}

bool Statistics::failed() const {
  for (const auto* all : {&by_format, &by_format_loosest}) {
    for (const ByTensor& tensors : *all) {
      for (const TensorName t : kReturnedTensors) {
        if (tensors[t].failures > 0) return true;
      }
    }
  }
  return false;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Style& style : correct_styles()) names.push_back(style.name);
  names.push_back("any mixture");
  for (const Style& style : faulty_styles()) names.push_back(style.name);
  return names;
}

std::vector<std::string> plain_kernels(bool backward) {
  if (backward) {
    return {"naive", "naive, P normalised, exp(s-m)/l, D by key", "fa2 64, exp2(s c - m c)",
            "matrix unit of 16, naive"};
  }
  return {"naive",
          "naive, P normalised, exp(s-m)/l, D by key",
          "naive, sqrt(scale) on Q and K",
          "fa2 1",
          "fa2 16, exp2",
          "fa2 64, exp2 2 ulp, scale in Q",
          "fa2 64, exp2(s c - m c)",
          "fa2 128, exp 2 ulp high",
          "fa1 16",
          "fa1 64",
          "4 splits, exp2",
          "16 splits, sink merged",
          "matrix unit of 16, naive"};
}

Subject subject_of(const Options& options, bool backward, std::uint64_t number) {
  return options.plain ? make_plain_subject(options.seed, backward, number)
                       : make_subject(options.seed, backward, number);
}

Statistics measure(const Options& options) {
  Statistics whole;
  // Only a backward pass has a dLSE, and only a forward pass what is stored in 8 bits.
  const bool is_stored = options.feature == kStored || options.feature == kBlocks;
  if (!is_stored) measure_pass(options, true, whole);
  if (options.feature != kDLse) measure_pass(options, false, whole);
  return whole;
}

Statistics measure_one(const Options& options, const std::string& name) {
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const bool formed = name.size() > 1 && (name[0] == 'f' || name[0] == 'b');
  if (!formed || std::from_chars(name.data() + 1, end, number).ptr != end) {
    throw std::invalid_argument("problems have names such as b12 or f7, not " + name);
  }
  Statistics statistics;
  measure_subject(options, name[0] == 'b', number, statistics);
  return statistics;
}

}  // namespace attest::bounds
