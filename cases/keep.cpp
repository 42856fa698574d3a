#include "cases/keep.h"

#include "cases/philox.h"

namespace attest {

Keep make_keep(const Problem& p) {
  Keep keep{.shape = p.keep_shape(), .kept = {}};
  const auto threshold = p.dropout.probability * 4294967296.0;  // exact: a power of two
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(p.dropout.seed),
                                            static_cast<std::uint32_t>(p.dropout.seed >> 32)};
  keep.kept.reserve(static_cast<std::size_t>(element_count(keep.shape)));
  for (Index b = 0; b < p.batch; ++b) {
    for (Index h = 0; h < p.query_heads; ++h) {
      for (Index i = 0; i < p.query_len; ++i) {
        Philox words = {};
        for (Index j = 0; j < p.key_len; ++j) {
          if (j % 4 == 0) {
            words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                            static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)},
                           key);
          }
          keep.kept.push_back(words[static_cast<std::size_t>(j % 4)] >= threshold);
        }
      }
    }
  }
  return keep;
}

}  // namespace attest
