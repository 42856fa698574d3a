// A kernel that computes as exactly as doubles do, but for one fault of a size. It is no reference:
// judged by the bounds as any other kernel, it tells the least fault that they see.
//
// S = scale Q K^T, softcap, bias, ALiBi; P = exp(S - m) / l; O = P V; LSE = m + log l; and the
// gradients: dP = dO V^T, D = P . dP - dLSE, dS = P (dP - D), dQ = dS K, dK = dS^T Q, dV = P^T dO.
#pragma once

#include <optional>
#include <vector>

#include "harness/judge/trial.h"
#include "harness/limits/fault.h"
#include "spec/inputs.h"
#include "spec/per_tensor.h"
#include "spec/problem.h"

namespace attest::limits {

// In dense order, before they are rounded to their formats; empty where the problem wants none.
using Results = PerTensor<std::vector<double>>;

// A problem and what all faults of it have in common: the keys that each row sees, and the products
// of inputs. Refers to both for as long as it lives.
class Shared {
 public:
  Shared(const Problem& problem, const Inputs& inputs);

  struct Row {
    std::vector<Index> keys = {};
    std::vector<double> qk = {}, dp = {};  // of those: q.k, dO.v
  };

  const Problem& problem() const { return p_; }
  const Inputs& inputs() const { return in_; }
  // Made anew in `room` if there are too many to keep.
  const Row& row(Index b, Index h, Index i, Row& room) const;

 private:
  Row make(Index b, Index h, Index i) const;

  const Problem& p_;
  const Inputs& in_;
  std::vector<Row> rows_ = {};  // by batch, head, query
};

Results compute(const Shared& shared, const Fault& fault);

// The kernel, called in this process. It keeps what problems have in common while their inputs are
// `kept`, and the last results of those.
class FaultyKernel : public Computing {
 public:
  explicit FaultyKernel(const Shared& kept) : kept_(kept) {}

  void set(const Fault& fault);
  Trial compute(const Problem& problem, const Inputs& inputs) override;

 private:
  const Shared& kept_;
  Fault fault_ = {};
  std::optional<Trial> last_ = {};
};

}  // namespace attest::limits
