// Random pages and features of scores, for properties in RapidCheck.
#pragma once

#include <rapidcheck.h>

#include <cstdint>

#include "spec/problem.h"
#include "tests/impl/any_mask.h"

namespace attest {

// Puts the keys, of which there are key_lens, behind a page table, where there is no backward pass.
inline void add_pages(Problem& p) {
  p.backward = false;
  p.paging = {.page_size = *rc::gen::element<Index>(1, 3, 16, 100), .pages = 7};
  for (const Index len : p.key_lens) {
    auto& row = p.paging.table.emplace_back();
    while (static_cast<Index>(row.size()) * p.paging.page_size < len) {
      row.push_back(within<Index>(0, 7));
    }
  }
}

// A mask, and some of all that changes scores, weights and gradients.
inline void add_features(Problem& p) {
  p.mask = any_mask(p);
  const auto one_or = [](Index size) { return *rc::gen::element(Index(1), size); };
  if (once_in(3)) p.softcap = *rc::gen::element(30.0, 1.5, 0.1);
  if (once_in(3)) {
    p.bias_shape = {one_or(p.batch), one_or(p.query_heads), one_or(p.query_len), one_or(p.key_len)};
  }
  if (once_in(4)) p.slopes_shape = {one_or(p.batch), p.query_heads, 1, 1};
  p.sink = once_in(3);
  if (once_in(3)) {
    p.dropout = {.mode = *rc::gen::element(Dropout::Mode::given, Dropout::Mode::generated),
                 .probability = *rc::gen::element(0.0, 0.25, 0.3, 0.9),
                 .seed = *rc::gen::arbitrary<std::uint64_t>(),
                 .offset = *rc::gen::arbitrary<std::uint64_t>()};
  }
  p.d_lse = p.backward && once_in(3);
}

}  // namespace attest
