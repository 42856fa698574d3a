#include "spec/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "spec/assert.h"

namespace attest {
namespace {

template <class AnyLayouts>
auto& layout_of(AnyLayouts& layouts, TensorName tensor) {
  switch (tensor) {
    case TensorName::q:
      return layouts.q;
    case TensorName::k:
      return layouts.k;
    case TensorName::v:
      return layouts.v;
    case TensorName::o:
      return layouts.o;
    case TensorName::d_o:
      return layouts.d_o;
    case TensorName::dq:
      return layouts.dq;
    case TensorName::dk:
      return layouts.dk;
    case TensorName::dv:
      return layouts.dv;
    default:
      ATTEST_ASSERT(tensor == TensorName::bias);
      return layouts.bias;
  }
}

constexpr Index kFarthest = Index(1) << 40;  // an offset

bool broadcasts(const Shape& shape, const Shape& whole, std::size_t axes) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] != whole[axis] && (shape[axis] != 1 || axis >= axes)) return false;
  }
  return true;
}

bool is_too_large(const Shape& shape) {
  constexpr Index kMost = Index(1) << 32;  // elements: 32 GiB as the reference has them
  double elements = 1;
  // A tensor without channels is empty, but there is a row of LSE or a mark of each of its rows.
  for (const Index size : shape) elements *= static_cast<double>(std::max<Index>(size, 1));
  return elements > static_cast<double>(kMost);
}

// The table of a dense or block-sparse mask, whose first `axes` axes broadcast.
std::optional<Defect> defect_of(const DenseMask* table, const Shape& whole, std::size_t axes,
                                const char* clause) {
  if (!table) return Defect{clause, "a mask has no table"};
  if (!broadcasts(table->shape, whole, axes)) {
    return Defect{clause, fmt::format("a mask's table of shape [{}] does not broadcast to [{}]",
                                      fmt::join(table->shape, ","), fmt::join(whole, ","))};
  }
  const Index count = element_count(table->shape);
  if (static_cast<Index>(table->allowed.size()) != count) {
    return Defect{clause, fmt::format("a mask's table has {} values for a shape of {}",
                                      table->allowed.size(), count)};
  }
  return std::nullopt;
}

std::optional<Defect> defect_of(const SegmentNumbers& numbers, const Problem& problem, Index length,
                                const char* what) {
  if ((numbers.batches != 1 && numbers.batches != problem.batch) || numbers.length != length ||
      static_cast<Index>(numbers.number.size()) != numbers.batches * length) {
    return Defect{"MASK-11",
                  fmt::format("{} segment numbers of [{},{}] for {} positions of {} "
                              "batch elements",
                              what, numbers.batches, numbers.length, length, problem.batch)};
  }
  return std::nullopt;
}

// `depth` is how many intersections and unions hold the mask.
std::optional<Defect> defect_of(const Mask& mask, const Problem& problem, int depth) {
  const bool far = mask.offset > kFarthest || mask.offset < -kFarthest;
  switch (mask.kind) {
    case Mask::Kind::full:
      return std::nullopt;
    case Mask::Kind::band:
      // An offset near the ends of Index would overflow the sum that defines the band.
      if (mask.left < 0 || mask.right < 0 || far) {
        return Defect{"MASK-4", "a band's width must not be negative, nor its offset beyond 2^40"};
      }
      return std::nullopt;
    case Mask::Kind::dilated:
      if (mask.dilation < 1 || far) {
        return Defect{"MASK-13", "a dilation is at least 1, its offset not beyond 2^40"};
      }
      return std::nullopt;
    case Mask::Kind::dense:
      return defect_of(mask.table.get(), problem.keep_shape(), 4, "MASK-7");
    case Mask::Kind::block_sparse: {
      if (mask.block_query < 1 || mask.block_key < 1) {
        return Defect{"MASK-12", "the blocks of a block-sparse mask have a size of at least 1"};
      }
      const Shape whole = {problem.batch, problem.query_heads,
                           ceil_div(problem.query_len, mask.block_query),
                           ceil_div(problem.key_len, mask.block_key)};
      return defect_of(mask.table.get(), whole, 2, "MASK-12");
    }
    case Mask::Kind::prefix: {
      const auto count = static_cast<Index>(mask.prefix_lens.size());
      if (count != 1 && count != problem.batch) {
        return Defect{"MASK-10",
                      fmt::format("{} prefix lengths for a batch of {}", count, problem.batch)};
      }
      for (const Index len : mask.prefix_lens) {
        if (len < 0 || len > problem.key_len) {
          return Defect{"MASK-10",
                        fmt::format("prefix length {} is not within 0..{}", len, problem.key_len)};
        }
      }
      return std::nullopt;
    }
    case Mask::Kind::segments: {
      if (!mask.segments) return Defect{"MASK-11", "a mask of segments has no numbers"};
      const Segments& segments = *mask.segments;
      if (auto defect = defect_of(segments.query, problem, problem.query_len, "query")) {
        return defect;
      }
      return defect_of(segments.key, problem, problem.key_len, "key");
    }
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      if (depth == kDeepestMask) {
        return Defect{"MASK-9", fmt::format("masks nest deeper than {}, the most that may lie "
                                            "within each other",
                                            kDeepestMask)};
      }
      for (const Mask& part : mask.parts) {
        if (auto defect = defect_of(part, problem, depth + 1)) return defect;
      }
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Defect> defect_of(const std::vector<Index>& lens, Index batch, Index whole,
                                const char* clause, const char* what) {
  if (lens.empty()) return std::nullopt;
  if (static_cast<Index>(lens.size()) != batch) {
    return Defect{clause, fmt::format("{} {} lengths for a batch of {}", lens.size(), what, batch)};
  }
  for (const Index len : lens) {
    if (len < 0 || len > whole) {
      return Defect{clause, fmt::format("{} length {} is not within 0..{}", what, len, whole)};
    }
  }
  return std::nullopt;
}

std::optional<Defect> defect_of_packing(const Problem& p) {
  if (!p.packed) return std::nullopt;
  const auto longest = [](const std::vector<Index>& lens) {
    return lens.empty() ? Index(0) : *std::max_element(lens.begin(), lens.end());
  };
  const auto count = static_cast<std::size_t>(p.batch);
  if (p.query_lens.size() != count || p.key_lens.size() != count) {
    return Defect{"LAYOUT-5", "a packed problem gives both lengths of every batch element"};
  }
  if (longest(p.query_lens) != p.query_len ||
      (p.paging.page_size == 0 && longest(p.key_lens) != p.key_len)) {
    return Defect{"LAYOUT-5",
                  fmt::format("the longest of packed sequences have {} queries and {} "
                              "keys, not {} and {}",
                              longest(p.query_lens), longest(p.key_lens), p.query_len, p.key_len)};
  }
  return std::nullopt;
}

std::optional<Defect> defect_of_paging(const Problem& p) {
  const Paging& paging = p.paging;
  if (paging.page_size == 0) return std::nullopt;
  const auto wrong = [](std::string what) { return Defect{"PAGE-1", std::move(what)}; };
  if (paging.page_size < 0 || paging.pages < 0) return wrong("a page size is negative");
  if (p.backward) return wrong("paged keys have no backward pass");
  const auto count = static_cast<std::size_t>(p.batch);
  if (p.key_lens.size() != count || paging.table.size() != count) {
    return wrong(
        "paged keys need a key length and a row of the page table for every batch element");
  }
  for (std::size_t b = 0; b < count; ++b) {
    const auto& row = paging.table[b];
    const Index used = ceil_div(p.key_lens[b], paging.page_size);
    if (static_cast<Index>(row.size()) < used) {
      return wrong(
          fmt::format("batch element {} has {} pages for {} keys", b, row.size(), p.key_lens[b]));
    }
    for (std::size_t n = 0; n < row.size(); ++n) {
      const bool beyond = static_cast<Index>(n) >= used;
      if (beyond ? row[n] >= 0 : row[n] < 0 || row[n] >= paging.pages) {
        return wrong(fmt::format("entry {} of batch element {} is page {} of {}", n, b, row[n],
                                 paging.pages));
      }
    }
  }
  return std::nullopt;
}

std::optional<Defect> defect_of_scores(const Problem& p) {
  if (!std::isfinite(round_to(p.lse_dtype(), p.scale))) {
    return Defect{"SCORE-1", "the scale must be finite in the format of the softmax"};
  }
  if (!std::isfinite(round_to(p.lse_dtype(), p.softcap)) || p.softcap < 0) {
    return Defect{"SCORE-2",
                  "a softcap is finite in the format of the softmax and positive; 0 means none"};
  }
  if (p.bias_shape && !broadcasts(*p.bias_shape, p.keep_shape(), 4)) {
    return Defect{"SCORE-3",
                  fmt::format("a bias of shape [{}] does not broadcast to [{}]",
                              fmt::join(*p.bias_shape, ","), fmt::join(p.keep_shape(), ","))};
  }
  if (p.bias_shape && is_too_large(*p.bias_shape)) {
    return Defect{"SCORE-3", fmt::format("a bias of [{}] is too large to be judged",
                                         fmt::join(*p.bias_shape, ","))};
  }
  if (p.slopes_shape && !broadcasts(*p.slopes_shape, {p.batch, p.query_heads, 1, 1}, 1)) {
    return Defect{"SCORE-4", fmt::format("slopes of shape [{}] for {} heads of {} batch elements",
                                         fmt::join(*p.slopes_shape, ","), p.query_heads, p.batch)};
  }
  if (!(p.dropout.probability >= 0 && p.dropout.probability < 1)) {
    return Defect{"DROP-1", "the probability of dropout is at least 0 and less than 1"};
  }
  if (p.dropout.mode != Dropout::Mode::none) {  // the generator counts in words of 32 bits
    for (const Index size : p.keep_shape()) {
      if (size >> 32 != 0) return Defect{"DROP-1", fmt::format("a size of 2^32 or more: {}", size)};
    }
  }
  if (p.dropout.mode != Dropout::Mode::none && is_too_large(p.keep_shape())) {
    return Defect{"DROP-1", fmt::format("a keep-mask of [{}] is too large to be judged",
                                        fmt::join(p.keep_shape(), ","))};
  }
  if (p.d_lse && !p.backward) return Defect{"GRAD-5", "dLSE is given to a backward pass only"};
  return std::nullopt;
}

std::optional<Defect> defect_of_stored(const Problem& p) {
  const StoredInputs& stored = p.stored;
  if (!stored.any()) return std::nullopt;
  const auto wrong = [](const char* what) { return Defect{"FORMAT-5", what}; };
  if (p.backward) return wrong("what is stored in fewer bits has no backward pass");
  if (p.dtype == DType::f64) return wrong("what is stored in fewer bits is not computed in f64");
  const bool known = stored.q ? stored.k.has_value() : stored.k && stored.v;
  if (!known) return wrong("stored in fewer bits are Q and K, K and V, or all three");
  for (const std::optional<Stored>* each : {&stored.q, &stored.v}) {
    if (*each && (*each)->by_channels != stored.k->by_channels) {
      return Defect{"FORMAT-6",
                    "blocks of channels have scales in each tensor that is stored in fewer bits, "
                    "or in none"};
    }
  }
  return std::nullopt;
}

}  // namespace

Index Paging::entries() const {
  std::size_t most = 0;
  for (const auto& row : table) most = std::max(most, row.size());
  return static_cast<Index>(most);
}

std::optional<Defect> defect_of(const Problem& p) {
  for (const Index size :
       {p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim, p.value_dim}) {
    if (size < 0) return Defect{"SHAPE-1", fmt::format("a size is negative: {}", size)};
  }
  if (auto defect = defect_of(p.key_lens, p.batch, p.key_len, "MASK-5", "key")) return defect;
  if (auto defect = defect_of(p.query_lens, p.batch, p.query_len, "MASK-6", "query")) return defect;
  if (auto defect = defect_of_packing(p)) return defect;
  if (auto defect = defect_of_paging(p)) return defect;
  for (const Shape& shape : {p.q_shape(), p.k_shape(), p.v_shape(), p.o_shape()}) {
    if (is_too_large(shape)) {
      return Defect{"SHAPE-1", fmt::format("a tensor of [{}] is too large to be judged",
                                           fmt::join(shape, ","))};
    }
  }
  if (p.query_heads > 0 && (p.key_heads == 0 || p.query_heads % p.key_heads != 0)) {
    return Defect{"HEAD-1", fmt::format("{} key heads do not divide {} query heads", p.key_heads,
                                        p.query_heads)};
  }
  if (auto defect = defect_of_scores(p)) return defect;
  if (auto defect = defect_of_stored(p)) return defect;
  for (const Layout* layout : {&p.layouts.o, &p.layouts.dq, &p.layouts.dk, &p.layouts.dv}) {
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      if (layout->expands(axis)) return Defect{"LAYOUT-1", "an output cannot be expanded"};
    }
  }
  return defect_of(p.mask, p, 0);
}

namespace {

// "3,1x4100,7": of lengths that are many, those that are equal are counted.
std::string listed(const SequenceLengths& lengths) {
  constexpr std::size_t kFew = 16;
  if (lengths.size() <= kFew) return fmt::format("{}", fmt::join(lengths, ","));
  std::vector<std::string> runs;
  for (auto first = lengths.begin(); first != lengths.end();) {
    const auto last = std::find_if(first, lengths.end(), [&](Index n) { return n != *first; });
    runs.push_back(last - first == 1 ? fmt::format("{}", *first)
                                     : fmt::format("{}x{}", *first, last - first));
    first = last;
  }
  return fmt::format("{}", fmt::join(runs, ","));
}

}  // namespace

std::vector<TensorName> laid_out(const Problem& problem) {
  std::vector<TensorName> found;
  for (const TensorName tensor : kLaidOut) {
    const bool of_backward = tensor == TensorName::d_o || is_gradient(tensor);
    if (of_backward && !problem.backward) continue;
    if (tensor == TensorName::bias && !has_bias(problem)) continue;
    found.push_back(tensor);
  }
  return found;
}

Layout& Layouts::operator[](TensorName tensor) { return layout_of(*this, tensor); }
const Layout& Layouts::operator[](TensorName tensor) const { return layout_of(*this, tensor); }

namespace {

// "e4m3*bh": the axes of its scales behind the format; c, of channels, tells all.
std::string to_string(const Stored& stored) {
  if (stored.by_channels) return fmt::format("{}*c", name(stored.dtype));
  return fmt::format("{}*{}{}{}", name(stored.dtype), stored.by_batch ? "b" : "",
                     stored.by_head ? "h" : "", stored.by_position ? "s" : "");
}

}  // namespace

std::string to_string(const Problem& p) {
  std::string text = fmt::format("{} b{} h{}/{} q{} k{} d{}", name(p.dtype), p.batch, p.query_heads,
                                 p.key_heads, p.query_len, p.key_len, p.head_dim);
  if (p.value_dim != p.head_dim) text += fmt::format("/{}", p.value_dim);
  text += fmt::format(" scale={}", p.scale);
  if (p.softcap != 0) text += fmt::format(" softcap={}", p.softcap);
  text += fmt::format(" {}", to_string(p.mask));
  if (!p.key_lens.empty()) text += fmt::format(" key_lens=[{}]", listed(p.key_lens));
  if (!p.query_lens.empty()) text += fmt::format(" query_lens=[{}]", listed(p.query_lens));
  if (p.packed) text += " packed";
  if (p.paging.page_size > 0)
    text += fmt::format(" pages={}x{}", p.paging.pages, p.paging.page_size);
  for (const auto& [tensor, stored] :
       {std::pair{'q', p.stored.q}, std::pair{'k', p.stored.k}, std::pair{'v', p.stored.v}}) {
    if (stored) text += fmt::format(" {}={}", tensor, to_string(*stored));
  }
  if (p.bias_shape) text += fmt::format(" bias=[{}]", fmt::join(*p.bias_shape, ","));
  if (p.slopes_shape) text += " alibi";
  if (p.sink) text += " sink";
  if (p.dropout.mode != Dropout::Mode::none) {
    text += fmt::format(" dropout={}{}", p.dropout.probability,
                        p.dropout.mode == Dropout::Mode::generated ? " generated" : "");
  }
  if (p.backward) text += p.d_lse ? " backward dlse" : " backward";
  return text;
}

}  // namespace attest
