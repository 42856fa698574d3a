#include "harness/judge/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/judge.h"

namespace attest {
namespace {

// Letters of a picture, at most.
constexpr Index kMostRows = 32, kMostColumns = 32, kMostHeatRows = 16, kMostHeatColumns = 48;
constexpr Index kLooks = 8;  // at the queries of a letter of a mask, and at its keys

// So many things, spread over at most so many letters: all alike but the last.
struct GridAxis {
  Index size, per;
  GridAxis(Index things, Index most)
      : size(things), per(std::max<Index>(1, (things + most - 1) / most)) {}
  Index letters() const { return (size + per - 1) / per; }
  Index begin(Index letter) const { return letter * per; }
  Index end(Index letter) const { return std::min(size, (letter + 1) * per); }
  Index step(Index letter) const {
    return std::max<Index>(1, (end(letter) - begin(letter)) / kLooks);
  }
};

std::vector<std::string> blank_grid(const GridAxis& rows, const GridAxis& columns) {
  return std::vector<std::string>(static_cast<std::size_t>(rows.letters()),
                                  std::string(static_cast<std::size_t>(columns.letters()), '.'));
}

char mask_letter(const Problem& problem, Position at, const GridAxis& queries, Index row,
                 const GridAxis& keys, Index column) {
  bool some_seen = false, some_hidden = false;
  for (at.query = queries.begin(row); at.query < queries.end(row); at.query += queries.step(row)) {
    for (at.key = keys.begin(column); at.key < keys.end(column); at.key += keys.step(column)) {
      (visible(problem, at) ? some_seen : some_hidden) = true;
    }
  }
  return some_seen && some_hidden ? '+' : some_seen ? '#' : '.';
}

char worker_letter(Index worker) {
  const auto n = static_cast<int>(worker % 36);
  return static_cast<char>(n < 10 ? '0' + n : 'a' + n - 10);
}

}  // namespace

char heat_letter(double ratio) {
  if (ratio < 1) return static_cast<char>('0' + static_cast<int>(ratio * 10));
  if (ratio == 1) return '9';
  if (!(ratio < 0x1p25)) return 'z';
  return static_cast<char>('a' + static_cast<int>(std::ceil(std::log2(ratio))) - 1);
}

Picture heat_picture(TensorName tensor, const std::vector<std::uint64_t>& bits, DType dtype,
                     const Shape& shape, const Expected& expected, Rounding rounding) {
  const GridAxis rows(shape[0] * shape[1], kMostHeatRows), columns(shape[2], kMostHeatColumns);
  Picture picture = {.kind = "heat",
                     .of = std::string(name(tensor)),
                     .rows = rows.size,
                     .columns = columns.size,
                     .letters = blank_grid(rows, columns)};
  const std::vector<double> ratios = ratios_to_bounds(bits, dtype, expected, rounding);
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    if (ratios[i] < 0) continue;  // not compared
    const auto place = coordinates(shape, static_cast<Index>(i));
    const Index row = (place[0] * shape[1] + place[1]) / rows.per, column = place[2] / columns.per;
    char& letter = picture.letters[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
    letter = std::max(letter, heat_letter(ratios[i]));  // '.' < '0' < 'a', in ASCII
  }
  return picture;
}

Picture mask_picture(const Problem& problem, Index batch, Index head) {
  const GridAxis rows(problem.query_len, kMostRows), columns(problem.key_len, kMostColumns);
  Picture picture = {.kind = "mask",
                     .of = fmt::format("batch {}, head {}", batch, head),
                     .rows = rows.size,
                     .columns = columns.size,
                     .letters = blank_grid(rows, columns)};
  for (Index row = 0; row < rows.letters(); ++row) {
    for (Index column = 0; column < columns.letters(); ++column) {
      picture.letters[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] =
          mask_letter(problem, {.batch = batch, .head = head, .query = 0, .key = 0}, rows, row,
                      columns, column);
    }
  }
  return picture;
}

void add_mask_picture(const Problem& problem, Verdict& verdict) {
  const bool is_empty = problem.batch == 0 || problem.query_heads == 0 || problem.query_len == 0 ||
                        problem.key_len == 0;
  if (!is_fault(verdict.outcome) || is_empty) return;
  Index batch = 0, head = 0;
  double worst = 1;
  for (const auto& [tensor, e] : verdict.tensors) {
    // Where several are packed, an element does not tell of which it is.
    const bool tells = is_among(tensor, kQueryTensors) && !problem.packed && e.worst.size() == 4;
    if (!tells || e.max_ratio <= worst) continue;
    worst = e.max_ratio;
    batch = e.worst[0];
    head = e.worst[1];
  }
  verdict.pictures.push_back(mask_picture(problem, batch, head));
}

Picture blocks_picture(const Problem& problem, const std::vector<Block>& blocks,
                       const ScheduleEvidence& about) {
  const GridAxis rows(problem.batch * problem.query_heads * problem.query_len, kMostRows),
      columns(problem.key_len, kMostColumns);
  Picture picture = {.kind = "blocks",
                     .of = fmt::format("{}, {} thread{}", about.pass, about.threads,
                                       about.threads == 1 ? "" : "s"),
                     .rows = rows.size,
                     .columns = columns.size,
                     .letters = blank_grid(rows, columns)};
  for (const Block& block : blocks) {
    const Index plane = (block.batch * problem.query_heads + block.head) * problem.query_len;
    for (Index row = 0; row < rows.letters(); ++row) {
      const Index query = (rows.begin(row) + rows.end(row)) / 2 - plane;
      if (query < block.query_begin || query >= block.query_end) continue;
      for (Index column = 0; column < columns.letters(); ++column) {
        const Index key = (columns.begin(column) + columns.end(column)) / 2;
        if (key < block.key_begin || key >= block.key_end) continue;
        picture.letters[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] =
            worker_letter(block.worker);
      }
    }
  }
  return picture;
}

}  // namespace attest
