// Which key head a query head reads, and which of them add to its gradients.
#include <algorithm>
#include <functional>
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

// A head for each query head, of those that `of` tells.
Values heads_of(const Values& values, Index query_heads, const std::function<Index(Index)>& of) {
  Shape shape = values.shape;
  shape[kHead] = query_heads;
  Values result = zeros(shape);
  for (Index at = 0; at < element_count(shape); ++at) {
    const auto [b, h, s, d] = coordinates(shape, at);
    result.data[static_cast<std::size_t>(at)] = values.at(b, of(h), s, d);
  }
  return result;
}

// Each query head with the weights and the LSE of another one, for values of its own.
Mistake weights_of(std::string name, Index (*other)(Index)) {
  return {std::move(name),
          "HEAD-1",
          [other](Setting& s) {
            const Index heads = s.problem.query_heads;
            if (s.problem.key_heads < 1 || other(heads - 1) == heads - 1) return false;
            const Setting before = s;
            const Index group = before.problem.group_size();
            for (Values* each : {&s.inputs.q, &s.inputs.bias, &s.inputs.slopes, &s.inputs.sink}) {
              if (each->shape[kHead] > 1) *each = heads_of(*each, heads, other);
            }
            s.inputs.k = heads_of(s.inputs.k, heads, [&](Index h) { return other(h) / group; });
            s.inputs.v = heads_of(s.inputs.v, heads, [&](Index h) { return h / group; });
            s.problem.key_heads = heads;
            if (before.problem.mask.kind == Mask::Kind::full) return true;
            set_visible(s, [&](const Position& at) {
              return visible(before.problem, {at.batch, other(at.head), at.query, at.key});
            });
            return true;
          },
          {},
          {TensorName::o, TensorName::lse}};
}

}  // namespace

std::vector<Mistake> head_mistakes() {
  const auto heads = [](std::string name, std::string clause,
                        std::function<Index(const Problem&, Index)> key_head) -> Mistake {
    return {std::move(name), std::move(clause), [key_head = std::move(key_head)](Setting& s) {
              const Problem& p = s.problem;
              if (p.key_heads < 1) return false;
              bool any = false;
              for (Index h = 0; h < p.query_heads; ++h) {
                s.key_head.push_back(key_head(p, h) % p.key_heads);
                any |= s.key_head.back() != h / p.group_size();
              }
              return any;
            }};
  };
  // Where each group has one head, none may be left: that is a gradient of zeros.
  const auto adding = [](std::string name,
                         std::function<bool(const Problem&, Index)> adds) -> Mistake {
    return {std::move(name),
            "HEAD-2",
            [adds = std::move(adds)](Setting& s) {
              const Problem& p = s.problem;
              if (p.key_heads < 1) return false;
              bool all = true;
              for (Index h = 0; h < p.query_heads; ++h) {
                s.key_head.push_back(h / p.group_size());
                s.adds.push_back(adds(p, h % p.group_size()));
                all &= s.adds.back();
              }
              return !all;
            },
            {},
            {TensorName::dk, TensorName::dv},
            {"a dK of zeros", "a dV of zeros"}};
  };
  return {
      heads("key head h mod Hkv for query head h", "HEAD-1",
            [](const Problem& p, Index h) { return h % p.key_heads; }),
      heads(
          "key head h mod (Hq/Hkv) for query head h", "HEAD-1",
          [](const Problem& p, Index h) { return std::min(h % p.group_size(), p.key_heads - 1); }),
      heads("the next key head", "HEAD-1",
            [](const Problem& p, Index h) { return h / p.group_size() + 1; }),
      heads("the first key head for all", "HEAD-1", [](const Problem&, Index) { return Index(0); }),
      heads("the key head of a group twice as large", "HEAD-1",
            [](const Problem& p, Index h) { return h / (2 * p.group_size()); }),
      adding("the first query head of each group alone",
             [](const Problem&, Index place) { return place == 0; }),
      adding("the last query head of each group alone",
             [](const Problem& p, Index place) { return place == p.group_size() - 1; }),
      adding("all but the last query head of each group",
             [](const Problem& p, Index place) { return place != p.group_size() - 1; }),
      adding("all but the first query head of each group",
             [](const Problem&, Index place) { return place != 0; }),
      weights_of("the weights of the query head 32 before",
                 [](Index h) { return h < 32 ? h : h - 32; }),
      weights_of("the weights of the query head before", [](Index h) { return h > 0 ? h - 1 : 0; }),
  };
}

}  // namespace attest
