// Tries the statistical verdict (spec/NUMERICS.md, section 12) on correct kernels, where it must
// not raise an alarm:
//
//   measure_noise [ELEMENTS [SEED]]
//
// Random problems of every feature with generic inputs, and larger plain ones. Prints how near each
// tensor came to its three limits, and fails if any was exceeded, or if a kernel that rounds its
// row sums further than it declares exceeds none.
#include "harness/judge/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tests/bounds/measure.h"

namespace attest::bounds {
namespace {

// As shares of their limits.
struct Nearest {
  std::int64_t elements = 0, tensors = 0, alarms = 0;
  double element = 0, rms = 0, mean = 0;

  void add(const NoiseEvidence& n) {
    if (n.compared == 0) return;
    elements += n.compared;
    ++tensors;
    alarms += !complaint_of(n).empty();
    element = std::max(element, n.max_ratio);
    rms = std::max(rms, n.ratio / n.ratio_limit);
    mean = std::max(mean, std::max(std::abs(n.bias), std::abs(n.growth)) / n.bias_limit);
  }
};

using Table = std::array<PerTensor<Nearest>, kDTypes.size()>;

void judge(const Subject& subject, const Inputs& inputs, const Outputs& out, const Style& style,
           Table& table, std::mutex& mutex) {
  const Arithmetic a = declared(style, subject.problem.dtype);
  const Problem& p = subject.problem;
  const ForwardExpected forward = expect_forward(p, inputs, a);
  if (!small_enough_for_noise(forward.lse)) return;
  const ForwardSpread forward_spread = spread_forward(p, inputs, a);
  auto& row = table[place_of(p.dtype)];
  const auto count = [&](TensorName t, const std::vector<double>& returned, DType dtype,
                         const Expected& expected, const Spread& spread, double groups) {
    const NoiseEvidence noise =
        noise_of(returned, dtype, expected, spread,
                 t == TensorName::lse ? Rounding::nearest : a.output_rounding, groups);
    const std::string complaint = complaint_of(noise);
    const std::lock_guard lock(mutex);
    row[t].add(noise);
    if (complaint.empty() || style.fault != Style::Fault::none) return;
    const auto worst = static_cast<std::size_t>(noise.worst);
    fmt::print(stderr,
               "{} of {}, {}, {}: {}\n  element {}: {:.9g}, exact {:.9g}, B {:.3g}, drift {:.3g}, "
               "deviation {:.3g}\n",
               name(t), describe(style), kind_name(subject.kind), to_string(p), complaint, worst,
               returned[worst], expected.value[worst], expected.bound[worst], spread.drift[worst],
               spread.deviation[worst]);
  };
  const double rows = double(forward.lse.value.size());
  count(TensorName::o, out.o, p.dtype, forward.o, forward_spread.o, rows);
  count(TensorName::lse, out.lse, p.lse_dtype(), forward.lse, forward_spread.lse, rows);
  if (!p.backward) return;
  const BackwardExpected backward = expect_backward(p, inputs, a);
  const BackwardSpread spread = spread_backward(p, inputs, a);
  count(TensorName::dq, out.dq, p.dtype, backward.dq, spread.dq, rows);
  count(TensorName::dk, out.dk, p.dtype, backward.dk, spread.dk, 1);
  count(TensorName::dv, out.dv, p.dtype, backward.dv, spread.dv, 1);
  if (p.bias_shape) count(TensorName::dbias, out.dbias, p.dtype, backward.dbias, spread.dbias, 1);
  if (p.sink) count(TensorName::dsink, out.dsink, DType::f32, backward.dsink, spread.dsink, 1);
}

// Four kernels on the n-th problem: three of the named ones by turns, and a mixture.
void try_problem(std::uint64_t seed, std::uint64_t n, Table& table, std::mutex& mutex) {
  const bool backward = n % 2 == 0;
  Subject subject =
      n % 64 == 63 ? make_plain_subject(seed, backward, n / 64) : make_subject(seed, backward, n);
  subject.kind = n % 3 == 0 ? Kind::logits_10 : Kind::normal;
  const Inputs inputs = make_inputs(subject);
  const auto visible = visible_elements(subject.problem, inputs);
  std::vector<Style> styles;
  const auto named = correct_styles();
  for (std::uint64_t k = 0; k < 3; ++k) styles.push_back(named[(3 * n + k) % named.size()]);
  Random random(seed, n);
  styles.push_back(mixed_style(random));
  for (const Style& style : styles) {
    judge(subject, inputs, run_kernel(subject.problem, inputs, visible, style), style, table,
          mutex);
  }
}

// Whether a kernel that sums its rows in bf16 and does not say so is told.
bool fault_is_told() {
  const auto faulty = faulty_styles();
  const auto style = std::find_if(faulty.begin(), faulty.end(), [](const Style& each) {
    return each.fault == Style::Fault::sum_in_bf16;
  });
  Table table = {};
  std::mutex mutex;
  for (std::uint64_t n = 0; n < 36; ++n) {
    Subject subject = make_plain_subject(1, false, n);
    if (subject.problem.dtype != DType::bf16) continue;
    subject.kind = Kind::normal;
    const Inputs inputs = make_inputs(subject);
    judge(subject, inputs,
          run_kernel(subject.problem, inputs, visible_elements(subject.problem, inputs), *style),
          *style, table, mutex);
  }
  std::int64_t alarms = 0;
  for (const auto& row : table) {
    for (const TensorName t : kReturnedTensors) alarms += row[t].alarms;
  }
  return alarms > 0;
}

int run(double elements, std::uint64_t seed) {
  Table table = {};
  std::mutex mutex;
  const auto done = [&] {
    std::int64_t sum = 0;
    for (const auto& row : table) {
      for (const TensorName t : kReturnedTensors) sum += row[t].elements;
    }
    return double(sum);
  };
  constexpr std::uint64_t kBatch = 128;  // so that the count does not depend on the threads
  std::uint64_t begin = 0;
  for (; done() < elements; begin += kBatch) {
    std::atomic<std::uint64_t> next = begin;
    const auto work = [&] {
      for (std::uint64_t n = next++; n < begin + kBatch; n = next++) {
        try_problem(seed, n, table, mutex);
      }
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }
  fmt::print("{} problems, seed {}. Largest share of each limit.\n\n", begin, seed);
  fmt::print("| dtype | tensor | tensors | elements | element | rms | mean | alarms |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  std::int64_t alarms = 0;
  for (const DType dtype : kDTypes) {
    for (const TensorName t : kReturnedTensors) {
      const Nearest& n = table[place_of(dtype)][t];
      if (n.tensors == 0) continue;
      alarms += n.alarms;
      fmt::print("| {} | {} | {} | {} | {:.2g} | {:.2g} | {:.2g} | {} |\n", name(dtype), name(t),
                 n.tensors, n.elements, n.element, n.rms, n.mean, n.alarms);
    }
  }
  const bool told = fault_is_told();
  fmt::print("\n{:.3g} elements, {} alarms; a row sum in bf16 is {}.\n", done(), alarms,
             told ? "told" : "NOT told");
  return alarms == 0 && told ? 0 : 1;
}

}  // namespace
}  // namespace attest::bounds

int main(int argc, char** argv) {
  const double elements = argc > 1 ? std::atof(argv[1]) : 1e5;
  if (!(elements > 0)) {
    fmt::print(stderr, "measure_noise [ELEMENTS [SEED]]: not a number of elements: {}\n", argv[1]);
    return 2;
  }
  return attest::bounds::run(elements, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
