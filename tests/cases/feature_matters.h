// Whether what a case has is seen in its numbers: what the problem would give without a feature, or
// with one plane of a table for all, lies outside of the bounds of what it gives with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "cases/device_check.h"
#include "cases/generate.h"
#include "cases/keep.h"
#include "reference/working.h"

namespace attest::matters {

struct Feature {
  const char* name;
  bool (*remove)(Problem&);           // false if there is none
  bool (*change)(Inputs&) = nullptr;  // where it isn't the problem that changes; likewise
};

// Values of `shape` as if those that come first along an axis held for all.
template <std::size_t kAxis, class Value>
bool repeat_first(const Shape& shape, std::vector<Value>& values) {
  const std::vector<Value> was = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto at = coordinates(shape, static_cast<Index>(i));
    at[kAxis] = 0;
    values[i] = was[static_cast<std::size_t>(dense_index(shape, at[0], at[1], at[2], at[3]))];
  }
  return values != was;
}

template <std::size_t kAxis>
bool repeat_first(Mask& mask) {
  bool changed = false;
  if (mask.table) {
    DenseMask table = *mask.table;
    changed |= repeat_first<kAxis>(table.shape, table.allowed);
    mask.table = std::make_shared<const DenseMask>(std::move(table));
  }
  if (kAxis == 0 && mask.segments) {
    Segments segments = *mask.segments;
    for (SegmentNumbers* numbers : {&segments.query, &segments.key}) {
      changed |= repeat_first<0>({numbers->batches, 1, numbers->length, 1}, numbers->number);
    }
    mask.segments = std::make_shared<const Segments>(std::move(segments));
  }
  if (kAxis == 0 && !mask.prefix_lens.empty()) {
    changed |=
        repeat_first<0>({static_cast<Index>(mask.prefix_lens.size()), 1, 1, 1}, mask.prefix_lens);
  }
  for (Mask& part : mask.parts) changed |= repeat_first<kAxis>(part);
  return changed;
}

template <std::size_t kAxis>
constexpr Feature axis_of_masks(const char* name) {
  return {name, [](Problem& p) { return repeat_first<kAxis>(p.mask); }};
}
template <std::size_t kAxis>
constexpr Feature axis_of_bias(const char* name) {
  return {name, [](Problem& p) { return p.bias_shape && (*p.bias_shape)[kAxis] > 1; },
          [](Inputs& inputs) { return repeat_first<kAxis>(inputs.bias.shape, inputs.bias.data); }};
}

inline const std::vector<Feature>& features() {
  static const std::vector<Feature> kFeatures = {
      {"softcap", [](Problem& p) { return std::exchange(p.softcap, 0) != 0; }},
      {"bias", [](Problem& p) { return std::exchange(p.bias_shape, std::nullopt).has_value(); }},
      {"alibi", [](Problem& p) { return std::exchange(p.slopes_shape, std::nullopt).has_value(); }},
      {"sink", [](Problem& p) { return std::exchange(p.sink, false); }},
      {"dlse", [](Problem& p) { return std::exchange(p.d_lse, false); }},
      {"dropout",
       [](Problem& p) {
         const Dropout was = std::exchange(p.dropout, {});
         return was.mode != Dropout::Mode::none && was.probability > 0;
       }},
      {"pages",
       [](Problem& p) {  // the next page instead of the one that is meant
         for (auto& row : p.paging.table) {
           for (Index& page : row) page = page < 0 ? page : (page + 1) % p.paging.pages;
         }
         return p.paging.pages > 1;
       }},
      {"part of a mask",
       [](Problem& p) {
         if (p.mask.parts.size() < 2) return false;
         p.mask = Mask(p.mask.parts.front());
         return true;
       }},
      {"mask",
       [](Problem& p) {
         using enum Mask::Kind;
         const Mask::Kind was = std::exchange(p.mask, Mask::full()).kind;
         return was != full && was != band && was != dense && was != all_of && was != any_of;
       }},
      axis_of_masks<0>("batch axis of a mask"),
      axis_of_masks<1>("head axis of a mask"),
      axis_of_masks<2>("query axis of a mask"),
      axis_of_masks<3>("key axis of a mask"),
      axis_of_bias<0>("batch axis of a bias"),
      axis_of_bias<1>("head axis of a bias"),
      axis_of_bias<2>("query axis of a bias"),
      axis_of_bias<3>("key axis of a bias"),
      {"batch axis of slopes",
       [](Problem& p) { return p.slopes_shape && p.slopes_shape->front() > 1; },
       [](Inputs& inputs) { return repeat_first<0>(inputs.slopes.shape, inputs.slopes.data); }},
  };
  return kFeatures;
}

inline bool differs(const Expected& with, const Expected& without) {
  if (with.value.size() != without.value.size()) return false;  // the feature's own gradient
  for (std::size_t i = 0; i < with.value.size(); ++i) {
    const double a = with.value[i], b = without.value[i];
    if (std::isnan(a) || a == b) continue;
    if (!(std::abs(a - b) <= with.bound[i])) return true;
  }
  return false;
}

struct All {
  ForwardExpected forward;
  BackwardExpected backward;
};
inline All expect(const Problem& p, const Inputs& inputs) {
  All all{.forward = expect_forward(p, inputs, loosest(p.dtype)), .backward = {}};
  if (p.backward) all.backward = expect_backward(p, inputs, loosest(p.dtype));
  return all;
}

// In what the last pass returns: what goes wrong in the forward pass need not be wrong in the
// backward pass too. But a bias without an axis of keys is a row constant, which moves LSE alone.
inline bool differs(const Problem& p, const All& with, const All& without) {
  const bool row_constant = p.bias_shape && (*p.bias_shape)[3] == 1;
  if ((!p.backward || row_constant) && differs(with.forward.lse, without.forward.lse)) return true;
  if (!p.backward) return differs(with.forward.o, without.forward.o);
  const BackwardExpected &a = with.backward, &b = without.backward;
  return differs(a.dq, b.dq) || differs(a.dk, b.dk) || differs(a.dv, b.dv) ||
         differs(a.dbias, b.dbias) || differs(a.dsink, b.dsink);
}

// Whether numbers of it can tell: not of cases that are about other things, or empty.
inline bool tells(const Case& c) {
  const Problem& p = c.problem;
  const bool empty =
      std::min({p.batch, p.query_heads, p.query_len, p.key_len, p.head_dim, p.value_dim}) == 0;
  // Cases about schedules and memory are large, and look at other things than numbers.
  const bool numbers =
      c.check != Check::schedule && c.check != Check::memory && !find_device_check(c.check);
  return c.hidden == Hidden::plain && !empty && numbers;
}

// Each feature that it has, but for those that `skips`, and whether it is seen.
inline std::map<std::string, bool> shown_in(
    const Case& c, const std::function<bool(const std::string& feature)>& skips) {
  const Problem& p = c.problem;
  std::map<std::string, bool> shown;
  std::optional<Inputs> inputs;
  std::optional<All> with;
  for (const Feature& feature : features()) {
    Problem without = p;
    if (!feature.remove(without) || skips(feature.name)) continue;
    if (!inputs) {
      inputs = generate(c);
      if (p.dropout.mode == Dropout::Mode::generated) inputs->keep = make_keep(p);
      with = expect(p, *inputs);
    }
    if (!feature.change) {
      shown[feature.name] = differs(p, *with, expect(without, *inputs));
    } else if (Inputs changed = *inputs; feature.change(changed)) {
      shown[feature.name] = differs(p, *with, expect(without, changed));
    }
  }
  return shown;
}

}  // namespace attest::matters
