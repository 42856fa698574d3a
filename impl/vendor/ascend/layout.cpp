#include "impl/vendor/ascend/layout.h"

#include <stdexcept>

namespace attest::vendor::ascend {

namespace {

void check_axes(const std::string& layout, const std::vector<int64_t>& shape, std::size_t axes) {
  if (shape.size() == axes) return;
  throw std::invalid_argument("a tensor of layout " + layout + " has " + std::to_string(axes) +
                              " axes, not " + std::to_string(shape.size()));
}

Sizes sizes_without_h(const std::string& layout, const std::vector<int64_t>& shape) {
  check_axes(layout, shape, layout == "TND" ? 3 : 4);
  if (layout == "TND") return {1, shape[1], shape[0], shape[2]};
  if (layout == "BNSD") return {shape[0], shape[1], shape[2], shape[3]};
  if (layout == "BSND") return {shape[0], shape[2], shape[1], shape[3]};
  throw std::invalid_argument("there is no layout " + layout);
}

bool has_h(const std::string& layout) { return layout == "BSH" || layout == "SBH"; }

}  // namespace

Sizes sizes_of_query(const std::string& layout, const std::vector<int64_t>& shape,
                     int64_t head_num) {
  if (!has_h(layout)) {
    const Sizes sizes = sizes_without_h(layout, shape);
    if (sizes.n != head_num) throw std::invalid_argument("head_num is not the query's N");
    return sizes;
  }
  check_axes(layout, shape, 3);
  if (head_num < 1 || shape[2] % head_num != 0)
    throw std::invalid_argument("H is no multiple of head_num");
  const bool batch_first = layout == "BSH";
  return {shape[batch_first ? 0 : 1], head_num, shape[batch_first ? 1 : 0], shape[2] / head_num};
}

Sizes sizes_of_key(const std::string& layout, const std::vector<int64_t>& shape, int64_t d) {
  if (!has_h(layout)) return sizes_without_h(layout, shape);
  check_axes(layout, shape, 3);
  if (d < 1 || shape[2] % d != 0) throw std::invalid_argument("H of the key is no multiple of D");
  const bool batch_first = layout == "BSH";
  return {shape[batch_first ? 0 : 1], shape[2] / d, shape[batch_first ? 1 : 0], d};
}

Steps steps_of(const std::string& layout, const Sizes& sizes) {
  const int64_t h = sizes.n * sizes.d;
  if (layout == "BNSD") return {sizes.n * sizes.s * sizes.d, sizes.s * sizes.d, sizes.d};
  if (layout == "SBH") return {h, sizes.d, sizes.b * h};
  if (layout == "TND") return {0, sizes.d, h};
  return {sizes.s * h, sizes.d, h};  // BSH, BSND
}

Steps steps_of_statistics(const std::string& layout, const Sizes& query) {
  if (layout == "TND") return {0, kStatistics, query.n * kStatistics};
  return {query.n * query.s * kStatistics, query.s * kStatistics, kStatistics};
}

}  // namespace attest::vendor::ascend
