#include "impl/vendor/splash/plugin_masks.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace attest::vendor::splash {
namespace {

// One head of one batch element.
class Translation {
 public:
  Translation(const attest::Problem& problem, std::int64_t batch, std::int64_t head)
      : problem_(problem), batch_(batch), head_(head), shape_{problem.query_len, problem.key_len} {}

  MaskPtr mask() {
    const auto nodes = static_cast<std::int64_t>(problem_.mask_nodes().size());
    const MaskPtr root = nodes == 0 ? nullptr : of(nodes - 1, true);
    return root ? root : full_mask(shape_);
  }
  std::optional<SegmentIds> segment_ids;

 private:
  // Null: nothing but segments that went beside the mask. `anded`: with all else that is there.
  MaskPtr of(std::int64_t number, bool anded) {
    const attest_mask& node = problem_.mask_nodes()[static_cast<std::size_t>(number)];
    switch (node.kind) {
      case ATTEST_MASK_FULL:
        return full_mask(shape_);
      case ATTEST_MASK_BAND:
        return band(node);
      case ATTEST_MASK_ALL_OF: {
        const MaskPtr first = of(node.first, anded), second = of(node.second, anded);
        return !first ? second : !second ? first : logical_and(first, second);
      }
      case ATTEST_MASK_ANY_OF:
        return logical_or(of(node.first, false), of(node.second, false));
      case ATTEST_MASK_SEGMENTS:
        if (anded && !segment_ids) {
          segment_ids = ids(node);
          return nullptr;
        }
        return written_out(node);
      default:
        return written_out(node);
    }
  }

  std::int64_t shift(const attest_mask& node) const {
    return node.offset + (node.anchored_bottom_right ? shape_.kv_seq_len - shape_.q_seq_len : 0);
  }
  MaskPtr band(const attest_mask& node) const {
    if (node.left == ATTEST_UNBOUNDED && node.right == 0) return causal_mask(shape_, shift(node));
    const auto side = [](std::int64_t keys) {
      return keys == ATTEST_UNBOUNDED ? std::nullopt : std::optional(keys);
    };
    return local_mask(shape_, {side(node.left), side(node.right)}, shift(node));
  }

  // A negative number belongs to nothing: no key has that of a query.
  SegmentIds ids(const attest_mask& node) const {
    SegmentIds found;
    const View<std::int32_t> q{Tensor(node.table)}, kv{Tensor(node.table2)};
    for (std::int64_t i = 0; i < shape_.q_seq_len; ++i) {
      found.q.push_back(std::max(q(batch_, 0, i, 0), -1));
    }
    for (std::int64_t j = 0; j < shape_.kv_seq_len; ++j) {
      const std::int32_t own = kv(batch_, 0, j, 0);
      found.kv.push_back(own < 0 ? -2 : own);
    }
    return found;
  }

  MaskPtr written_out(const attest_mask& node) const {
    BoolArray array{.shape = shape_, .data = {}};
    array.data.reserve(static_cast<std::size_t>(shape_.q_seq_len * shape_.kv_seq_len));
    const Tensor table(node.table), table2(node.table2);
    const View<std::uint8_t> bytes(table);
    const View<std::int32_t> of_q(table), of_kv(table2);
    const std::int64_t prefix =
        node.kind == ATTEST_MASK_PREFIX ? View<std::int64_t>(table)(batch_, 0, 0, 0) : 0;
    const auto allows = [&](std::int64_t i, std::int64_t j) {
      switch (node.kind) {
        case ATTEST_MASK_DENSE:
          return bytes(batch_, head_, i, j) != 0;
        case ATTEST_MASK_PREFIX:
          return j < prefix;
        case ATTEST_MASK_SEGMENTS:
          return of_q(batch_, 0, i, 0) >= 0 && of_q(batch_, 0, i, 0) == of_kv(batch_, 0, j, 0);
        case ATTEST_MASK_BLOCK_SPARSE:
          return bytes(batch_, head_, i / node.block_query, j / node.block_key) != 0;
        case ATTEST_MASK_DILATED:
          return (j - i - shift(node)) % node.dilation == 0;
        default:
          throw std::logic_error("no kind of mask has the number " + std::to_string(node.kind));
      }
    };
    for (std::int64_t i = 0; i < shape_.q_seq_len; ++i) {
      for (std::int64_t j = 0; j < shape_.kv_seq_len; ++j) array.data.push_back(allows(i, j));
    }
    return numpy_mask(std::move(array));
  }

  const attest::Problem& problem_;
  std::int64_t batch_, head_;
  Shape shape_;
};

bool any_table(const attest::Problem& problem, int axis) {
  return std::any_of(problem.mask_nodes().begin(), problem.mask_nodes().end(),
                     [&](const attest_mask& node) {
                       return (node.table.data && node.table.shape[axis] > 1) ||
                              (node.table2.data && node.table2.shape[axis] > 1);
                     });
}

}  // namespace

bool differs_by_batch(const attest::Problem& problem) { return any_table(problem, 0); }

TranslatedMask translate(const attest::Problem& problem, std::int64_t batch) {
  TranslatedMask translated;
  const bool differs_by_head = any_table(problem, 1);
  for (std::int64_t head = 0; head < problem.query_heads; ++head) {
    if (head > 0 && !differs_by_head) {
      translated.of_heads.push_back(translated.of_heads[0]);
      continue;
    }
    Translation translation(problem, batch, head);
    translated.of_heads.push_back(translation.mask());
    translated.segment_ids = std::move(translation.segment_ids);
  }
  return translated;
}

}  // namespace attest::vendor::splash
