// Runs correct kernels on random problems and judges what they return: by the arithmetic that each
// declares, and by the loosest that may be declared. What is counted does not depend on the number
// of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/working.h"
#include "spec/dtype.h"
#include "tests/bounds/histogram.h"
#include "tests/bounds/kernel.h"
#include "tests/bounds/problems.h"

namespace attest::bounds {

// The row of a format in tables of all: its number may lie beyond them.
inline std::size_t place_of(DType dtype) {
  const auto found = std::find(kDTypes.begin(), kDTypes.end(), dtype);
  return static_cast<std::size_t>(found - kDTypes.begin());
}

struct Tally {
  std::int64_t elements = 0;      // with a finite bound
  std::int64_t inconclusive = 0;  // with an infinite one
  std::int64_t failures = 0;      // beyond the bound, or not a number
  double largest = 0;             // distance to the rounding cell, over the bound
  Histogram errors = {};          // as a share of bound + rounding of the output
  // Where it occurred; the first in order of problems.
  bool backward = false;
  std::uint64_t number = 0;
  std::string kernel = {};  // described

  void add(const Tally& other);
};

using ByTensor = PerTensor<Tally>;

struct Statistics {
  std::int64_t forward_elements = 0, backward_elements = 0, problems = 0;
  std::array<ByTensor, kDTypes.size()> by_format = {}, by_format_loosest = {};
  // Of these, under what they declare: kernels that neither flush subnormal numbers nor round the
  // operands of products, with an accurate tanh. In the others one error can fill a whole bound.
  std::array<ByTensor, kDTypes.size()> by_format_ordinary = {};
  // Under what each kernel declares:
  std::array<ByTensor, kFeatures + 1> by_feature = {};
  std::array<ByTensor, kKinds> by_kind = {};
  // Of plain problems, by format too.
  std::array<std::array<ByTensor, kPlainSizes.size()>, kDTypes.size()> by_size = {};
  std::vector<ByTensor> by_kernel;  // in the order of kernel_names()

  Statistics();
  void add(const Statistics& other);
  bool failed() const;
};

// All correct ones, "any mixture", and the faulty ones.
std::vector<std::string> kernel_names();

// Those that an earlier study had, or the nearest to them.
std::vector<std::string> plain_kernels(bool backward);

struct Options {
  std::int64_t forward = 100000, backward = 100000;  // elements to judge, at least
  std::uint64_t seed = 1;
  std::uint64_t first = 0;  // number of the first problem
  int threads = 1;
  bool plain = false;  // plain problems, on the kernels of plain_kernels()
  std::optional<DType> dtype = {};
  std::optional<int> feature = {};
  std::string kernel = {};  // whatever has this in its name; empty: any correct one
  bool quiet = true;
  bool details = false;  // print every element near its bound or beyond
};

Subject subject_of(const Options& options, bool backward, std::uint64_t number);

Statistics measure(const Options& options);

// One problem alone: its name as in Subject::name().
Statistics measure_one(const Options& options, const std::string& name);

}  // namespace attest::bounds
