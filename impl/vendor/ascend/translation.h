// A call of Attest as a call of Ascend's operators, and back.
//
// Tensors of any strides are copied to a named layout: BNSD; BSH or SBH where the queries lie in
// that order; TND where sequences have lengths of their own, packed or padded, so that nothing
// beyond a length is there to be read. Sequences that have queries and no key, which the operators
// refuse, are left out, and get here what the operators give to rows that see nothing.
#pragma once

#include <attest/kernel.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "impl/vendor/ascend/ascend_api.h"
#include "impl/vendor/ascend/mask_translation.h"

namespace attest::vendor::ascend {

class Translation {
 public:
  // Without `contents` no tensor is looked at: for the query of the workspace.
  Translation(const Problem& problem, bool backward, const Call* contents);

  // Whether any sequence is left for the operators.
  bool empty() const { return sequences_.empty(); }
  FlashAttentionScoreArguments forward_call();
  FlashAttentionScoreGradArguments backward_call();
  // Copies the results to Attest's tensors, and fills in what the operators did not write.
  void finish_forward(const Call& call) const;
  void finish_backward(const Call& call) const;

 private:
  struct Copy {
    ascend::Tensor tensor;
    std::vector<std::byte> data;
  };
  struct Kept {  // a sequence that the operators get
    std::int64_t b, queries, keys;
  };

  void choose_sequences(bool of_lengths);
  void choose_layout(const attest::Tensor& q);
  Copy new_copy(bool of_queries, const attest::Tensor* from);
  Copy new_statistics(const attest::Tensor* from);
  void copy_keep(const Call& call);
  void fill_common(AttentionArguments& to);
  // visit(the row's place in Attest, the head, the number of its first element in the copy)
  template <class Visit>
  void for_rows(bool of_queries, const Steps& steps, const Visit& visit) const;
  void scatter(const Copy& from, bool of_queries, const attest::Tensor& to) const;
  void scatter_statistics(const Copy& from, const attest::Tensor& to, float without) const;

  const Problem& p_;
  const bool packed_;  // TND
  std::vector<Kept> sequences_;
  DataType type_;
  std::string layout_;
  Sizes query_, key_;
  MaskChoice mask_;
  Copy q_, k_, v_, out_, dy_, dq_, dk_, dv_, max_, sum_, keep_;
};

}  // namespace attest::vendor::ascend
