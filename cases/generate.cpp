#include "cases/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "cases/hide_inputs.h"
#include "cases/input_classes.h"
#include "cases/keep.h"
#include "cases/random_source.h"
#include "cases/side_inputs.h"
#include "cases/stored_inputs.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// Rows first to last - 1 of a stored tensor.
void fill_rows(const RandomSource& source, MainTensor tensor, Make make, Index first, Index last,
               Values& values) {
  const DType dtype = source.problem.dtype;
  const Index channels = values.shape[kChannel];
  const bool channels_differ = source.canonical(tensor, {0, 0, 0, 1})[kChannel] == 1;
  for (Index row = first; row < last; ++row) {
    Coordinates at = source.owner(tensor, coordinates(values.shape, row * channels));
    if (make == normal && channels_differ) {
      const std::span numbers(values.data.begin() + row * channels,
                              static_cast<std::size_t>(channels));
      source.normal_row(tensor, at, numbers);
      for (double& number : numbers) number = round_to(dtype, number);
      continue;
    }
    for (Index d = 0; d < channels; ++d) {
      if (channels_differ) at[kChannel] = d;
      Element element{source, source.problem, at, source.random(tensor, at)};
      const double value = round_to(dtype, make(element));
      if (!std::isfinite(value)) {
        throw InputError("",
                         fmt::format("with the scale {} this problem has no finite numbers of its "
                                     "class",
                                     source.problem.scale));
      }
      values.data[static_cast<std::size_t>(row * channels + d)] = value;
    }
  }
}

// Each thread makes rows of its own; an error of any is thrown once all are done.
Values fill(const RandomSource& source, MainTensor tensor, Make make, int threads) {
  constexpr Index kWorthAThread = Index(1) << 18;  // elements
  Values values = zeros(source.stored_shape(tensor));
  const Index channels = values.shape[kChannel];
  const Index rows = channels == 0 ? 0 : element_count(values.shape) / channels;
  const Index parts = std::clamp<Index>(rows * channels / kWorthAThread, 1, std::max(threads, 1));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(parts));
  const auto work = [&](Index part) {
    try {
      fill_rows(source, tensor, make, part * rows / parts, (part + 1) * rows / parts, values);
    } catch (...) {
      errors[static_cast<std::size_t>(part)] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (Index part = 1; part < parts; ++part) others.emplace_back(work, part);
  work(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return values;
}

}  // namespace

const std::vector<InputClass>& input_classes() {
  static const std::vector<InputClass> kClasses = [] {
    std::vector<InputClass> classes;
    for (const Recipe& recipe : recipes()) {
      classes.push_back({.name = std::string(recipe.name),
                         .about = std::string(recipe.about),
                         .generic = recipe.generic});
    }
    return classes;
  }();
  return kClasses;
}

Inputs generate(const Case& test_case, int threads) {
  const Problem& p = test_case.problem;
  const RandomSource source(test_case);
  const Recipe& recipe = recipe_of(test_case);
  Inputs inputs{.q = fill(source, kQ, recipe.q, threads),
                .k = fill(source, kK, recipe.k, threads),
                .v = fill(source, kV, recipe.v, threads)};
  if (p.bias_shape) inputs.bias = make_bias(test_case);
  if (p.slopes_shape) inputs.slopes = make_slopes(test_case);
  if (p.sink) inputs.sink = make_sink(test_case);
  if (p.dropout.mode == Dropout::Mode::given) inputs.keep = make_keep(p);
  if (p.backward) inputs.d_o = fill(source, kDO, recipe.d_o, threads);
  if (p.d_lse) inputs.d_lse = make_d_lse(test_case);
  if (p.stored.any()) make_scales(test_case, inputs);
  if (test_case.hidden != Hidden::plain) hide(test_case, source, inputs);
  if (p.stored.any()) round_to_scales(p, inputs);
  return inputs;
}

}  // namespace attest
