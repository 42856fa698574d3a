#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "harness/judge/drawn.h"

namespace attest {

std::optional<Finding> check_draws(Subject& subject, const Keep& keep) {
  Problem seed = subject.problem(), high = subject.problem(), offset = subject.problem();
  ++seed.dropout.seed;
  high.dropout.seed += std::uint64_t(1) << 32;  // kernels keep the halves apart
  ++offset.dropout.offset;
  for (const auto& [p, what] :
       {std::pair(&seed, "seed"), std::pair(&high, "seed"), std::pair(&offset, "offset")}) {
    p->backward = p->d_lse = false;
    const Trial other =
        try_out(subject.calling, *p, subject.prepared.inputs(), Placement::end_flush);
    if (other.stopped) return other.stopped;
    if (same_bits(subject.problem(), subject.prepared.inputs(), *other.keep, keep)) {
      return failure(fmt::format("property:{}", what),
                     fmt::format("another {} drew the same keep-mask", what), "DROP-3.8");
    }
  }
  return std::nullopt;
}

}  // namespace attest
