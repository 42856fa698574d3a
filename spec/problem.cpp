#include "spec/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace attest {
namespace {

constexpr Index kFarthest = Index(1) << 40;  // an offset

std::optional<Defect> defect_of(const Mask& mask, const Problem& problem) {
  switch (mask.kind) {
    case Mask::Kind::full:
      return std::nullopt;
    case Mask::Kind::band:
      // An offset near the ends of Index would overflow the sum that defines the band.
      if (mask.left < 0 || mask.right < 0 || mask.offset > kFarthest || mask.offset < -kFarthest) {
        return Defect{"MASK-4", "a band's width must not be negative, nor its offset beyond 2^40"};
      }
      return std::nullopt;
    case Mask::Kind::dense: {
      if (!mask.table) return Defect{"MASK-7", "a dense mask has no table"};
      const Shape whole = {problem.batch, problem.query_heads, problem.query_len, problem.key_len};
      for (std::size_t axis = 0; axis < 4; ++axis) {
        if (mask.table->shape[axis] != 1 && mask.table->shape[axis] != whole[axis]) {
          return Defect{"MASK-7",
                        fmt::format("a dense mask of shape [{}] does not broadcast to [{}]",
                                    fmt::join(mask.table->shape, ","), fmt::join(whole, ","))};
        }
      }
      const Index count = element_count(mask.table->shape);
      if (static_cast<Index>(mask.table->allowed.size()) != count) {
        return Defect{"MASK-7", fmt::format("a dense mask has {} values for a shape of {}",
                                            mask.table->allowed.size(), count)};
      }
      return std::nullopt;
    }
    case Mask::Kind::all_of:
    case Mask::Kind::any_of:
      for (const Mask& part : mask.parts) {
        if (auto defect = defect_of(part, problem)) return defect;
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

}  // namespace

std::optional<Defect> defect_of(const Problem& p) {
  for (const Index size :
       {p.batch, p.query_heads, p.key_heads, p.query_len, p.key_len, p.head_dim, p.value_dim}) {
    if (size < 0) return Defect{"SHAPE-1", fmt::format("a size is negative: {}", size)};
  }
  constexpr Index kMost = Index(1) << 36;  // elements of a tensor, far beyond what can be judged
  for (const Shape& shape : {p.q_shape(), p.k_shape(), p.v_shape(), p.o_shape()}) {
    double elements = 1;
    for (const Index size : shape) elements *= static_cast<double>(size);
    if (elements > static_cast<double>(kMost)) {
      return Defect{"SHAPE-1", fmt::format("a tensor of [{}] is too large to be judged",
                                           fmt::join(shape, ","))};
    }
  }
  if (p.query_heads > 0 && (p.key_heads == 0 || p.query_heads % p.key_heads != 0)) {
    return Defect{"HEAD-1", fmt::format("{} key heads do not divide {} query heads", p.key_heads,
                                        p.query_heads)};
  }
  if (!std::isfinite(p.scale)) return Defect{"SCORE-1", "the scale must be finite"};
  if (auto defect = defect_of(p.key_lens, p.batch, p.key_len, "MASK-5", "key")) return defect;
  if (auto defect = defect_of(p.query_lens, p.batch, p.query_len, "MASK-6", "query")) return defect;
  for (const Layout* layout : {&p.layouts.o, &p.layouts.dq, &p.layouts.dk, &p.layouts.dv}) {
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      if (layout->expands(axis)) return Defect{"LAYOUT-1", "an output cannot be expanded"};
    }
  }
  return defect_of(p.mask, p);
}

std::string to_string(const Problem& p) {
  std::string text = fmt::format("{} b{} h{}/{} q{} k{} d{}", name(p.dtype), p.batch, p.query_heads,
                                 p.key_heads, p.query_len, p.key_len, p.head_dim);
  if (p.value_dim != p.head_dim) text += fmt::format("/{}", p.value_dim);
  text += fmt::format(" scale={} {}", p.scale, to_string(p.mask));
  if (!p.key_lens.empty()) text += fmt::format(" key_lens=[{}]", fmt::join(p.key_lens, ","));
  if (!p.query_lens.empty()) text += fmt::format(" query_lens=[{}]", fmt::join(p.query_lens, ","));
  if (p.backward) text += " backward";
  return text;
}

}  // namespace attest
