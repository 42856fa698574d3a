// The example at the start of SPEC.md, number by number, against the exact reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "reference/exact.h"
#include "tests/documents/document.h"

namespace attest::documents {
namespace {

using Real = long double;
using Tensor = exact::Tensor<Real>;
using Table = std::vector<std::vector<std::string>>;  // a row for each query or key

constexpr Index kSize = 3;
constexpr const char* kHidden = "·";

const std::map<std::string, std::size_t> kWidths = {
    {"Q", 2},   {"K", 2},  {"V", 2}, {"dO", 2}, {"s", 3},  {"P", 3},  {"O", 2},
    {"LSE", 1}, {"dP", 3}, {"D", 1}, {"dS", 3}, {"dQ", 2}, {"dK", 2}, {"dV", 2}};

// Blocks of tables side by side, their names above.
std::map<std::string, Table> tables_of(const std::string& text) {
  std::map<std::string, Table> tables;
  for (const std::vector<std::string>& block : blocks_of(text)) {
    const std::vector<std::string> names = words_of(block.front());
    if (block.size() != kSize + 1 || !kWidths.contains(names.front())) continue;
    for (std::size_t i = 1; i < block.size(); ++i) {
      const std::vector<std::string> cells = words_of(block[i]);
      auto cell = cells.begin();
      for (const std::string& name : names) {
        std::vector<std::string> row;
        for (std::size_t c = 0; c < kWidths.at(name) && cell != cells.end(); ++c) {
          row.push_back(*cell++);
        }
        tables[name].push_back(row);
      }
      EXPECT_EQ(cell, cells.end()) << "too many numbers: " << block[i];
    }
  }
  return tables;
}

Tensor tensor_of(const Table& table) {
  Tensor tensor({1, 1, kSize, static_cast<Index>(table.at(0).size())});
  std::size_t at = 0;
  for (const auto& row : table) {
    for (const std::string& cell : row) tensor.data.at(at++) = std::stold(cell);
  }
  return tensor;
}

// What is printed is the exact number, rounded to as many digits as are printed.
void expect_shows(const std::string& name, const Table& shown, const Tensor& exact,
                  const Problem& problem) {
  ASSERT_EQ(shown.size(), kSize) << name;
  for (Index i = 0; i < kSize; ++i) {
    const std::vector<std::string>& row = shown[static_cast<std::size_t>(i)];
    ASSERT_EQ(static_cast<Index>(row.size()), exact.shape[kChannel]) << name << " row " << i;
    for (Index c = 0; c < exact.shape[kChannel]; ++c) {
      const std::string& cell = row[static_cast<std::size_t>(c)];
      const std::string place = name + " " + std::to_string(i) + "," + std::to_string(c);
      const bool of_pairs = kWidths.at(name) == kSize;
      const bool hidden = of_pairs && !visible(problem, {.query = i, .key = c});
      EXPECT_EQ(cell == kHidden, hidden) << place;
      if (hidden || cell == kHidden) continue;
      const auto point = cell.find('.');
      ASSERT_NE(point, std::string::npos) << place;
      const Real unit = std::pow(Real(10), -static_cast<Real>(cell.size() - point - 1));
      EXPECT_NEAR(static_cast<double>(std::stold(cell) / unit),
                  static_cast<double>(exact.at(0, 0, i, c) / unit), 0.5 + 1e-9)
          << place << " of the example";
    }
  }
}

TEST(ExampleTest, IsWhatTheReferenceComputes) {
  const std::string page = chapter(contents("spec/SPEC.md"), "Attention on one page");
  EXPECT_THAT(page, testing::HasSubstr("scale = 1/2, causal"));
  const std::map<std::string, Table> tables = tables_of(page);
  ASSERT_EQ(tables.size(), kWidths.size());

  const Problem problem = {.query_len = kSize,
                           .key_len = kSize,
                           .head_dim = 2,
                           .value_dim = 2,
                           .scale = 0.5,
                           .mask = Mask::causal(Anchor::top_left),
                           .bias_shape = Shape{1, 1, kSize, kSize},  // whose gradient is dS
                           .backward = true};
  exact::Inputs<Real> in = {.q = tensor_of(tables.at("Q")),
                            .k = tensor_of(tables.at("K")),
                            .v = tensor_of(tables.at("V")),
                            .bias = Tensor(*problem.bias_shape),
                            .d_o = tensor_of(tables.at("dO"))};
  const exact::Outputs<Real> out = exact::forward(problem, in);
  const exact::Gradients<Real> gradients = exact::backward(problem, in);
  std::map<std::string, Tensor> values = {{"O", out.o},         {"LSE", out.lse},
                                          {"dQ", gradients.dq}, {"dK", gradients.dk},
                                          {"dV", gradients.dv}, {"dS", gradients.dbias}};

  // With V the identity, O is P; with one key alone, LSE is its score.
  Problem of_pairs = problem;
  of_pairs.value_dim = kSize;
  of_pairs.backward = false;
  exact::Inputs<Real> single = in;
  single.v = Tensor({1, 1, kSize, kSize});
  for (Index j = 0; j < kSize; ++j) single.v.at(0, 0, j, j) = 1;
  values["P"] = exact::forward(of_pairs, single).o;
  values["s"] = values["dP"] = Tensor({1, 1, kSize, kSize});
  values["D"] = Tensor({1, 1, kSize, 1});
  for (Index j = 0; j < kSize; ++j) {
    Problem alone = of_pairs;
    alone.mask = Mask::dense({{1, 1, 1, kSize}, {j == 0, j == 1, j == 2}});
    const Tensor lse = exact::forward(alone, single).lse;
    for (Index i = 0; i < kSize; ++i) {
      values["s"].at(0, 0, i, j) = lse.at(0, 0, i, 0);
      for (Index c = 0; c < 2; ++c) {
        values["dP"].at(0, 0, i, j) += in.d_o.at(0, 0, i, c) * in.v.at(0, 0, j, c);
      }
    }
  }
  for (Index i = 0; i < kSize; ++i) {
    for (Index c = 0; c < 2; ++c) {
      values["D"].at(0, 0, i, 0) += in.d_o.at(0, 0, i, c) * out.o.at(0, 0, i, c);
    }
  }
  for (const auto& [name, exact] : values) expect_shows(name, tables.at(name), exact, problem);
}

}  // namespace
}  // namespace attest::documents
