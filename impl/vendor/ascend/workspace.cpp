#include "impl/vendor/ascend/workspace.h"

namespace attest::vendor::ascend {

Workspace lay_out(const WorkspaceNeeds& needs) {
  Workspace w;
  // Cores meet at flags, 32 bytes for each; aligned, there is a page of them.
  int64_t end = needs.aligned ? kSyncGlobal : needs.cores * kSyncOfCore;
  const auto part = [&](int64_t bytes) {
    const int64_t start = end;
    end += bytes;
    if (needs.aligned) end = (end + kAddressAlign) / kAddressAlign * kAddressAlign;
    return start;
  };
  const auto of_cores = [&](int64_t slot_bytes, int slots) {
    if (needs.aligned)
      slot_bytes = (slot_bytes + kAddressAlign - 1) / kAddressAlign * kAddressAlign;
    const int64_t core_bytes = slot_bytes * slots;
    return Workspace::Part{part(core_bytes * needs.cores), core_bytes, slot_bytes};
  };
  if (needs.gradients) {
    w.dq = part(needs.query_sums * kFloatBytes);
    w.dk = part(needs.key_sums * kFloatBytes);
    w.dv = part(needs.key_sums * kFloatBytes);
  }
  const int64_t product = needs.gradients ? needs.launch : needs.query_sums;
  w.mm1 = of_cores(product * kFloatBytes, needs.slots);
  w.mm2 = of_cores(needs.launch * kFloatBytes, needs.slots);
  w.drop = of_cores(needs.launch * needs.element, needs.slots);
  if (needs.gradients) w.mul = of_cores(needs.launch * needs.element, needs.slots);
  w.sub = of_cores(product * kFloatBytes, 2);
  w.bytes = end;
  return w;
}

}  // namespace attest::vendor::ascend
