// What has a form for each instruction set, on all that this processor can be.
#pragma once

#include <gtest/gtest.h>

#include "hwy/targets.h"

namespace attest {

template <class Try>
void on_each_target(const Try& try_out) {
  for (auto left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const auto target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    try_out();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace attest
