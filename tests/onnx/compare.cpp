// Compares results of others with the reference: vectors as JSON, one a line on the standard input,
// {"name", "dtype", "problem": {as in a case file}, "bias_shape", "allowed_shape", and lists of
// numbers "q", "k", "v", "bias", "allowed", "y"}. Ends with 1 if any is further away than an
// evaluation in its format may be whose every operation rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cases/problem_reader.h"
#include "reference/working.h"
#include "spec/dtype.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

std::vector<double> numbers(const nlohmann::json& list) {
  std::vector<double> all;
  for (const auto& x : list) {
    all.push_back(x.is_string() ? std::stod(x.get<std::string>()) : x.get<double>());
  }
  return all;
}

// Of a row: how large a score and its terms are, and a value, where it sees them.
struct Sizes {
  double score = 0, value = 0, keys = 0;
};
Sizes sizes_of(const Problem& p, const Inputs& in, Position at) {
  Sizes sizes;
  const Index group = at.head / p.group_size();
  for (at.key = 0; at.key < p.key_len; ++at.key) {
    const double bias = p.bias_shape ? in.bias.data[broadcast_index(*p.bias_shape, at)] : 0;
    if (!visible(p, at) || std::isinf(bias)) continue;
    double products = 0;
    for (Index c = 0; c < p.head_dim; ++c) {
      products +=
          std::abs(in.q.at(at.batch, at.head, at.query, c) * in.k.at(at.batch, group, at.key, c));
    }
    sizes.score = std::max(sizes.score, std::abs(p.scale) * products + std::abs(bias));
    for (Index c = 0; c < p.value_dim; ++c) {
      sizes.value = std::max(sizes.value, std::abs(in.v.at(at.batch, group, at.key, c)));
    }
    ++sizes.keys;
  }
  return sizes;
}

// The largest share that a distance has of what roundings allow. A score is a sum of D products of
// factors that are scaled each, and softcap, bias and maximum follow: D + 12 roundings of what is
// no larger than its size. They move P and the sum of the row alike, hence twice; exp, that sum,
// the quotient and the sum of O add two for each key and 8.
double distance(const nlohmann::json& vector) {
  ProblemReader reader;
  reader.add(vector.at("problem"), "/problem");
  Extras extras;
  Problem p = reader.read(vector.at("name").get<std::string>(), extras);
  p.dtype = *dtype_named(vector.at("dtype").get<std::string>());
  if (vector.contains("allowed")) {
    DenseMask table{.shape = vector.at("allowed_shape").get<Shape>(), .allowed = {}};
    for (const double x : numbers(vector.at("allowed"))) table.allowed.push_back(x != 0);
    p.mask = Mask::all_of({p.mask, Mask::dense(std::move(table))});
  }
  Inputs in{.q = {p.q_shape(), numbers(vector.at("q"))},
            .k = {p.k_shape(), numbers(vector.at("k"))},
            .v = {p.v_shape(), numbers(vector.at("v"))}};
  if (vector.contains("bias")) {
    p.bias_shape = vector.at("bias_shape").get<Shape>();
    in.bias = {*p.bias_shape, numbers(vector.at("bias"))};
  }
  if (const auto defect = defect_of(p)) throw InputError("", defect->what);
  const std::vector<double> y = numbers(vector.at("y"));
  const Expected exact = expect_forward(p, in, loosest(p.dtype)).o;
  if (y.size() != exact.value.size()) throw InputError("", "Y has another size than O");

  double most = 0;
  for (std::size_t e = 0; e < y.size(); ++e) {
    const auto [b, h, i, c] = coordinates(p.o_shape(), static_cast<Index>(e));
    const Sizes sizes = sizes_of(p, in, {.batch = b, .head = h, .query = i, .key = 0});
    const double roundings =
        2 * static_cast<double>(p.head_dim + 12) * sizes.score + 2 * sizes.keys + 8;
    const double away = std::abs(y[e] - exact.value[e]);
    if (away == 0) continue;
    const double share = away / (roundings * unit_roundoff(p.dtype) * sizes.value);
    most = share <= most ? most : share;  // keeps a NaN
  }
  return most;
}

}  // namespace
}  // namespace attest

int main() {
  int compared = 0, different = 0;
  for (std::string line; std::getline(std::cin, line); ++compared) {
    const auto vector = nlohmann::json::parse(line);
    std::string found;
    try {
      const double share = attest::distance(vector);
      found = fmt::format("{:.3g} of what roundings allow", share);
      if (!(share <= 1)) ++different, found += ": DIFFERENT";
    } catch (const std::exception& error) {
      ++different;
      found = fmt::format("ERROR: {}", error.what());
    }
    std::cout << fmt::format("{}: {}\n", vector.at("name").get<std::string>(), found);
  }
  std::cout << fmt::format("{} compared, {} different\n", compared, different);
  return compared > 0 && different == 0 ? 0 : 1;
}
