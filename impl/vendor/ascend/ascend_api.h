// FlashAttentionScore and FlashAttentionScoreGrad as their users call them: models Ascend's calling
// convention as the seed describes it; no claim on hardware.
//
//   FlashAttentionScoreArguments call;
//   call.query = {q, DataType::kFloat16, {b, n, s, d}};  ...
//   call.head_num = n, call.input_layout = "BNSD", call.scale_value = 1 / std::sqrt(d);
//   std::uint64_t bytes;
//   Executor executor;
//   Status status = flash_attention_score_get_workspace_size(call, bytes, executor);
//   if (status.ok()) status = flash_attention_score(workspace, bytes, executor);
//
// Names and defaults are those of the operators' prototypes (REG_OP), modes and constraints those
// of their documentation: aclnnFlashAttentionScore, aclnnFlashAttentionVarLenScore (TND) and
// aclnnFlashAttentionScoreGrad. pre_tokens and next_tokens are called pre_tockens and next_tockens
// in the prototypes. Not there: real_shift and padding_mask (both must be empty), and that D of
// value may differ.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "impl/vendor/ascend/formats.h"
#include "impl/vendor/ascend/plan.h"
#include "impl/vendor/ascend/profile.h"

namespace attest::vendor::ascend {

// Dense, in the order of its axes. No data: not there.
struct Tensor {
  void* data = nullptr;
  DataType type = DataType::kFloat16;
  std::vector<int64_t> shape;
};

// What both operators take.
struct AttentionArguments {
  Tensor query, key, value;
  Tensor real_shift, padding_mask;  // empty
  Tensor drop_mask;   // UINT8, 8 elements of [B,N,S1,S2] each, 1 keeps; TND: of each sequence
  Tensor atten_mask;  // BOOL or UINT8, 1 hides: BNSS, B1SS, 11SS or SS, or compressed (sparse.h)
  std::vector<int64_t> prefix;           // of each batch element, of modes 5 and 6
  std::vector<int64_t> actual_seq_qlen;  // of TND: where each sequence ends
  std::vector<int64_t> actual_seq_kvlen;
  double scale_value = 1.0;
  double keep_prob = 1.0;
  int64_t head_num = 0;
  std::string input_layout;
  int64_t inner_precise = 0;  // 2: rows that see nothing are computed apart, and give 0
  int64_t sparse_mode = 0;
  Tensor softmax_max, softmax_sum;  // FLOAT, [B,N,S1,8], TND: [T,N,8]
};

struct FlashAttentionScoreArguments : AttentionArguments {
  int64_t pre_tokens = 2147483647, next_tokens = 2147483647;
  Tensor softmax_out;  // reserved: empty
  Tensor attention_out;
};

struct FlashAttentionScoreGradArguments : AttentionArguments {
  int64_t pre_tokens = 65536, next_tokens = 65536;  // the prototype's, and not the forward one's
  Tensor dy, softmax_in, attention_in;              // softmax_in is reserved: empty
  Tensor dq, dk, dv;
};

// Codes of aclnn, and of the run time where the device stopped.
enum class Code {
  kSuccess = 0,
  kParamNullptr = 161001,
  kParamInvalid = 161002,
  kAicoreException = 507015
};

struct Status {
  Code code = Code::kSuccess;
  std::string message;

  bool ok() const { return code == Code::kSuccess; }
};

// What the first phase hands to the second.
struct Executor {
  std::shared_ptr<const Plan> plan;
  bool backward = false;
};

Status flash_attention_score_get_workspace_size(const FlashAttentionScoreArguments& call,
                                                std::uint64_t& workspace_size, Executor& executor);
Status flash_attention_score(void* workspace, std::uint64_t workspace_size,
                             const Executor& executor, Profile* profile = nullptr);

Status flash_attention_score_grad_get_workspace_size(const FlashAttentionScoreGradArguments& call,
                                                     std::uint64_t& workspace_size,
                                                     Executor& executor);
Status flash_attention_score_grad(void* workspace, std::uint64_t workspace_size,
                                  const Executor& executor, Profile* profile = nullptr);

// A plan of the shapes alone, for the model of time: B=1 N=12 S=6144 D=128, causal.
struct Shape {
  std::string layout;
  int64_t b, n, s, d;
  bool causal;
  DataType type = DataType::kFloat16;
};
Plan plan_of_time(const Shape& shape, const Tiling& tiling, bool backward);

}  // namespace attest::vendor::ascend
