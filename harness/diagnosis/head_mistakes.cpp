// Which key head a query head reads, and which of them add to its gradients.
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {

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
  const auto adding = [](std::string name,
                         std::function<bool(const Problem&, Index)> adds) -> Mistake {
    return {std::move(name),
            "HEAD-2",
            [adds = std::move(adds)](Setting& s) {
              const Problem& p = s.problem;
              if (p.key_heads < 1 || p.group_size() < 2) return false;
              for (Index h = 0; h < p.query_heads; ++h) {
                s.key_head.push_back(h / p.group_size());
                s.adds.push_back(adds(p, h % p.group_size()));
              }
              return true;
            },
            {},
            {TensorName::dk, TensorName::dv}};
  };
  return {
      heads("key head h mod Hkv for query head h", "HEAD-1",
            [](const Problem& p, Index h) { return h % p.key_heads; }),
      heads("key head h mod (Hq/Hkv) for query head h", "HEAD-1",
            [](const Problem& p, Index h) { return h % p.group_size(); }),
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
      {"the weights of the query head 32 before",
       "HEAD-1",
       [](Setting& s) {
         if (s.problem.query_heads <= 32) return false;
         s.inputs.q = moved(s.inputs.q, [](Index&, Index& h, Index&) { h = h < 32 ? h : h - 32; });
         return true;
       },
       {},
       {TensorName::o}},
      {"the weights of the query head before",
       "HEAD-1",
       [](Setting& s) {
         if (s.problem.query_heads < 2) return false;
         s.inputs.q = moved(s.inputs.q, [](Index&, Index& h, Index&) { h = h > 0 ? h - 1 : 0; });
         return true;
       },
       {},
       {TensorName::o}},
  };
}

}  // namespace attest
