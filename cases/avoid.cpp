#include "cases/avoid.h"

namespace attest {

std::map<Size, std::vector<SizeSet>> to_avoid(const KernelLimits& limits, const Problem& problem) {
  std::map<Size, std::vector<SizeSet>> sets;
  for (const auto& [terms, text] : limits.never) {
    if (!meets(terms, problem)) continue;
    bool some = !terms.head_dims.empty();
    if (some) sets[Size::head_dim].push_back(SizeSet::listed({problem.head_dim}));
    for (const auto& [size, among] : terms.sizes) {
      const bool follows = size == Size::mask_offset || size == Size::group || size == Size::pairs;
      if (follows) continue;
      sets[size].push_back(among);
      some = true;
    }
    if (!some) return {};
  }
  return sets;
}

}  // namespace attest
