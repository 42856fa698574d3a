// FlashAttention-2 forward as the seed writes it, line by line: one head, in f32, with the natural
// exp, no scale and no mask. It is run to be looked at: each visit of a block of keys leaves what
// the rows' state was after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attest::vendor::triton {

// Row by row.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<float> elements;

  static Matrix zeros(std::int64_t rows, std::int64_t columns) {
    return {rows, columns, std::vector<float>(static_cast<std::size_t>(rows * columns), 0.0f)};
  }
  float& operator()(std::int64_t row, std::int64_t column) {
    return elements[static_cast<std::size_t>(row * columns + column)];
  }
  float operator()(std::int64_t row, std::int64_t column) const {
    return elements[static_cast<std::size_t>(row * columns + column)];
  }
};

// After steps 7 to 10 of the algorithm, for one block of keys.
struct Visit {
  std::int64_t block_start_Br, block_start_Bc;
  std::vector<float> mi, li;  // of the block's rows
  Matrix Oi;                  // not yet divided
};

struct Trace {
  std::int64_t Br, Bc;
  std::vector<Visit> visits;
  Matrix O;
  std::int64_t exps = 0;       // of scores and of rescales
  std::int64_t divisions = 0;  // each row's O once: FlashAttention-1 divides at every visit
};

// The text's sizes: N 16, d 8, Br 4, Bc = d.
struct TutorialSizes {
  std::int64_t N = 16, d = 8, Br = 4, Bc = 8;
};

Trace forward_line_by_line(const Matrix& Q, const Matrix& K, const Matrix& V, std::int64_t Br,
                           std::int64_t Bc);

// Numbers from 0 to 1, the same each time: the text has torch.rand.
Matrix uniform_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed);

// A line for each step, by the algorithm's numbers.
std::string to_text(const Trace& trace);

}  // namespace attest::vendor::triton
