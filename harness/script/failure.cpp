#include "harness/script/failure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "cases/generate.h"

namespace attest::scripts {

std::string Failure::element() const { return fmt::format("{}", fmt::join(worst.worst, ", ")); }

std::vector<std::string> Failure::comment() const {
  const std::string& version = testee.description.version;
  return {fmt::format("{}{}{}: {}[{}] is wrong", testee.name, version.empty() ? "" : " ", version,
                      name(tensor), element()),
          to_string(problem())};
}

std::optional<Diagonals> diagonals_of(const Problem& p) {
  if (p.mask.kind != Mask::Kind::band || !p.key_lens.empty() || !p.query_lens.empty()) {
    return std::nullopt;
  }
  const Index shift =
      p.mask.offset + (p.mask.anchor == Anchor::bottom_right ? p.key_len - p.query_len : 0);
  Diagonals found;
  if (p.mask.left != kUnbounded) found.least = shift - p.mask.left;
  if (p.mask.right != kUnbounded) found.most = shift + p.mask.right;
  return found;
}

bool has_causal_flag(const Problem& p) {
  const auto band = diagonals_of(p);
  return band && !band->least && band->most == 0 && p.mask.anchor == Anchor::top_left;
}

bool sees_all(const Problem& p) {
  return p.mask.kind == Mask::Kind::full && p.key_lens.empty() && p.query_lens.empty();
}

std::pair<Shape, std::string> table_of(const Problem& p) {
  const auto rows_of = [&](Index b, Index h) {
    std::string bits;
    for (Position at = {.batch = b, .head = h}; at.query < p.query_len; ++at.query) {
      for (at.key = 0; at.key < p.key_len; ++at.key) bits += visible(p, at) ? '1' : '0';
    }
    return bits;
  };
  std::string all;
  bool alike = true;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      all += rows_of(b, h);
      alike = alike && rows_of(b, h) == rows_of(0, 0);
    }
  }
  if (alike) return {{1, 1, p.query_len, p.key_len}, rows_of(0, 0)};
  return {p.keep_shape(), all};
}

std::vector<double> bias_of(const Case& test_case) { return generate(test_case).bias.data; }

std::string text_of(const std::vector<std::string>& lines) {
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace attest::scripts
