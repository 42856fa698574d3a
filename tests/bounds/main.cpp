// Measures the bounds on correct kernels (spec/NUMERICS.md, section 10): prints the largest ratios
// of distance to bound, and fails if any exceeds 1.
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
  head.insert(head.end(), kTensors.begin(), kTensors.end());
  return head;
}

// Rounded down near 1, so that only what exceeds it looks like it.
std::string largest_text(const Tally& tally) {
  if (tally.elements == 0) return "";
  const bool near = tally.largest > 0.99 && tally.largest < 1;
  return near ? fmt::format("{:.4f}", std::floor(tally.largest * 1e4) / 1e4)
              : fmt::format("{:.2g}", tally.largest);
}

Row largest_row(Row row, const ByTensor& tensors) {
  for (const Tally& tally : tensors) row.push_back(largest_text(tally));
  return row;
}

Row median_row(Row row, const std::array<Histogram, kTensors.size()>& errors) {
  for (const Histogram& each : errors) {
    const auto median = each.median();
    row.push_back(median ? fmt::format("{:.1g}", *median) : "");
  }
  return row;
}

Row share_row(Row row, const ByTensor& tensors) {
  for (const Tally& tally : tensors) {
    const std::int64_t all = tally.elements + tally.inconclusive;
    row.push_back(all == 0 ? "" : fmt::format("{:.2g}", double(tally.inconclusive) / double(all)));
  }
  return row;
}

std::int64_t elements(const ByTensor& tensors) {
  std::int64_t sum = 0;
  for (const Tally& tally : tensors) sum += tally.elements + tally.inconclusive;
  return sum;
}

std::string markdown(const Statistics& s) {
  std::vector<Row> largest, medians, open, features, kinds, kernels;
  for (const DType dtype : kDTypes) {
    const auto n = static_cast<std::size_t>(dtype) - 1;
    const std::string format(name(dtype));
    Row counts = {format, "elements"};
    for (const Tally& tally : s.by_format[n]) {
      counts.push_back(count_text(tally.elements + tally.inconclusive));
    }
    largest.push_back(counts);
    largest.push_back(largest_row({format, "as declared"}, s.by_format[n]));
    largest.push_back(largest_row({format, "of these, ordinary"}, s.by_format_ordinary[n]));
    largest.push_back(largest_row({format, "caps"}, s.by_format_loosest[n]));
    medians.push_back(median_row({format, "as declared"}, s.errors[n]));
    medians.push_back(median_row({format, "caps"}, s.errors_loosest[n]));
    open.push_back(share_row({format, "as declared"}, s.by_format[n]));
    open.push_back(share_row({format, "caps"}, s.by_format_loosest[n]));
  }
  const auto add = [](std::vector<Row>& rows, std::string label, const ByTensor& tensors) {
    const std::int64_t count = elements(tensors);
    if (count > 0) rows.push_back(largest_row({std::move(label), count_text(count)}, tensors));
  };
  for (int feature = 0; feature <= kFeatures; ++feature) {
    add(features, feature_name(feature), s.by_feature[static_cast<std::size_t>(feature)]);
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    add(kinds, kind_name(static_cast<Kind>(kind)), s.by_kind[static_cast<std::size_t>(kind)]);
  }
  const auto names = kernel_names();
  for (std::size_t n = 0; n < names.size(); ++n) add(kernels, names[n], s.by_kernel[n]);

  return fmt::format("{} problems, {:.3g} elements of O and LSE, {:.3g} of gradients.\n\n",
                     s.problems, double(s.forward_elements), double(s.backward_elements)) +
         table(
             "Largest ratio of the distance to the rounding cell, over the bound. Ordinary kernels "
             "neither flush\nsubnormal numbers nor round operands of products, and have an "
             "accurate tanh.",
             with_tensors({"dtype", "judged"}), largest) +
         table("Median of the error over bound + rounding of the output.",
               with_tensors({"dtype", "judged"}), medians) +
         table("Share of elements whose bound is infinite.", with_tensors({"dtype", "judged"}),
               open) +
         table("Largest ratio by feature, as declared.", with_tensors({"feature", "elements"}),
               features) +
         table("Largest ratio by inputs, as declared.", with_tensors({"inputs", "elements"}),
               kinds) +
         table("Largest ratio by kernel, as declared.", with_tensors({"kernel", "elements"}),
               kernels);
}

// The problem of every largest ratio, to be run again with --only.
std::string worst(const Options& options, const Statistics& s) {
  std::string text;
  for (const bool loosely : {false, true}) {
    for (const DType dtype : kDTypes) {
      const auto n = static_cast<std::size_t>(dtype) - 1;
      for (std::size_t t = 0; t < kTensors.size(); ++t) {
        const Tally& tally = (loosely ? s.by_format_loosest : s.by_format)[n][t];
        if (tally.largest == 0) continue;
        const Subject subject = make_subject(options.seed, tally.backward, tally.number);
        text += fmt::format("{:<5} {:<4} {:<6} {:.4f}{}  --seed {} --only {}  {}, {}: {}\n",
                            kTensors[t], name(dtype), loosely ? "caps" : "", tally.largest,
                            tally.failures > 0 ? fmt::format(" FAILS {}", tally.failures) : "",
                            options.seed, subject.name(), tally.kernel, kind_name(subject.kind),
                            to_string(subject.problem));
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
  app.add_option("--forward", forward, "elements of O and LSE to judge, at least");
  app.add_option("--backward", backward, "elements of gradients to judge, at least");
  app.add_option("--seed", options.seed);
  app.add_option("--first", options.first, "number of the first problem");
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--dtype", dtype, "f64, f32, f16 or bf16: only this one");
  app.add_option("--feature", feature, "only problems that have it; \"plain\": that have none");
  app.add_option("--kernel", options.kernel, "only kernels with this in their name");
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
  const std::string text = markdown(statistics);
  fmt::print("{}{}{:.1f} s\n", text, worst(options, statistics), seconds.count());
  if (!file.empty()) std::ofstream(file) << text;
  return statistics.failed() ? 1 : 0;
}

}  // namespace
}  // namespace attest::bounds

int main(int argc, char** argv) { return attest::bounds::run(argc, argv); }
