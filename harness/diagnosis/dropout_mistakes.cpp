// Dropout of P.
#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/diagnosis/setting.h"

namespace attest {
namespace {

bool drops(const Setting& s) {
  return s.problem.dropout.mode != Dropout::Mode::none && !s.inputs.keep.kept.empty();
}

// The keep-mask of another place, as far as there is one.
Mistake keep_of(std::string name, std::function<void(const Problem&, Position&)> move) {
  return {std::move(name), "DROP-1", [move = std::move(move)](Setting& s) {
            if (!drops(s)) return false;
            const Keep before = s.inputs.keep;
            for (Index at = 0; at < element_count(before.shape); ++at) {
              const auto [b, h, i, j] = coordinates(before.shape, at);
              Position p = {b, h, i, j};
              move(s.problem, p);
              const bool inside = p.batch >= 0 && p.batch < before.shape[0] && p.head >= 0 &&
                                  p.head < before.shape[1] && p.query >= 0 &&
                                  p.query < before.shape[2] && p.key >= 0 &&
                                  p.key < before.shape[3];
              if (inside) s.inputs.keep.kept[static_cast<std::size_t>(at)] = before.at(p);
            }
            return s.inputs.keep.kept != before.kept;
          }};
}

// Of each row of O, what the weights that it keeps must be multiplied by to be as many as they
// were.
void scale_by_rows(const Setting& s, TensorName tensor, Expected& e) {
  const Problem& p = s.problem;
  if (tensor != TensorName::o) return;
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.lengths(b).query; ++i) {
        double seen = 0, kept = 0;
        for (Index j = 0; j < p.lengths(b).key; ++j) {
          const Position at = {b, h, i, j};
          if (!visible(p, at)) continue;
          seen += 1;
          kept += s.inputs.keep.at(at);
        }
        const double by = (1 - p.dropout.probability) * seen / std::max(kept, 1.0);
        const Place place = p.query_place(b, i);
        for (Index d = 0; d < p.value_dim; ++d) {
          const auto at =
              static_cast<std::size_t>(dense_index(p.o_shape(), place.batch, h, place.position, d));
          e.value[at] *= by;
          e.bound[at] *= std::max(by, 1.0);
        }
      }
    }
  }
  e.rest.clear();
}

std::vector<Mistake> rates() {
  return {
      {"no dropout", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         s.problem.dropout = {};
         s.inputs.keep = {};
         return true;
       }},
      {"dropout without 1/(1-p)", "DROP-1",
       [](Setting& s) {
         // A kept weight is divided by what is left of 1.
         return drops(s) && std::exchange(s.problem.dropout.probability, 0) > 0;
       }},
      {"nothing dropped, but 1/(1-p)", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         for (auto& kept : s.inputs.keep.kept) kept = 1;
         return true;
       }},
      {"the keep-mask inverted", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         for (auto& kept : s.inputs.keep.kept) kept = kept == 0;
         return true;
       }},
      {"dropout before the softmax", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         const Setting before = s;
         set_visible(s, [&](const Position& at) {
           return visible(before.problem, at) && before.inputs.keep.at(at);
         });
         return true;
       }},
      {"dropout before the softmax, without 1/(1-p)", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         const Setting before = s;
         set_visible(s, [&](const Position& at) {
           return visible(before.problem, at) && before.inputs.keep.at(at);
         });
         s.problem.dropout = {};
         s.inputs.keep = {};
         return true;
       }},
      {"1/(1-p) with a rate of 8 bits", "DROP-1",
       [](Setting& s) {
         if (!drops(s)) return false;
         const double before = s.problem.dropout.probability;
         const double rate = std::floor(255 * (1 - before)) / 255;
         s.problem.dropout.probability = 1 - rate;
         return rate > 0 && 1 - rate != before;
       }},
      {"the factor 1/(1-p) in LSE",
       "LSE-1",
       [](Setting& s) { return drops(s); },
       [](const Setting& s, TensorName tensor, Expected& e) {
         if (tensor != TensorName::lse) return;
         for (std::size_t i = 0; i < e.value.size(); ++i) {
           e.value[i] -= std::log1p(-s.problem.dropout.probability);
           e.bound[i] += std::abs(e.value[i]) * 0x1p-22;
         }
         e.rest.clear();
       },
       {TensorName::lse}},
  };
}

std::vector<Mistake> keeps() {
  return {
      keep_of("the keep-mask of the next head",
              [](const Problem& p, Position& at) { at.head = (at.head + 1) % p.query_heads; }),
      keep_of("the keep-mask of the head before", [](const Problem&, Position& at) { --at.head; }),
      keep_of("the keep-mask of the first head", [](const Problem&, Position& at) { at.head = 0; }),
      keep_of("the keep-mask of the key head",
              [](const Problem& p, Position& at) { at.head /= p.group_size(); }),
      keep_of("the keep-mask with heads counted as key heads",
              [](const Problem& p, Position& at) {
                const Index n = at.batch * p.key_heads + at.head;
                at.batch = n / p.query_heads;
                at.head = n % p.query_heads;
              }),
      keep_of("the keep-mask of the first batch element",
              [](const Problem&, Position& at) { at.batch = 0; }),
      keep_of("the keep-mask of the next key", [](const Problem&, Position& at) { ++at.key; }),
      keep_of("the keep-mask of the key before", [](const Problem&, Position& at) { --at.key; }),
      keep_of("the keep-mask of the next query", [](const Problem&, Position& at) { ++at.query; }),
      keep_of("the keep-mask of the first 64 keys again",
              [](const Problem&, Position& at) { at.key %= 64; }),
      keep_of("the keep-mask of the first 32 keys again",
              [](const Problem&, Position& at) { at.key %= 32; }),
      keep_of("the keep-mask of the first 64 heads again",
              [](const Problem&, Position& at) { at.head %= 64; }),
      keep_of("the keep-mask of the first batch element, from key 64 on",
              [](const Problem&, Position& at) {
                if (at.key >= 64) at.batch = 0;
              }),
      keep_of("the keep-mask with the keys backwards",
              [](const Problem& p, Position& at) { at.key = p.key_len - 1 - at.key; }),
  };
}

}  // namespace

std::vector<Mistake> dropout_mistakes() {
  std::vector<Mistake> all = rates(), keep_list = keeps();
  for (auto& each : keep_list) all.push_back(std::move(each));
  all.push_back({"dropout scaled by the rate that came about",
                 "DROP-1",
                 [](Setting& s) { return drops(s); },
                 scale_by_rows,
                 {TensorName::o}});
  return all;
}

}  // namespace attest
