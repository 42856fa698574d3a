#include "tests/legitimate/decode.h"

#include <algorithm>

namespace attest::legitimate {
namespace {

bool is_given(const attest_tensor& t) { return t.data != nullptr || t.dtype != 0; }

Shape shape_of(const attest_tensor& t) { return {t.shape[0], t.shape[1], t.shape[2], t.shape[3]}; }

// Visits where each element lies, counted in elements from the first, in dense order. The stride of
// an axis of size 1 means nothing.
template <class Visit>
void for_each_element(const attest_tensor& t, const Visit& visit) {
  Index stride[4];
  for (int axis = 0; axis < 4; ++axis) stride[axis] = t.shape[axis] == 1 ? 0 : t.stride[axis];
  for (Index b = 0; b < t.shape[0]; ++b) {
    for (Index h = 0; h < t.shape[1]; ++h) {
      for (Index s = 0; s < t.shape[2]; ++s) {
        const Index row = b * stride[0] + h * stride[1] + s * stride[2];
        for (Index d = 0; d < t.shape[3]; ++d) visit(row + d * stride[3]);
      }
    }
  }
}

template <class T>
std::vector<T> elements(const attest_tensor& t) {
  std::vector<T> result;
  for_each_element(t, [&](Index at) { result.push_back(static_cast<const T*>(t.data)[at]); });
  return result;
}

Keep keep_of(const attest_tensor& t) {
  Keep keep = {.shape = shape_of(t)};
  const auto* bytes = static_cast<const std::uint8_t*>(t.data);
  for_each_element(t, [&](Index at) {
    keep.kept.push_back(static_cast<std::uint8_t>(bytes[at / 8] >> (at % 8) & 1));
  });
  return keep;
}

// From running sums to their differences.
std::vector<Index> differences(const attest_tensor& sums) {
  const auto ends = elements<Index>(sums);
  std::vector<Index> result;
  for (std::size_t i = 1; i < ends.size(); ++i) result.push_back(ends[i] - ends[i - 1]);
  return result;
}

// ---- Masks -------------------------------------------------------------------------------------

DenseMask table_of(const attest_tensor& t) { return {shape_of(t), elements<std::uint8_t>(t)}; }

SegmentNumbers numbers_of(const attest_tensor& t) {
  return {.batches = t.shape[0], .length = t.shape[2], .number = elements<std::int32_t>(t)};
}

Mask mask_of(const attest_problem& p, std::int64_t index) {
  const attest_mask& node = p.mask[index];
  const Anchor anchor = node.anchored_bottom_right ? Anchor::bottom_right : Anchor::top_left;
  const auto combined = [&](Mask::Kind kind) {
    Mask result = {.kind = kind};
    // A chain of pairs becomes one list again.
    const Mask first = mask_of(p, node.first);
    result.parts = first.kind == kind ? first.parts : std::vector<Mask>{first};
    result.parts.push_back(mask_of(p, node.second));
    return result;
  };
  switch (node.kind) {
    case ATTEST_MASK_BAND:
      return Mask::window(node.left, node.right, anchor, node.offset);
    case ATTEST_MASK_DENSE:
      return Mask::dense(table_of(node.table));
    case ATTEST_MASK_PREFIX:
      return Mask::prefix(elements<Index>(node.table));
    case ATTEST_MASK_SEGMENTS:
      return Mask::documents({.query = numbers_of(node.table), .key = numbers_of(node.table2)});
    case ATTEST_MASK_BLOCK_SPARSE:
      return Mask::block_sparse(node.block_query, node.block_key, table_of(node.table));
    case ATTEST_MASK_DILATED:
      return Mask::dilated(node.dilation, anchor, node.offset);
    case ATTEST_MASK_ALL_OF:
      return combined(Mask::Kind::all_of);
    case ATTEST_MASK_ANY_OF:
      return combined(Mask::Kind::any_of);
    default:
      return Mask::full();
  }
}

Dropout dropout_of(const attest_problem& p) {
  using enum Dropout::Mode;
  return {.mode = p.dropout == ATTEST_DROPOUT_NONE    ? none
                  : p.dropout == ATTEST_DROPOUT_GIVEN ? given
                                                      : generated,
          .probability = p.dropout_probability,
          .seed = p.dropout_seed,
          .offset = p.dropout_offset};
}

// Of each row of the table, what its keys need; the rest is -1.
Paging paging_of(const attest_problem& given, const std::vector<Index>& key_lens) {
  Paging paging = {.page_size = given.page_size};
  const auto entries = elements<std::int32_t>(given.page_table);
  for (std::size_t b = 0; b < key_lens.size(); ++b) {
    const Index needed = (key_lens[b] + given.page_size - 1) / given.page_size;
    const auto row = entries.begin() + static_cast<Index>(b) * given.page_table.shape[1];
    paging.table.emplace_back(row, row + needed);
    for (const Index page : paging.table.back()) paging.pages = std::max(paging.pages, page + 1);
  }
  return paging;
}

std::optional<Stored> stored_of(const attest_tensor& tensor, const attest_tensor& scales) {
  if (!is_given(scales)) return std::nullopt;
  const auto has = [&](Axis axis) { return scales.shape[axis] > 1; };
  return Stored{.dtype = static_cast<DType>(tensor.dtype),
                .by_batch = has(kBatch),
                .by_head = has(kHead),
                .by_position = has(kPosition),
                .by_channels = has(kChannel)};
}

}  // namespace

Problem problem_of(const attest_problem& given) {
  Problem p = {.dtype = static_cast<DType>(given.dtype),
               .batch = given.batch,
               .query_heads = given.query_heads,
               .key_heads = given.key_heads,
               .query_len = given.query_len,
               .key_len = given.key_len,
               .head_dim = given.head_dim,
               .value_dim = given.value_dim,
               .scale = given.scale,
               .softcap = given.softcap,
               .sink = given.has_sink != 0,
               .dropout = dropout_of(given)};
  if (given.mask_count > 0) p.mask = mask_of(given, given.mask_count - 1);
  if (is_given(given.cu_query_lens)) {
    p.packed = true;
    p.query_lens = differences(given.cu_query_lens);
  } else if (is_given(given.query_lens)) {
    p.query_lens = elements<Index>(given.query_lens);
  }
  if (is_given(given.cu_key_lens)) {
    p.key_lens = differences(given.cu_key_lens);
  } else if (is_given(given.key_lens)) {
    p.key_lens = elements<Index>(given.key_lens);
  }
  if (given.page_size > 0) p.paging = paging_of(given, p.key_lens);
  return p;
}

Problem problem_of(const attest_problem& given, const attest_inputs& inputs, bool backward) {
  Problem p = problem_of(given);
  if (given.has_bias) p.bias_shape = shape_of(inputs.bias);
  if (given.has_alibi) p.slopes_shape = shape_of(inputs.alibi_slopes);
  if (given.page_size > 0) p.paging.pages = inputs.k.shape[kBatch];
  p.backward = backward;
  p.d_lse = backward && given.has_dlse != 0;
  p.stored = {.q = stored_of(inputs.q, inputs.q_scale),
              .k = stored_of(inputs.k, inputs.k_scale),
              .v = stored_of(inputs.v, inputs.v_scale)};
  return p;
}

Values values_of(const attest_tensor& t, DType dtype) {
  Values result = {.shape = shape_of(t)};
  result.data.reserve(static_cast<std::size_t>(element_count(result.shape)));
  const auto* bytes = static_cast<const char*>(t.data);
  const Index size = format_of(dtype).bytes;
  for_each_element(t, [&](Index at) { result.data.push_back(load(dtype, bytes + at * size)); });
  return result;
}

Inputs inputs_of(const Problem& p, const attest_inputs& given) {
  const auto read = [&](const attest_tensor& t, const attest_tensor& scales,
                        const std::optional<Stored>& stored) {
    if (!stored) return values_of(t, p.dtype);
    return scaled(values_of(t, stored->dtype), values_of(scales, DType::f32));
  };
  Inputs inputs = {.q = read(given.q, given.q_scale, p.stored.q),
                   .k = read(given.k, given.k_scale, p.stored.k),
                   .v = read(given.v, given.v_scale, p.stored.v)};
  if (p.bias_shape) inputs.bias = values_of(given.bias, p.dtype);
  if (p.slopes_shape) inputs.slopes = values_of(given.alibi_slopes, DType::f32);
  if (p.sink) inputs.sink = values_of(given.sink, DType::f32);
  if (is_given(given.keep)) inputs.keep = keep_of(given.keep);
  if (p.backward) inputs.d_o = values_of(given.d_o, p.dtype);
  if (p.d_lse) inputs.d_lse = values_of(given.d_lse, p.lse_dtype());
  return inputs;
}

void write(const attest_tensor& tensor, DType dtype, const std::vector<double>& values) {
  if (!is_given(tensor)) return;
  auto* bytes = static_cast<char*>(tensor.data);
  const Index size = format_of(dtype).bytes;
  std::size_t n = 0;
  for_each_element(tensor, [&](Index at) { store(dtype, values[n++], bytes + at * size); });
}

void write(const attest_tensor& tensor, const Keep& keep) {
  auto* bytes = static_cast<std::uint8_t*>(tensor.data);
  std::size_t n = 0;
  for_each_element(tensor, [&](Index at) {
    const auto bit = static_cast<std::uint8_t>(1u << at % 8);
    std::uint8_t& byte = bytes[at / 8];
    byte = static_cast<std::uint8_t>(keep.kept[n++] ? byte | bit : byte & ~bit);
  });
}

}  // namespace attest::legitimate
