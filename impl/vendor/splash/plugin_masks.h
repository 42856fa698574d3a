// Attest's masks as splash attention has them. A band is a CausalMask or a LocalMask with an
// offset, which takes the place of the bottom right corner; what splash has no object for is
// written out as a NumpyMask; one set of segments, if all else is and-ed with it, goes beside the
// mask.
#pragma once

#include <attest/kernel.h>

#include <optional>
#include <vector>

#include "impl/vendor/splash/splash_api.h"

namespace attest::vendor::splash {

struct TranslatedMask {
  std::vector<MaskPtr> of_heads;  // one object, as often as there are heads, where heads are alike
  std::optional<SegmentIds> segment_ids;
};
TranslatedMask translate(const attest::Problem& problem, std::int64_t batch);

// Whether sequences of a batch have masks of their own, so that each is given a kernel.
bool differs_by_batch(const attest::Problem& problem);

}  // namespace attest::vendor::splash
