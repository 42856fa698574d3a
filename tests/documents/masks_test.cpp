// The pictures of masks in SPEC.md, against the keys that the exact reference lets each query see.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "cases/mask_reader.h"
#include "reference/exact.h"
#include "spec/mask_kind.h"
#include "tests/documents/document.h"

namespace attest::documents {
namespace {

std::vector<std::int32_t> digits(const std::string& text) {
  std::vector<std::int32_t> numbers;
  for (const char c : text) numbers.push_back(c - '0');
  return numbers;
}

// "block_sparse 2x3 x./xx": the size of a block, and the rows of its table.
Mask block_sparse_of(const std::string& caption) {
  std::smatch match;
  if (!std::regex_match(caption, match, std::regex(R"(block_sparse (\d+)x(\d+) ([x.]+)/([x.]+))")))
    throw std::runtime_error("not a mask: " + caption);
  DenseMask table = {{1, 1, 2, static_cast<Index>(match[3].length())}, {}};
  for (const char c : match[3].str() + match[4].str()) table.allowed.push_back(c == 'x');
  return Mask::block_sparse(std::stoi(match[1]), std::stoi(match[2]), table);
}

// "segments 0011 000111": the numbers of the queries, then of the keys.
Mask segments_of(const std::string& caption) {
  const std::vector<std::string> words = words_of(caption);
  const auto numbers = [](const std::string& text) {
    return SegmentNumbers{1, static_cast<Index>(text.size()), digits(text)};
  };
  return Mask::documents({numbers(words.at(1)), numbers(words.at(2))});
}

Mask mask_of(const std::string& caption) {
  for (const char* word : {" and ", " or "}) {
    const std::size_t at = caption.find(word);
    if (at == std::string::npos) continue;
    std::vector<Mask> parts = {mask_of(caption.substr(0, at)),
                               mask_of(caption.substr(at + std::string(word).size()))};
    return std::string(word) == " and " ? Mask::all_of(parts) : Mask::any_of(parts);
  }
  if (caption.starts_with("segments ")) return segments_of(caption);
  if (caption.starts_with("block_sparse ")) return block_sparse_of(caption);
  return parse_mask(caption);
}

// Sees what a query sees by the weight that each key has in O, with V the identity.
std::vector<std::string> picture_of(Problem problem) {
  problem.value_dim = problem.key_len;
  exact::Inputs<double> in = {.q = exact::Tensor<double>(problem.q_shape()),
                              .k = exact::Tensor<double>(problem.k_shape()),
                              .v = exact::Tensor<double>(problem.v_shape())};
  for (Index j = 0; j < problem.key_len; ++j) in.v.at(0, 0, j, j) = 1;
  const exact::Tensor<double> weights = exact::forward(problem, in).o;
  std::vector<std::string> rows;
  for (Index i = 0; i < problem.query_len; ++i) {
    std::string row;
    for (Index j = 0; j < problem.key_len; ++j) {
      row += std::string(j > 0 ? " " : "") + (weights.at(0, 0, i, j) > 0 ? "x" : ".");
    }
    rows.push_back(row);
  }
  return rows;
}

// "Sq = 4, Sk = 6, qlen = 3, klen = 5: ..."
void read_sizes(const std::string& line, Problem& problem) {
  static const std::regex sizes(R"(Sq = (\d+), Sk = (\d+)(, qlen = (\d+), klen = (\d+))?[:;].*)");
  std::smatch match;
  if (!std::regex_match(line, match, sizes)) return;
  problem = {.query_len = std::stoi(match[1]), .key_len = std::stoi(match[2])};
  if (match[3].matched) {
    problem.query_lens = {std::stoi(match[4])};
    problem.key_lens = {std::stoi(match[5])};
  }
}

TEST(MaskPicturesTest, ShowWhatTheReferenceSees) {
  const std::string page = chapter(contents("spec/SPEC.md"), "Attention on one page");
  Problem problem;
  std::set<Mask::Kind> seen;
  std::vector<std::string> captions;
  std::size_t row = 0;
  for (const std::string& line : lines_of(page.substr(page.find("**The masks.**")))) {
    if (!is_indented(line)) {
      if (!captions.empty()) {
        EXPECT_EQ(static_cast<Index>(row), problem.query_len) << captions[0];
      }
      captions.clear();
      row = 0;
      read_sizes(line, problem);
      continue;
    }
    if (captions.empty()) {
      captions = columns_of(line);
      continue;
    }
    const std::vector<std::string> drawn = columns_of(line);
    ASSERT_EQ(drawn.size(), captions.size()) << line;
    for (std::size_t k = 0; k < captions.size(); ++k) {
      problem.mask = mask_of(captions[k]);
      seen.insert(problem.mask.kind);
      EXPECT_EQ(drawn[k], picture_of(problem).at(row)) << captions[k] << ", row " << row;
    }
    ++row;
  }
  for (const MaskKind& each : mask_kinds()) {
    // A table that is any has none.
    EXPECT_TRUE(seen.contains(each.kind) || each.kind == Mask::Kind::dense)
        << each.word << " has no picture";
  }
}

}  // namespace
}  // namespace attest::documents
