// The tensors that belong to a problem itself, as they cross (SPEC.md, chapter "Worker"): lengths,
// page table, the tables of its masks.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "harness/process/wire.h"
#include "spec/mask.h"
#include "spec/problem.h"
#include "spec/tensor.h"

namespace attest {

// Of sequences that follow each other: where each begins, and where the last ends.
std::vector<Index> running_sums(const std::vector<Index>& lens);

// Its rows, filled up with -1.
std::vector<std::int32_t> page_table(const Problem& problem);

// Calls `visit` with the name, the shape and the numbers of each.
template <class Visit>
void for_each_table(const Problem& p, const Visit& visit) {
  const auto list = [&](const char* name, const std::vector<Index>& numbers) {
    visit(name, Shape{static_cast<Index>(numbers.size()), 1, 1, 1}, numbers);
  };
  const bool paged = p.paging.page_size > 0;
  if (p.packed) {
    list("cu_query_lens", running_sums(p.query_lens));
    if (!paged) list("cu_key_lens", running_sums(p.key_lens));
  } else if (!p.query_lens.empty()) {
    list("query_lens", p.query_lens);
  }
  if (!p.key_lens.empty() && (paged || !p.packed)) list("key_lens", p.key_lens);
  if (paged) visit("page_table", Shape{p.batch, p.paging.entries(), 1, 1}, page_table(p));
  std::size_t n = 0;
  for (const MaskTable& table : tables_of(p.mask)) {
    const std::string name = mask_table_name(n++);
    std::visit([&](const auto* elements) { visit(name, table.shape, *elements); }, table.elements);
  }
}

}  // namespace attest
