#include "harness/process/problem_tables.h"

namespace attest {

std::vector<Index> running_sums(const std::vector<Index>& lens) {
  std::vector<Index> sums = {0};
  for (const Index len : lens) sums.push_back(sums.back() + len);
  return sums;
}

std::vector<std::int32_t> page_table(const Problem& p) {
  std::vector<std::int32_t> table;
  for (std::vector<Index> row : p.paging.table) {
    row.resize(static_cast<std::size_t>(p.paging.entries()), -1);
    for (const Index page : row) table.push_back(static_cast<std::int32_t>(page));
  }
  return table;
}

}  // namespace attest
