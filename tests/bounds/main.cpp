// Measures the bounds on correct kernels (spec/MEASURED.md): prints the largest ratios
// of distance to bound and the median of errors, and fails if any ratio exceeds 1.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/bounds/measure.h"

namespace attest::bounds {
namespace {

using Row = std::vector<std::string>;

std::string table(const std::string& title, const Row& head, const std::vector<Row>& rows) {
  std::string text = fmt::format("{}\n\n| {} |\n|---{}|\n", title, fmt::join(head, " | "),
                                 fmt::join(Row(head.size(), ""), "|---"));
  for (const Row& row : rows) text += fmt::format("| {} |\n", fmt::join(row, " | "));
  return text + "\n";
}

std::string count_text(std::int64_t count) {
  return count < 100000 ? fmt::to_string(count) : fmt::format("{:.3g}", double(count));
}

Row with_tensors(Row head) {
  for (const TensorName t : kReturnedTensors) head.emplace_back(name(t));
  return head;
}

// Rounded down near 1, so that only what exceeds it looks like it.
std::string largest_text(const Tally& tally) {
  if (tally.elements == 0) return "";
  const bool near = tally.largest > 0.99 && tally.largest < 1;
  return near ? fmt::format("{:.4f}", std::floor(tally.largest * 1e4) / 1e4)
              : fmt::format("{:.2g}", tally.largest);
}

std::string median_text(const Tally& tally) {
  const auto median = tally.errors.median();
  if (!median) return "";
  return *median < 1e-20 ? "0" : fmt::format("{:.2g}", *median);
}

Row row_of(Row row, const ByTensor& tensors, std::string (*text)(const Tally&)) {
  for (const TensorName t : kReturnedTensors) row.push_back(text(tensors[t]));
  return row;
}

std::string share_text(const Tally& tally) {
  const std::int64_t all = tally.elements + tally.inconclusive;
  return all == 0 ? "" : fmt::format("{:.2g}", double(tally.inconclusive) / double(all));
}

std::string both_text(const Tally& tally) {
  return tally.elements == 0 ? "" : fmt::format("{}, {}", largest_text(tally), median_text(tally));
}

std::int64_t elements(const ByTensor& tensors) {
  std::int64_t sum = 0;
  for (const TensorName t : kReturnedTensors) {
    sum += tensors[t].elements + tensors[t].inconclusive;
  }
  return sum;
}

// The medians of plain problems beside those of an earlier study (MEASURED.md).
std::string comparison(const Statistics& s) {
  struct Earlier {
    DType dtype;
    PerTensor<double> median;  // 0: not stated
  };
  constexpr std::array<Earlier, 3> kEarlier = {{
      {DType::f32, {{5.5e-4, 0}, {1.7e-4, 8e-5, 2.5e-4}}},
      {DType::f16, {{0.020, 0}, {0.016, 0.005, 0.042}}},
      {DType::bf16, {{0.024, 0}, {0.013, 0.007, 0.051}}},
  }};
  std::vector<Row> rows;
  for (const Earlier& earlier : kEarlier) {
    const ByTensor& here = s.by_format[place_of(earlier.dtype)];
    const std::string format(name(earlier.dtype));
    Row then = {format, "earlier"}, quotient = {format, "here / earlier"};
    for (const TensorName t : kReturnedTensors) {
      const auto median = here[t].errors.median();
      const bool both = median && earlier.median[t] > 0;
      then.push_back(earlier.median[t] > 0 ? fmt::format("{:.2g}", earlier.median[t]) : "");
      quotient.push_back(both ? fmt::format("{:.2g}", *median / earlier.median[t]) : "");
    }
    rows.push_back(row_of({format, "here"}, here, median_text));
    rows.push_back(then);
    rows.push_back(quotient);
  }
  return table("Medians here, as declared, and of an earlier study.",
               with_tensors({"dtype", "measured"}), rows);
}

std::string markdown(const Options& options, const Statistics& s) {
  std::vector<Row> judged, open, features, sizes, kinds, kernels;
  for (const DType dtype : kDTypes) {
    const std::size_t n = place_of(dtype);
    if (elements(s.by_format[n]) == 0) continue;
    const std::string format(name(dtype));
    Row counts = {format, "elements"};
    for (const TensorName t : kReturnedTensors) {
      const Tally& tally = s.by_format[n][t];
      counts.push_back(count_text(tally.elements + tally.inconclusive));
    }
    const Row declared = {format, "as declared"}, caps = {format, "caps"};
    judged.push_back(counts);
    judged.push_back(row_of(declared, s.by_format[n], both_text));
    judged.push_back(row_of({format, "of these, ordinary"}, s.by_format_ordinary[n], both_text));
    judged.push_back(row_of(caps, s.by_format_loosest[n], both_text));
    open.push_back(row_of(declared, s.by_format[n], share_text));
    open.push_back(row_of(caps, s.by_format_loosest[n], share_text));
  }
  const auto add = [](std::vector<Row>& rows, Row label, const ByTensor& tensors) {
    const std::int64_t count = elements(tensors);
    if (count == 0) return;
    label.push_back(count_text(count));
    rows.push_back(row_of(std::move(label), tensors, both_text));
  };
  for (int feature = 0; feature <= kFeatures; ++feature) {
    add(features, {feature_name(feature)}, s.by_feature[static_cast<std::size_t>(feature)]);
  }
  for (const DType dtype : kDTypes) {
    for (std::size_t n = 0; n < kPlainSizes.size(); ++n) {
      const PlainSize& size = kPlainSizes[n];
      add(sizes,
          {fmt::format("{}, {}{} keys, d {}", name(dtype), size.backward ? "backward, " : "",
                       size.key_len, size.head_dim)},
          s.by_size[place_of(dtype)][n]);
    }
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    add(kinds, {kind_name(static_cast<Kind>(kind))}, s.by_kind[static_cast<std::size_t>(kind)]);
  }
  const auto names = kernel_names();
  for (std::size_t n = 0; n < names.size(); ++n) add(kernels, {names[n]}, s.by_kernel[n]);

  std::string text =
      fmt::format("{} problems, {:.3g} elements of O and LSE, {:.3g} of gradients.\n\n", s.problems,
                  double(s.forward_elements), double(s.backward_elements)) +
      table(
          "Largest ratio of the distance to the rounding cell, over the bound, and median of the "
          "error as a share\nof bound + rounding of the output (0 below 1e-20). Ordinary kernels "
          "neither flush subnormal numbers\nnor round operands of products, and have an accurate "
          "tanh.",
          with_tensors({"dtype", "judged"}), judged) +
      table("Share of elements whose bound is infinite.", with_tensors({"dtype", "judged"}), open);
  if (options.plain) text += comparison(s);
  const auto add_table = [&](const char* axis, const std::vector<Row>& rows) {
    if (rows.empty()) return;
    text += table(fmt::format("Largest ratio and median by {}, as declared.", axis),
                  with_tensors({axis, "elements"}), rows);
  };
  add_table("feature", features);
  add_table("size", sizes);
  add_table("inputs", kinds);
  add_table("kernel", kernels);
  return text;
}

// The problem of every largest ratio, to be run again with --only.
std::string worst(const Options& options, const Statistics& s) {
  std::string text;
  for (const bool loosely : {false, true}) {
    for (const DType dtype : kDTypes) {
      const std::size_t n = place_of(dtype);
      for (const TensorName t : kReturnedTensors) {
        const Tally& tally = (loosely ? s.by_format_loosest : s.by_format)[n][t];
        if (tally.largest == 0) continue;
        const Subject subject = subject_of(options, tally.backward, tally.number);
        text += fmt::format("{:<5} {:<4} {:<6} {:.4f}{}  --seed {}{} --only {}  {}, {}: {}\n",
                            name(t), name(dtype), loosely ? "caps" : "", tally.largest,
                            tally.failures > 0 ? fmt::format(" FAILS {}", tally.failures) : "",
                            options.seed, options.plain ? " --plain" : "", subject.name(),
                            tally.kernel, kind_name(subject.kind), to_string(subject.problem));
      }
    }
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("Measures the error bounds on correct kernels of many styles.");
  Options options;
  double forward = 1e5, backward = 1e5;
  std::string dtype, feature, only, file;
  bool progress = false;
  const CLI::Range counts(0.0, 1e15);
  app.add_option("--forward", forward, "elements of O and LSE to judge, at least")->check(counts);
  app.add_option("--backward", backward, "elements of gradients to judge, at least")->check(counts);
  app.add_option("--seed", options.seed);
  app.add_option("--first", options.first, "number of the first problem");
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--dtype", dtype, "f64, f32, f16 or bf16: only this one");
  app.add_option("--feature", feature, "only problems that have it; \"plain\": that have none");
  app.add_option("--kernel", options.kernel, "only kernels with this in their name");
  app.add_flag("--plain", options.plain,
               "plain problems, some larger, beside the medians of an earlier study");
  app.add_option("--only", only, "one problem, such as b12");
  app.add_option("--markdown", file, "write the tables to this file");
  app.add_flag("--progress", progress);
  app.add_flag("--details", options.details, "print every element near its bound or beyond");
  CLI11_PARSE(app, argc, argv);

  options.forward = static_cast<std::int64_t>(forward);
  options.backward = static_cast<std::int64_t>(backward);
  options.quiet = !progress;
  if (!dtype.empty()) {
    options.dtype = dtype_named(dtype);
    if (!options.dtype) return app.exit(CLI::ValidationError("--dtype", "no such format"));
  }
  if (!feature.empty()) {
    for (int n = 0; n <= kFeatures; ++n) {
      if (feature_name(n) == feature) options.feature = n;
    }
    if (!options.feature) return app.exit(CLI::ValidationError("--feature", "no such feature"));
  }
  if (!options.kernel.empty()) {
    const auto names = kernel_names();
    if (std::none_of(names.begin(), names.end(), [&](const std::string& each) {
          return each.find(options.kernel) != std::string::npos;
        })) {
      return app.exit(CLI::ValidationError("--kernel", "no such kernel"));
    }
  }

  const auto start = std::chrono::steady_clock::now();
  Statistics statistics;
  try {
    statistics = only.empty() ? measure(options) : measure_one(options, only);
  } catch (const std::invalid_argument& error) {
    return app.exit(CLI::ValidationError("--only", error.what()));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::string text = markdown(options, statistics);
  fmt::print("{}{}{:.1f} s\n", text, worst(options, statistics), seconds.count());
  if (!file.empty()) std::ofstream(file) << text;
  const bool judged = statistics.forward_elements + statistics.backward_elements > 0;
  return statistics.failed() || !judged ? 1 : 0;
}

}  // namespace
}  // namespace attest::bounds

int main(int argc, char** argv) { return attest::bounds::run(argc, argv); }
