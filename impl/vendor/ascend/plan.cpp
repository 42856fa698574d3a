#include "impl/vendor/ascend/plan.h"

namespace attest::vendor::ascend {

VectorCore::Bits load_drop_bits(VectorCore& core, const Plan& plan, int64_t sequence, int64_t head,
                                const Block& block, std::byte* to) {
  const Sequence& s = plan.sequences[static_cast<std::size_t>(sequence)];
  const int64_t first = plan.drop_start[static_cast<std::size_t>(sequence)] +
                        (head * s.s1 + block.i0) * s.s2 + block.j0;
  const int64_t bytes = (block.columns + 7) / 8;
  core.load({nullptr, plan.drop_mask.address + first / 8}, block.rows, bytes, (s.s2 + 7) / 8, to,
            bytes);
  if (!core.numbers()) return {to, 0, bytes * 8};
  for (int64_t m = 0; m < block.rows; ++m) {
    for (int64_t n = 0; n < bytes; ++n) to[m * bytes + n] = std::byte{0};
    for (int64_t n = 0; n < block.columns; ++n) {
      const int64_t bit = first + m * s.s2 + n;
      const auto kept = plan.drop_mask.host[bit / 8] >> (bit % 8) & std::byte{1};
      to[m * bytes + n / 8] |= kept << (n % 8);
    }
  }
  return {to, 0, bytes * 8};
}

}  // namespace attest::vendor::ascend
