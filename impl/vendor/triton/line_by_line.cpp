#include "impl/vendor/triton/line_by_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest::vendor::triton {
namespace {

struct RowState {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
};

// Steps 8 to 10 for one row: its scores of a block of keys, and what they make of its state.
void visit_row(const Matrix& Q, const Matrix& K, const Matrix& V, std::int64_t row,
               std::int64_t local, std::int64_t begin, std::int64_t end, RowState& state,
               Matrix& Oi, Trace& trace) {
  std::vector<float> S;  // step 8
  for (std::int64_t j = begin; j < end; ++j) {
    float dot = 0;
    for (std::int64_t c = 0; c < Q.columns; ++c) dot += Q(row, c) * K(j, c);
    S.push_back(dot);
  }
  const float m_new = std::max(state.m, *std::max_element(S.begin(), S.end()));  // step 9
  const float rescale = std::exp(state.m - m_new);
  float row_sum = 0;
  for (float& s : S) row_sum += s = std::exp(s - m_new);
  state.l = rescale * state.l + row_sum;
  for (std::int64_t c = 0; c < V.columns; ++c) {  // step 10
    float dot = 0;
    for (std::int64_t j = begin; j < end; ++j)
      dot += S[static_cast<std::size_t>(j - begin)] * V(j, c);
    Oi(local, c) = Oi(local, c) * rescale + dot;
  }
  state.m = m_new;
  trace.exps += end - begin + 1;
}

}  // namespace

Trace forward_line_by_line(const Matrix& Q, const Matrix& K, const Matrix& V, std::int64_t Br,
                           std::int64_t Bc) {
  Trace trace = {.Br = Br, .Bc = Bc, .visits = {}, .O = Matrix::zeros(Q.rows, V.columns)};
  for (std::int64_t i = 0; i < Q.rows; i += Br) {  // step 3, and step 4: a block of Q
    const std::int64_t rows = std::min(Br, Q.rows - i);
    Matrix Oi = Matrix::zeros(rows, V.columns);  // step 5
    std::vector<RowState> state(static_cast<std::size_t>(rows));
    for (std::int64_t j = 0; j < K.rows; j += Bc) {  // step 6, and step 7: blocks of K and V
      Visit visit = {.block_start_Br = i, .block_start_Bc = j, .mi = {}, .li = {}, .Oi = {}};
      for (std::int64_t row = 0; row < rows; ++row) {
        RowState& own = state[static_cast<std::size_t>(row)];
        visit_row(Q, K, V, i + row, row, j, std::min(j + Bc, K.rows), own, Oi, trace);
        visit.mi.push_back(own.m);
        visit.li.push_back(own.l);
      }
      visit.Oi = Oi;
      trace.visits.push_back(std::move(visit));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t c = 0; c < V.columns; ++c) {  // step 12, and step 14: O is written
        trace.O(i + row, c) = Oi(row, c) / state[static_cast<std::size_t>(row)].l;
        ++trace.divisions;
      }
    }
  }
  return trace;
}

Matrix uniform_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Matrix matrix = Matrix::zeros(rows, columns);
  std::uint64_t state = seed;
  for (float& element : matrix.elements) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    element = static_cast<float>(state >> 40) * 0x1p-24f;
  }
  return matrix;
}

std::string to_text(const Trace& trace) {
  std::string text;
  std::int64_t last_row = -1;
  for (const Visit& visit : trace.visits) {
    const std::int64_t i = visit.block_start_Br, j = visit.block_start_Bc;
    if (i != last_row) {
      text += fmt::format("3, 4   load Q[{}:{}]\n5      O = 0, l = 0, m = -inf\n", i,
                          i + visit.Oi.rows);
    }
    last_row = i;
    text += fmt::format("6, 7   load K[{}:{}], V[{}:{}]\n", j, j + trace.Bc, j, j + trace.Bc);
    text += fmt::format("8, 9   m = {:.4f}\n       l = {:.4f}\n", fmt::join(visit.mi, " "),
                        fmt::join(visit.li, " "));
    for (std::int64_t row = 0; row < visit.Oi.rows; ++row) {
      const float* const begin = visit.Oi.elements.data() + row * visit.Oi.columns;
      text += fmt::format("{}O[{}] = {:.4f}\n", row == 0 ? "10     " : "       ", i + row,
                          fmt::join(begin, begin + visit.Oi.columns, " "));
    }
    if (j + trace.Bc < trace.O.rows) continue;
    for (std::int64_t row = i; row < i + visit.Oi.rows; ++row) {
      const float* const begin = trace.O.elements.data() + row * trace.O.columns;
      text += fmt::format("{}O[{}] = {:.4f}\n", row == i ? "12, 14 " : "       ", row,
                          fmt::join(begin, begin + trace.O.columns, " "));
    }
  }
  return text;
}

}  // namespace attest::vendor::triton
