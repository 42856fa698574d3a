// The example at the start of NUMERICS.md, number by number: by the formula that stands there, and
// its bounds by the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "reference/working.h"
#include "spec/json_text.h"
#include "tests/documents/document.h"

namespace attest::documents {
namespace {

constexpr double kU = 0x1p-24;

// A number as it is printed, and what half a unit of its last digit is.
struct Printed {
  double value = 0;
  double half_unit = 0;
};

Printed printed(const std::string& text) {
  const std::size_t point = text.find('.'), exponent = text.find('e');
  const std::size_t end = std::min(exponent, text.size());
  const double digits = point == std::string::npos ? 0 : static_cast<double>(end - point - 1);
  const double power = exponent == std::string::npos ? 0 : std::stod(text.substr(exponent + 1));
  return {std::stod(text), 0.5 * std::pow(10, power - digits)};
}

void expect_prints(const std::string& text, double exact, const std::string& what) {
  const Printed shown = printed(text);
  EXPECT_NEAR(shown.value, exact, shown.half_unit * (1 + 1e-6)) << what;
}

// "    (1) of O   ...   =  15.25 u" and "    B_O   = 117.74 u = 7.018e-06", by what stands before.
std::map<std::string, std::vector<std::string>> results_in(const std::string& page) {
  static const std::regex result(
      R"(    ((\(\d\) of|B)[ _][OL]( undeclared)?) .*= +([0-9.]+) u( = ([0-9.e-]+))?)");
  std::map<std::string, std::vector<std::string>> results;
  std::smatch match;
  for (const std::string& line : lines_of(page)) {
    if (!std::regex_match(line, match, result)) continue;
    results[match[1]] = {match[4]};
    if (match[5].matched) results[match[1]].push_back(match[6]);
  }
  return results;
}

// The last query of the example of SPEC.md, whose numbers example_test holds to the reference.
const std::vector<double> kQuery = {0, 2}, kValues = {1, 3, 5};
const std::vector<std::vector<double>> kKeys = {{1, 0}, {0, 1}, {1, 1}};

Arithmetic plain() {
  return parse_arithmetic(parse_json(R"({"products": {"default": {"accumulator": "f32",
      "truncates": false}}, "softmax": "f32", "exp_ulp": 1, "p_normalised": "last", "kv_splits": 1,
      "rescales_output": false, "subnormal_inputs": "kept", "subnormal_outputs": "kept",
      "output_rounding": "nearest"})"),
                          DType::f32, "");
}

TEST(BoundExampleTest, IsWhatTheFormulaGivesAndTheCodeBounds) {
  const std::string page =
      chapter(contents("spec/NUMERICS.md"), "On one page: plain f32 in three terms");
  const std::size_t n = kKeys.size(), d = kQuery.size();
  const double scale = 0.5, e_x = 2, rescales = 2, h = 13;  // roundoffs in units of u
  std::vector<double> a, s, p;
  for (const auto& key : kKeys) {
    double product = 0, size = 0;
    for (std::size_t c = 0; c < d; ++c) {
      product += kQuery[c] * key[c];
      size += std::abs(kQuery[c] * key[c]);
    }
    s.push_back(scale * product);
    a.push_back(scale * size);
  }
  const double m = *std::max_element(s.begin(), s.end());
  double sum = 0;
  for (const double score : s) sum += std::exp(score - m);
  const double lse = m + std::log(sum);
  for (const double score : s) p.push_back(std::exp(score - lse));
  const double o = std::inner_product(p.begin(), p.end(), kValues.begin(), 0.0);

  // The table, a row for each key.
  std::vector<std::vector<std::string>> rows;
  static const std::regex row(R"(    [0-9] .* u)");
  for (const std::string& line : lines_of(page)) {
    if (std::regex_match(line, row)) rows.push_back(words_of(line));
  }
  ASSERT_EQ(rows.size(), n);
  double spread = 0, common = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const double kappa = (static_cast<double>(d) + 2) * a[j] +
                         2 * std::max(std::abs(s[j]), std::abs(m)) + 5 * (m - s[j]) +
                         e_x * (1 + rescales);
    const double term = p[j] * kappa * std::abs(kValues[j] - o);
    spread += term;
    common += p[j] * kappa;
    const std::vector<double> numbers = {
        static_cast<double>(j),   a[j], s[j], kappa, p[j], kValues[j],
        std::abs(kValues[j] - o), term};
    std::vector<std::string> shown = rows[j];
    std::erase(shown, "u");
    ASSERT_EQ(shown.size(), numbers.size());
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      expect_prints(shown[k], numbers[k],
                    "key " + std::to_string(j) + ", column " + std::to_string(k));
    }
  }

  auto results = results_in(page);
  ASSERT_EQ(results.size(), 12u);
  const auto shows = [&](const std::string& name, double exact) {
    expect_prints(results.at(name).at(0), exact, name);
    if (results.at(name).size() > 1) expect_prints(results.at(name).at(1), exact * kU, name);
  };
  const double last = 8 * (lse - m) + 5 * std::abs(m) + std::abs(lse) + 2;
  shows("(1) of O", spread);
  shows("(2) of O", h * 2 * o);
  shows("(3) of O", 3 * o);
  shows("(1) of L", common);
  shows("(2) of L", h);
  shows("(3) of L", last);

  const Problem problem = {.query_len = 1,
                           .key_len = static_cast<Index>(n),
                           .head_dim = static_cast<Index>(d),
                           .scale = scale};
  Inputs inputs = {
      .q = zeros(problem.q_shape()), .k = zeros(problem.k_shape()), .v = zeros(problem.v_shape())};
  inputs.q.data = kQuery;
  inputs.v.data = kValues;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t c = 0; c < d; ++c) inputs.k.data[j * d + c] = kKeys[j][c];
  }
  const ForwardExpected bounds = expect_forward(problem, inputs, plain());
  // Three terms are all of it, but for products of roundoffs.
  EXPECT_NEAR(bounds.o.bound[0] / kU, spread + h * 2 * o + 3 * o, 1e-5 * bounds.o.bound[0] / kU);
  EXPECT_NEAR(bounds.lse.bound[0] / kU, common + h + last, 1e-5 * bounds.lse.bound[0] / kU);
  shows("B_O", bounds.o.bound[0] / kU);
  shows("B_L", bounds.lse.bound[0] / kU);

  // Of a kernel that declares nothing: split, with truncated sums.
  const double u = 2, e = 4.5, roundings = 25;
  const double merge = roundings * u + 2 * e + u * (5 * lse + 9 * std::log(n + 1) + 4);
  spread = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const double largest = std::max(std::abs(s[j]), std::abs(m));
    const double split = roundings * u + 6 * u * (largest + std::log(n + 1)) + 2 * e + 4 * u;
    const double kappa =
        (6 * u + 2 * u) * a[j] + 2 * u * largest + 5 * u * (m - s[j]) + e * (1 + rescales) + split;
    spread += p[j] * kappa * std::abs(kValues[j] - o);
  }
  shows("(1) of O undeclared", spread);
  shows("(2) of O undeclared", roundings * u * 2 * o);
  shows("(3) of O undeclared", (3 * u + merge) * o);
  const double bound = expect_forward(problem, inputs, loosest(DType::f32)).o.bound[0] / kU;
  EXPECT_NEAR(bound, spread + roundings * u * 2 * o + (3 * u + merge) * o, 1e-4 * bound);
  shows("B_O undeclared", bound);
}

}  // namespace
}  // namespace attest::documents
