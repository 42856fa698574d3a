#include "impl/vendor/ascend/mask_translation.h"

#include <algorithm>

namespace attest::vendor::ascend {

namespace {

using std::int64_t;

constexpr int64_t kCompressedSide = 2048, kPrefixRows = 1024, kAll = 2147483647;

// A bound of a band in the operators' numbers, where 2147483647 is no bound.
int64_t tokens(int64_t bound, int64_t shift) {
  if (bound == ATTEST_UNBOUNDED) return kAll;
  return std::clamp(bound + shift, -kAll, kAll);
}

// The lower triangle, and below it, of mode 6, what the prefix is read from.
void fill_compressed(MaskChoice& choice, bool prefix, bool contents) {
  choice.shape = {kCompressedSide + (prefix ? kPrefixRows : 0), kCompressedSide};
  choice.atten_mask.resize(1);
  if (!contents) return;
  choice.atten_mask.assign(static_cast<std::size_t>(choice.shape[0] * kCompressedSide), 0);
  for (int64_t row = 0; row < choice.shape[0]; ++row) {
    const auto first = choice.atten_mask.begin() + row * kCompressedSide;
    const int64_t shown = row < kCompressedSide ? row + 1 : kCompressedSide / 2;
    std::fill(first + shown, first + kCompressedSide, std::uint8_t{1});
  }
}

bool is_causal(const attest_mask& m) {
  return m.kind == ATTEST_MASK_BAND && m.left == ATTEST_UNBOUNDED && m.right == 0 && m.offset == 0;
}

// ---- Whole masks: each node's row of keys, children first

class RowsOfMask {
 public:
  RowsOfMask(const Problem& problem, int64_t keys)
      : p_(problem),
        keys_(keys),
        rows_(problem.mask_nodes().size(), std::vector<char>(static_cast<std::size_t>(keys))) {}

  const std::vector<char>& allowed(int64_t b, int64_t h, int64_t i) {
    for (std::size_t n = 0; n < rows_.size(); ++n) fill(p_.mask_nodes()[n], b, h, i, rows_[n]);
    return rows_.back();
  }

 private:
  template <class T>
  static T entry(const attest_tensor& table, int64_t b, int64_t h, int64_t i, int64_t j) {
    return View<T>(attest::Tensor(table))(b, h, i, j);
  }

  void fill(const attest_mask& m, int64_t b, int64_t h, int64_t i, std::vector<char>& row) {
    const int64_t shift = m.offset + (m.anchored_bottom_right ? p_.key_len - p_.query_len : 0);
    const auto set = [&](const auto& allows) {
      for (int64_t j = 0; j < keys_; ++j) row[static_cast<std::size_t>(j)] = allows(j);
    };
    switch (m.kind) {
      case ATTEST_MASK_BAND:
        return set([&](int64_t j) {
          const int64_t ahead = j - i - shift;
          return (m.left == ATTEST_UNBOUNDED || ahead >= -m.left) &&
                 (m.right == ATTEST_UNBOUNDED || ahead <= m.right);
        });
      case ATTEST_MASK_DENSE:
        return set([&](int64_t j) { return entry<std::uint8_t>(m.table, b, h, i, j) != 0; });
      case ATTEST_MASK_PREFIX:
        return set([&](int64_t j) { return j < entry<int64_t>(m.table, b, 0, 0, 0); });
      case ATTEST_MASK_SEGMENTS: {
        const auto own = entry<std::int32_t>(m.table, b, 0, i, 0);
        return set([&](int64_t j) {
          return own >= 0 && own == entry<std::int32_t>(m.table2, b, 0, j, 0);
        });
      }
      case ATTEST_MASK_BLOCK_SPARSE:
        return set([&](int64_t j) {
          return entry<std::uint8_t>(m.table, b, h, i / m.block_query, j / m.block_key) != 0;
        });
      case ATTEST_MASK_DILATED:
        return set([&](int64_t j) { return (j - i - shift) % m.dilation == 0; });
      case ATTEST_MASK_ALL_OF:
        return set([&](int64_t j) { return child(m.first, j) && child(m.second, j); });
      case ATTEST_MASK_ANY_OF:
        return set([&](int64_t j) { return child(m.first, j) || child(m.second, j); });
      default:
        return set([](int64_t) { return true; });
    }
  }
  bool child(int64_t node, int64_t j) const {
    return rows_[static_cast<std::size_t>(node)][static_cast<std::size_t>(j)] != 0;
  }

  const Problem& p_;
  const int64_t keys_;
  std::vector<std::vector<char>> rows_;
};

// The axes on which any table of the mask has entries of its own.
bool differs(const Problem& p, int axis) {
  return std::any_of(p.mask_nodes().begin(), p.mask_nodes().end(),
                     [&](const attest_mask& m) {
                       return m.table.data != nullptr && m.table.shape[axis] > 1;
                     }) ||
         (axis == 0 &&
          std::any_of(p.mask_nodes().begin(), p.mask_nodes().end(), [&](const attest_mask& m) {
            return m.table2.data != nullptr && m.table2.shape[0] > 1;
          }));
}

// allMask: SS, B1SS or BNSS, as the tables are.
MaskChoice whole_mask(const Problem& p, const MaskForm& form) {
  MaskChoice choice;
  choice.sparse_mode = 1;
  const bool of_heads = !form.packed && differs(p, 1),
             of_batch = !form.packed && (of_heads || differs(p, 0));
  const int64_t batch = of_batch ? p.batch : 1, heads = of_heads ? p.query_heads : 1;
  choice.shape = {form.queries, form.keys};
  if (of_batch) choice.shape = {batch, heads, form.queries, form.keys};
  choice.atten_mask.resize(1);
  if (!form.contents) return choice;
  choice.atten_mask.clear();
  choice.atten_mask.reserve(static_cast<std::size_t>(batch * heads * form.queries * form.keys));
  RowsOfMask rows(p, form.keys);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < form.queries; ++i)
        for (const char allowed : rows.allowed(b, h, i))
          choice.atten_mask.push_back(allowed ? 0 : 1);
    }
  }
  return choice;
}

MaskChoice band_mask(const Problem& p, const attest_mask& m, const MaskForm& form) {
  MaskChoice choice;
  if (is_causal(m)) {
    choice.sparse_mode = m.anchored_bottom_right ? 3 : 2;
  } else if (m.anchored_bottom_right || !form.packed) {
    // Band counts from the lower right corner.
    const int64_t shift = m.offset - (m.anchored_bottom_right ? 0 : p.key_len - p.query_len);
    choice.sparse_mode = 4;
    choice.pre_tokens = tokens(m.left, -shift);
    choice.next_tokens = tokens(m.right, shift);
  } else {  // from the upper left of each sequence there is causal alone: a table for all of them
    return whole_mask(p, form);
  }
  fill_compressed(choice, false, form.contents);
  return choice;
}

// Whether the mask is "prefix or causal from the lower right", which is mode 6.
const attest_mask* prefix_of(const Problem& p) {
  const auto& nodes = p.mask_nodes();
  if (nodes.size() != 3 || nodes.back().kind != ATTEST_MASK_ANY_OF) return nullptr;
  const attest_mask *a = &nodes[0], *b = &nodes[1];
  if (a->kind != ATTEST_MASK_PREFIX) std::swap(a, b);
  return a->kind == ATTEST_MASK_PREFIX && is_causal(*b) && b->anchored_bottom_right ? a : nullptr;
}

}  // namespace

MaskChoice choose_mask(const Problem& p, const MaskForm& form) {
  if (p.full()) return {};
  const auto& nodes = p.mask_nodes();
  if (nodes.size() == 1 && nodes[0].kind == ATTEST_MASK_BAND) return band_mask(p, nodes[0], form);
  const attest_mask* prefix = form.packed ? nullptr : prefix_of(p);
  if (!prefix) return whole_mask(p, form);
  MaskChoice choice;
  choice.sparse_mode = 6;
  // The operators want no less than what the causal part shows to all rows anyway.
  const int64_t least = std::max<int64_t>(0, p.key_len - p.query_len);
  for (int64_t b = 0; b < p.batch; ++b) {
    choice.prefix.push_back(
        std::max(least, View<int64_t>(attest::Tensor(prefix->table))(b, 0, 0, 0)));
  }
  fill_compressed(choice, true, form.contents);
  return choice;
}

}  // namespace attest::vendor::ascend
