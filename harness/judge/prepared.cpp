#include "harness/judge/prepared.h"

#include "cases/generate.h"
#include "harness/process/stage.h"

namespace attest {
namespace {

// Of what is known for each arithmetic, that for this one; made if it is not there yet.
template <class Made, class Make>
const Made& known_or_made(std::vector<std::pair<Arithmetic, std::unique_ptr<Made>>>& all,
                          const Arithmetic& arithmetic, const Make& make) {
  for (const auto& [known, made] : all) {
    if (known == arithmetic) return *made;
  }
  const InStage stage(RunStage::reference);
  all.emplace_back(arithmetic, std::make_unique<Made>(make()));
  return *all.back().second;
}

}  // namespace

Inputs PreparedCase::generate(const Case& test_case, int threads) {
  const InStage stage(RunStage::generate);
  return attest::generate(test_case, threads);
}

PreparedCase PreparedCase::with_keep(Keep keep) const {
  Inputs inputs = inputs_;
  inputs.keep = std::move(keep);
  return PreparedCase(case_, std::move(inputs), threads_);
}

const PassesExpected& PreparedCase::passes(const Arithmetic& arithmetic) {
  return known_or_made(passes_, arithmetic, [&] {
    return expect_passes(problem(), inputs_, arithmetic, threads_, excerpt());
  });
}

const ForwardExpected& PreparedCase::forward(const Arithmetic& arithmetic) {
  // Who looks at the forward pass of such a problem looks at the gradients next.
  if (problem().backward) return passes(arithmetic).forward;
  return known_or_made(forward_, arithmetic, [&] {
    return expect_forward(problem(), inputs_, arithmetic, threads_, excerpt());
  });
}

const BackwardExpected& PreparedCase::backward(const Arithmetic& arithmetic) {
  return passes(arithmetic).backward;
}

const ForwardSpread& PreparedCase::forward_spread(const Arithmetic& arithmetic) {
  return known_or_made(forward_spread_, arithmetic,
                       [&] { return spread_forward(problem(), inputs_, arithmetic, threads_); });
}

const BackwardSpread& PreparedCase::backward_spread(const Arithmetic& arithmetic) {
  return known_or_made(backward_spread_, arithmetic,
                       [&] { return spread_backward(problem(), inputs_, arithmetic, threads_); });
}

const Expected& expected_of(TensorName tensor, PreparedCase& prepared,
                            const Arithmetic& arithmetic) {
  return is_gradient(tensor) ? prepared.backward(arithmetic)[tensor]
                             : prepared.forward(arithmetic)[tensor];
}

const Spread& spread_of(TensorName tensor, PreparedCase& prepared, const Arithmetic& arithmetic) {
  return is_gradient(tensor) ? prepared.backward_spread(arithmetic)[tensor]
                             : prepared.forward_spread(arithmetic)[tensor];
}

}  // namespace attest
