// Which keys a row sees.
#include <algorithm>
#include <memory>
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

using Kind = Mask::Kind;

Mistake band(std::string name, std::string clause, std::function<bool(Mask&)> change) {
  return {std::move(name), std::move(clause), [change = std::move(change)](Setting& setting) {
            return change_bands(setting.problem.mask, change);
          }};
}

Mistake right_edge_cut() {
  return {"the right edge of the window at most the number of keys", "MASK-4", [](Setting& s) {
            const Index keys = s.problem.key_len;
            return change_bands(s.problem.mask, [keys](Mask& m) {
              if (m.right == kUnbounded || m.right <= keys) return false;
              m.right = keys;
              return true;
            });
          }};
}

// Whether it has a table, in which no row lies beyond the last query.
bool has_rows(const Mask& mask) {
  return mask.table || mask.segments || std::any_of(mask.parts.begin(), mask.parts.end(), has_rows);
}

// Each row, head or batch element with the mask of another.
Mistake elsewhere(std::string name, std::string clause,
                  std::function<bool(const Problem&, Position&)> move) {
  return {std::move(name), std::move(clause), [move = std::move(move)](Setting& setting) {
            const Problem before = setting.problem;
            if (before.mask.kind == Kind::full) return false;
            const bool ends = has_rows(before.mask);
            bool any = false;
            set_visible(setting, [&](const Position& at) {
              Position other = at;
              const bool there = move(before, other) && !(ends && other.query >= before.query_len);
              any |= there;
              return before.mask.allows(there ? other : at, before.lengths(at.batch));
            });
            return any;
          }};
}

std::vector<Mistake> bands() {
  const auto anchored = [](Anchor anchor) {
    return [anchor](Mask& m) { return std::exchange(m.anchor, anchor) != anchor; };
  };
  const auto moved_by = [](Index step) {
    return [step](Mask& m) {
      m.offset += step;
      return true;
    };
  };
  const auto left_by = [](Index step) {
    return [step](Mask& m) {
      if (m.left == kUnbounded) return false;
      m.left += step;
      return true;
    };
  };
  const auto right_by = [](Index step) {
    return [step](Mask& m) {
      if (m.right == kUnbounded || is_causal(m)) return false;
      m.right += step;
      return true;
    };
  };
  return {
      band("a diagonal at the top left", "MASK-3", anchored(Anchor::top_left)),
      band("a diagonal at the bottom right", "MASK-2", anchored(Anchor::bottom_right)),
      band("the diagonal one further", "MASK-2", moved_by(1)),
      band("the diagonal one less", "MASK-2", moved_by(-1)),
      band("no offset of the diagonal", "MASK-2",
           [](Mask& m) { return std::exchange(m.offset, 0) != 0; }),
      band("the left edge of the window one further", "MASK-4", left_by(1)),
      band("the left edge of the window one less", "MASK-4", left_by(-1)),
      band("the right edge of the window one further", "MASK-4", right_by(1)),
      band("the right edge of the window one less", "MASK-4", right_by(-1)),
      band("no left edge of the window", "MASK-4",
           [](Mask& m) { return std::exchange(m.left, kUnbounded) != kUnbounded; }),
      band("no right edge of the window", "MASK-4",
           [](Mask& m) {
             return !is_causal(m) && std::exchange(m.right, kUnbounded) != kUnbounded;
           }),
      band("a window that ends at the diagonal", "MASK-4",
           [](Mask& m) { return !is_causal(m) && std::exchange(m.right, 0) != 0; }),
      {"one diagonal for all batch elements, of the longest lengths", "MASK-3",
       [](Setting& s) {
         if (s.problem.key_lens.empty() && s.problem.query_lens.empty()) return false;
         const Index corner = s.problem.key_len - s.problem.query_len;
         return change_bands(s.problem.mask, [&](Mask& m) {
           if (m.anchor == Anchor::top_left) return false;
           m.anchor = Anchor::top_left;
           m.offset += corner;
           return true;
         });
       }},
      {"keys that begin where the queries do", "MASK-3",
       [](Setting& s) {
         const Problem before = s.problem;
         if (before.mask.kind == Kind::full) return false;
         set_visible(s, [&](const Position& at) {
           const Lengths lens = before.lengths(at.batch);
           return before.mask.allows(at, lens) && at.key >= lens.key - lens.query;
         });
         return true;
       }},
  };
}

// Of the last query all keys are seen, as far as a diagonal goes: a loop over rows ends one early.
Mistake no_diagonal_for_the_last_query() {
  return {"no diagonal for the last query",
          "MASK-2",
          [](Setting& s) {
            const Problem before = s.problem;
            Mask open = before.mask;
            if (!drop_parts(open, Kind::band)) return false;
            set_visible(s, [&](const Position& at) {
              const bool is_last = at.query == before.query_len - 1;
              return (is_last ? open : before.mask).allows(at, before.lengths(at.batch));
            });
            return true;
          },
          {},
          {},
          {"no mask", "no diagonal", "a diagonal at the bottom right"}};
}

std::vector<Mistake> dropped() {
  const auto without = [](Kind kind) {
    return [kind](Setting& s) { return drop_parts(s.problem.mask, kind); };
  };
  // On a problem that is causal itself, that is a diagonal elsewhere.
  const auto also_causal = [](std::string name, Anchor anchor, std::string diagonal) -> Mistake {
    return {std::move(name),
            "MASK-1",
            [anchor](Setting& s) {
              Mask& mask = s.problem.mask;
              mask = Mask::all_of({mask, Mask::causal(anchor)});
              return true;
            },
            {},
            {},
            {std::move(diagonal)}};
  };
  const auto part_alone = [](bool last) {
    return [last](Setting& s) {
      Mask& mask = s.problem.mask;
      if (mask.parts.size() < 2) return false;
      const Mask part = last ? mask.parts.back() : mask.parts.front();
      mask = part;
      return true;
    };
  };
  const auto as = [](Kind from, Kind to) {
    return [from, to](Setting& s) {
      return std::exchange(s.problem.mask.kind,
                           s.problem.mask.kind == from ? to : s.problem.mask.kind) == from;
    };
  };
  return {
      {"no mask", "MASK-1",
       [](Setting& s) { return std::exchange(s.problem.mask, Mask::full()).kind != Kind::full; }},
      {"no diagonal", "MASK-2", without(Kind::band)},
      no_diagonal_for_the_last_query(),
      {"no dense mask", "MASK-7", without(Kind::dense)},
      {"no prefix", "MASK-10", without(Kind::prefix)},
      {"no segments", "MASK-11", without(Kind::segments)},
      {"no block-sparse mask", "MASK-12", without(Kind::block_sparse)},
      {"no dilation", "MASK-13", without(Kind::dilated)},
      {"the first part of the mask alone", "MASK-8", part_alone(false)},
      {"the last part of the mask alone", "MASK-8", part_alone(true)},
      {"an intersection of masks as their union", "MASK-8", as(Kind::all_of, Kind::any_of)},
      {"a union of masks as their intersection", "MASK-9", as(Kind::any_of, Kind::all_of)},
      {"the mask inverted", "MASK-7",
       [](Setting& s) {
         const Problem before = s.problem;
         if (before.mask.kind == Kind::full) return false;
         set_visible(s, [&](const Position& at) { return !visible(before, at); });
         return true;
       }},
      also_causal("causal top_left, though that is not asked for", Anchor::top_left,
                  "a diagonal at the top left"),
      also_causal("causal bottom_right, though that is not asked for", Anchor::bottom_right,
                  "a diagonal at the bottom right"),
  };
}

// A dense mask inverted or transposed, whatever lies beside it.
bool change_tables(Mask& mask, const std::function<bool(DenseMask&)>& change) {
  bool changed = false;
  if (mask.kind == Kind::dense) {
    DenseMask table = *mask.table;
    changed = change(table);
    mask.table = std::make_shared<const DenseMask>(std::move(table));
  }
  for (Mask& part : mask.parts) changed |= change_tables(part, change);
  return changed;
}

bool invert(DenseMask& table) {
  for (auto& allowed : table.allowed) allowed = allowed == 0;
  return true;
}

bool transpose(DenseMask& table) {
  const DenseMask before = table;
  const Index rows = table.shape[2], columns = table.shape[3];
  if (rows < 2 || columns < 2) return false;
  const std::size_t plane = static_cast<std::size_t>(rows * columns);
  for (std::size_t at = 0; at < table.allowed.size(); ++at) {
    const std::size_t row = at % plane / static_cast<std::size_t>(columns),
                      column = at % static_cast<std::size_t>(columns);
    table.allowed[at] =
        before
            .allowed[at / plane * plane + (column * static_cast<std::size_t>(rows) + row) % plane];
  }
  return true;
}

bool change_segments(Mask& mask, const std::function<void(Segments&)>& change) {
  bool changed = false;
  if (mask.kind == Kind::segments) {
    Segments numbers = *mask.segments;
    change(numbers);
    mask.segments = std::make_shared<const Segments>(std::move(numbers));
    changed = true;
  }
  for (Mask& part : mask.parts) changed |= change_segments(part, change);
  return changed;
}

bool change_prefixes(Mask& mask, Index step) {
  bool changed = mask.kind == Kind::prefix;
  for (Index& length : mask.prefix_lens) length += step;
  for (Mask& part : mask.parts) changed |= change_prefixes(part, step);
  return changed;
}

// The number of the position before, of the first in its batch element its own.
void of_the_one_before(SegmentNumbers& numbers) {
  for (Index at = numbers.batches * numbers.length - 1; at > 0; --at) {
    if (at % numbers.length == 0) continue;
    numbers.number[static_cast<std::size_t>(at)] = numbers.number[static_cast<std::size_t>(at - 1)];
  }
}

void for_each_number(Segments& numbers, const std::function<void(std::int32_t&)>& change) {
  for (auto* list : {&numbers.query.number, &numbers.key.number}) {
    for (auto& number : *list) change(number);
  }
}

std::vector<Mistake> tables() {
  const auto table = [](bool (*change)(DenseMask&)) {
    return [change](Setting& s) { return change_tables(s.problem.mask, change); };
  };
  const auto segments = [](std::function<void(Segments&)> change) {
    return [change = std::move(change)](Setting& s) {
      return change_segments(s.problem.mask, change);
    };
  };
  return {
      {"the dense mask inverted", "MASK-7", table(invert)},
      {"the dense mask transposed", "MASK-7", table(transpose)},
      {"a prefix one key longer", "MASK-10",
       [](Setting& s) { return change_prefixes(s.problem.mask, 1); }},
      {"a prefix one key shorter", "MASK-10",
       [](Setting& s) { return change_prefixes(s.problem.mask, -1); }},
      {"the segment number of the query before", "MASK-11",
       segments([](Segments& numbers) { of_the_one_before(numbers.query); })},
      {"the segment number of the key before", "MASK-11",
       segments([](Segments& numbers) { of_the_one_before(numbers.key); })},
      {"negative segment numbers that see each other", "MASK-11", segments([](Segments& numbers) {
         for_each_number(numbers, [](std::int32_t& n) {
           if (n < 0) n = 0x40000000 - n % 0x10000000;
         });
       })},
      {"segment numbers of 16 bits", "MASK-11", segments([](Segments& numbers) {
         for_each_number(numbers, [](std::int32_t& n) { n = n < 0 ? n : n & 0xffff; });
       })},
      {"segment numbers as floats", "MASK-11", segments([](Segments& numbers) {
         for_each_number(numbers, [](std::int32_t& n) {
           const auto rounded = static_cast<double>(static_cast<float>(n));
           n = rounded < 2147483647.0 ? static_cast<std::int32_t>(rounded) : 2147483647;
         });
       })},
  };
}

std::vector<Mistake> places() {
  return {
      elsewhere(
          "the mask of the next query", "MASK-2",
          [](const Problem& p, Position& at) { return ++at.query < p.lengths(at.batch).query; }),
      elsewhere("the mask of the query before", "MASK-2",
                [](const Problem&, Position& at) { return --at.query >= 0; }),
      elsewhere("the mask of the first head", "MASK-7",
                [](const Problem&, Position& at) { return std::exchange(at.head, 0) != 0; }),
      elsewhere("the mask of the first batch element", "MASK-7",
                [](const Problem&, Position& at) { return std::exchange(at.batch, 0) != 0; }),
      elsewhere("the mask of the first query of each four", "MASK-2",
                [](const Problem&, Position& at) {
                  return std::exchange(at.query, at.query / 4 * 4) % 4 != 0;
                }),
      elsewhere("the mask of the last query of each four", "MASK-2",
                [](const Problem&, Position& at) {
                  return std::exchange(at.query, at.query / 4 * 4 + 3) % 4 != 3;
                }),
      elsewhere("the mask of as many queries further as there are heads before", "MASK-4",
                [](const Problem&, Position& at) {
                  at.query += at.head;
                  return at.head > 0;
                }),
      elsewhere("the mask of the first query", "MASK-2",
                [](const Problem&, Position& at) { return std::exchange(at.query, 0) != 0; }),
  };
}

// The first or last visible key of each row left out.
bool leave_out(Setting& setting, bool last) {
  const Problem before = setting.problem;
  set_visible(setting, [&](const Position& at) {
    if (!visible(before, at)) return false;
    const Index end = last ? before.lengths(at.batch).key : -1, step = last ? 1 : -1;
    for (Index j = at.key + step; j != end; j += step) {
      if (visible(before, {at.batch, at.head, at.query, j})) return true;
    }
    return false;
  });
  return true;
}

}  // namespace

std::vector<Mistake> mask_mistakes() {
  std::vector<Mistake> all = bands();
  const auto add = [&](std::vector<Mistake> more) {
    for (Mistake& each : more) all.push_back(std::move(each));
  };
  add(dropped());
  add(tables());
  add(places());
  add({right_edge_cut()});
  add({{"the first key of each row left out", "SOFTMAX-1",
        [](Setting& s) { return leave_out(s, false); }},
       {"the last key of each row left out", "SOFTMAX-1",
        [](Setting& s) { return leave_out(s, true); }},
       {"the last key of each element left out", "SOFTMAX-1", [](Setting& s) {
          const Problem before = s.problem;
          set_visible(s, [&](const Position& at) {
            return visible(before, at) && at.key + 1 < before.lengths(at.batch).key;
          });
          return true;
        }}});
  return all;
}

}  // namespace attest
