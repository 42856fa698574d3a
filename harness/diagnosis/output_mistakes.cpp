// What is returned: LSE, rows that see no key.
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "harness/diagnosis/setting.h"
#include "reference/working.h"

namespace attest {
namespace {

using std::numbers::ln2;

// LSE of each row by a formula. A bound that is zero stays so where the value does.
Mistake lse(std::string name, std::string clause, std::function<double(double)> change,
            double factor) {
  return {std::move(name),
          std::move(clause),
          {},
          [change = std::move(change), factor](const Setting&, TensorName tensor, Expected& e) {
            if (tensor != TensorName::lse) return;
            for (std::size_t i = 0; i < e.value.size(); ++i) {
              e.value[i] = change(e.value[i]);
              // A multiplication rounds once more, to f32.
              e.bound[i] = e.bound[i] * factor + std::abs(e.value[i]) * 0x1p-22;
            }
            e.rest.clear();
          },
          {TensorName::lse}};
}

// LSE of rows that see nothing alone.
Mistake empty_lse(std::string name, double value) {
  return {std::move(name),
          "EMPTY-2",
          {},
          [value](const Setting&, TensorName tensor, Expected& e) {
            if (tensor != TensorName::lse) return;
            for (double& each : e.value) {
              if (each == -kInfinite) each = value;
            }
          },
          {TensorName::lse}};
}

// O of rows that see nothing alone: there nothing but 0 will do.
Mistake empty_o(std::string name, double value) {
  return {std::move(name),
          "EMPTY-1",
          {},
          [value](const Setting& s, TensorName tensor, Expected& e) {
            if (tensor != TensorName::o) return;
            const ForwardExpected forward =
                expect_forward(s.problem, s.inputs, loosest(s.problem.dtype));
            const auto channels = static_cast<std::size_t>(s.problem.value_dim);
            for (std::size_t at = 0; at < e.value.size(); ++at) {
              if (forward.lse.value[at / channels] == -kInfinite) {
                e.value[at] = value;
                e.bound[at] = std::abs(value) * 0x1p-6;
              }
            }
          },
          {TensorName::o}};
}

Mistake zero(std::string name, std::string clause, TensorName only) {
  return {std::move(name),
          std::move(clause),
          {},
          [](const Setting&, TensorName, Expected& e) {
            for (std::size_t i = 0; i < e.value.size(); ++i) {
              if (!std::isnan(e.value[i])) e.value[i] = e.bound[i] = 0;
            }
            e.rest.clear();
          },
          {only}};
}

std::vector<Mistake> zeroes() {
  return {
      zero("an O of zeros", "SOFTMAX-1", TensorName::o),
      zero("an LSE of zeros", "LSE-1", TensorName::lse),
      zero("a dQ of zeros", "GRAD-1", TensorName::dq),
      zero("a dK of zeros", "GRAD-2", TensorName::dk),
      zero("a dV of zeros", "GRAD-3", TensorName::dv),
      zero("a dBias of zeros", "GRAD-4", TensorName::dbias),
      zero("a dSink of zeros", "SINK-2", TensorName::dsink),
  };
}

// Where BSHD has a row, of what lies as BHSD.
void exchange_heads_and_rows(const Setting& s, TensorName tensor, Expected& e) {
  if (tensor != TensorName::o) return;
  const Shape shape = s.problem.o_shape();
  const Expected before = e;
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index i = 0; i < shape[2]; ++i) {
        const Index row = i * shape[1] + h;  // where BSHD has it, of BHSD
        for (Index d = 0; d < shape[3]; ++d) {
          const auto from = static_cast<std::size_t>(dense_index(shape, b, h, i, d));
          const auto to = static_cast<std::size_t>((b * shape[1] * shape[2] + row) * shape[3] + d);
          e.value[to] = before.value[from];
          e.bound[to] = before.bound[from];
        }
      }
    }
  }
  e.rest.clear();
}

}  // namespace

std::vector<Mistake> output_mistakes() {
  std::vector<Mistake> all = zeroes();
  std::vector<Mistake> more = {
      lse(
          "LSE in base 2", "LSE-1", [](double x) { return x / ln2; }, 1 / ln2),
      lse(
          "LSE times ln 2", "LSE-1", [](double x) { return x * ln2; }, 1),
      lse(
          "LSE with the other sign", "LSE-1", [](double x) { return -x; }, 1),
      {"LSE without the maximum",
       "LSE-1",
       [](Setting& s) {
         const Setting before = s;
         const auto largest = largest_scores(before);
         return set_scores(s, [&](const Position& at, const Score& score) {
           return score.whole() - largest(at);
         });
       },
       {},
       {TensorName::lse}},
      empty_o("O -65504 for rows that see no key", -65504),
      empty_lse("LSE 0 for rows that see no key", 0),
      empty_lse("LSE +inf for rows that see no key", kInfinite),
      empty_lse("the lowest LSE of the format for rows that see no key",
                -static_cast<double>(std::numeric_limits<float>::max())),
      empty_lse("LSE -50000 for rows that see no key", -50000),
      {"the mean of V for rows that see no key", "EMPTY-1", fill_empty_rows, {}, {TensorName::o}},
      {"O with heads and rows exchanged in memory",
       "LAYOUT-1",
       {},
       exchange_heads_and_rows,
       {TensorName::o}},
  };
  for (Mistake& each : more) all.push_back(std::move(each));
  return all;
}

}  // namespace attest
