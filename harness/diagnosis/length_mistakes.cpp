// Where rows begin and end, and where their keys and values lie.
#include <algorithm>
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

// Another length for each batch element, none beyond what is stored.
bool set_lengths(SequenceLengths& lengths, Index most,
                 const std::function<Index(std::size_t)>& length) {
  std::vector<Index> all;
  for (std::size_t b = 0; b < lengths.size(); ++b) all.push_back(std::min(length(b), most));
  bool changed = false;
  for (std::size_t b = 0; b < all.size(); ++b) changed |= all[b] != lengths[b];
  lengths = SequenceLengths(std::move(all));
  return changed;
}

bool is_padded(const Problem& p) { return !p.packed && p.paging.page_size == 0; }

Mistake key_lengths(std::string name,
                    std::function<Index(const SequenceLengths&, std::size_t)> length) {
  return {std::move(name), "MASK-5", [length = std::move(length)](Setting& s) {
            Problem& p = s.problem;
            if (!is_padded(p) || p.key_lens.empty()) return false;
            const SequenceLengths before = p.key_lens;
            return set_lengths(p.key_lens, p.key_len,
                               [&](std::size_t b) { return length(before, b); });
          }};
}

// How many keys follow a batch element's first in memory: packed, those of the elements after it
// too.
Index keys_from(const Problem& p, Index b) {
  const bool packed = p.packed && p.paging.page_size == 0;
  return packed ? p.key_lens.sum() - p.key_lens.start(b) : p.stored_keys(b);
}

// K and V, or V alone, of which each key is that of another place; `to` may leave the element.
Mistake keys(std::string name, std::string clause, bool values_alone,
             std::function<bool(const Problem&, Index&, Index&)> to) {
  return {std::move(name), std::move(clause), [values_alone, to = std::move(to)](Setting& s) {
            const Problem p = s.problem;
            bool any = false;
            const auto copy = [&](Values& values) {
              const Values before = values;
              for (Index b = 0; b < p.batch; ++b) {
                for (Index j = 0; j < p.stored_keys(b); ++j) {
                  Index from_b = b, from_j = j;
                  if (!to(p, from_b, from_j) || from_j < 0 || from_j >= keys_from(p, from_b)) {
                    continue;
                  }
                  any |= from_b != b || from_j != j;
                  const Place from = p.key_place(from_b, from_j), into = p.key_place(b, j);
                  for (Index h = 0; h < values.shape[kHead]; ++h) {
                    for (Index d = 0; d < values.shape[kChannel]; ++d) {
                      values.at(into.batch, h, into.position, d) =
                          before.at(from.batch, h, from.position, d);
                    }
                  }
                }
              }
            };
            if (!values_alone) copy(s.inputs.k);
            copy(s.inputs.v);
            return any;
          }};
}

// Pages of K and V by another table.
Mistake pages(std::string name, std::function<Index(const Problem&, std::size_t, std::size_t)> to) {
  return {std::move(name), "PAGE-1", [to = std::move(to)](Setting& s) {
            Problem& p = s.problem;
            const Problem before = p;
            if (p.paging.page_size == 0) return false;
            for (std::size_t b = 0; b < p.paging.table.size(); ++b) {
              for (std::size_t n = 0; n < p.paging.table[b].size(); ++n) {
                const Index page = to(before, b, n);
                if (page >= 0 && page < p.paging.pages) p.paging.table[b][n] = page;
              }
            }
            return p.paging.table != before.paging.table;
          }};
}

}  // namespace

std::vector<Mistake> length_mistakes() {
  return {
      key_lengths("keys beyond a length seen", [](const auto&, std::size_t) { return kUnbounded; }),
      key_lengths("the key length of the first batch element for all",
                  [](const auto& lens, std::size_t) { return lens[0]; }),
      key_lengths("the key length of the next batch element",
                  [](const auto& lens, std::size_t b) { return lens[(b + 1) % lens.size()]; }),
      key_lengths("a key length one more",
                  [](const auto& lens, std::size_t b) { return lens[b] + 1; }),
      {"query lengths ignored", "MASK-6",
       [](Setting& s) {
         return !s.problem.packed && !std::exchange(s.problem.query_lens, {}).empty();
       }},
      keys("K and V of the next key", "SOFTMAX-1", false,
           [](const Problem&, Index&, Index& j) { return ++j > 0; }),
      keys("K and V of the key before", "SOFTMAX-1", false,
           [](const Problem&, Index&, Index& j) { return --j >= 0; }),
      keys("V of the next key", "SOFTMAX-1", true,
           [](const Problem&, Index&, Index& j) { return ++j > 0; }),
      keys("V of the key before", "SOFTMAX-1", true,
           [](const Problem&, Index&, Index& j) { return --j >= 0; }),
      keys("K and V of the first batch element", "SHAPE-1", false,
           [](const Problem&, Index& b, Index&) { return std::exchange(b, 0) != 0; }),
      keys("K and V of the first batch element, from key 64 on", "LAYOUT-5", false,
           [](const Problem&, Index& b, Index& j) { return j >= 64 && std::exchange(b, 0) != 0; }),
      keys("K and V of the first batch element, from key 128 on", "LAYOUT-5", false,
           [](const Problem&, Index& b, Index& j) { return j >= 128 && std::exchange(b, 0) != 0; }),
      keys("K and V of the next batch element", "SHAPE-1", false,
           [](const Problem& p, Index& b, Index&) {
             b = (b + 1) % p.batch;
             return true;
           }),
      {"packed keys from one place too early", "LAYOUT-5",
       [](Setting& s) {
         if (!s.problem.packed) return false;
         const auto earlier = [](Index&, Index&, Index& at) { at = std::max<Index>(at - 1, 0); };
         s.inputs.k = moved(s.inputs.k, earlier);
         s.inputs.v = moved(s.inputs.v, earlier);
         return true;
       }},
      {"the pages of the next batch element", "PAGE-1",
       [](Setting& s) {
         Problem& p = s.problem;
         if (p.paging.page_size == 0 || p.batch < 2) return false;
         const auto before = p.paging.table;
         bool any = false;
         for (std::size_t b = 0; b < before.size(); ++b) {
           const auto& next = before[(b + 1) % before.size()];
           for (std::size_t n = 0; n < std::min(before[b].size(), next.size()); ++n) {
             any |= p.paging.table[b][n] != next[n];
             p.paging.table[b][n] = next[n];
           }
         }
         return any;
       }},
      pages("pages in the order of memory",
            [](const Problem& p, std::size_t b, std::size_t n) {
              Index page = static_cast<Index>(n);
              for (std::size_t other = 0; other < b; ++other) {
                page += static_cast<Index>(p.paging.table[other].size());
              }
              return page;
            }),
      pages("a second page that follows the first in memory",
            [](const Problem& p, std::size_t b, std::size_t n) {
              return n % 2 == 1 ? p.paging.table[b][n - 1] + 1 : p.paging.table[b][n];
            }),
  };
}

}  // namespace attest
