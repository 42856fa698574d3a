#include "impl/vendor/ascend/ascend_api.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "impl/vendor/ascend/backward.h"
#include "impl/vendor/ascend/forward.h"
#include "impl/vendor/ascend/schedule.h"

namespace attest::vendor::ascend {

namespace {

struct Refusal : std::invalid_argument {
  Refusal(Code the_code, const std::string& why) : std::invalid_argument(why), code(the_code) {}
  Code code;
};

void need(const Tensor& tensor, const char* name) {
  if (!tensor.data) throw Refusal(Code::kParamNullptr, std::string(name) + " is not there");
}
void refuse_if(bool broken, const std::string& why) {
  if (broken) throw Refusal(Code::kParamInvalid, why);
}
int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// A tensor of the same layout as the query or the key.
Operand operand(const Tensor& tensor, const Tensor& like, const Steps& steps, const char* name) {
  need(tensor, name);
  refuse_if(tensor.type != like.type, std::string(name) + " is of another type");
  refuse_if(tensor.shape != like.shape, std::string(name) + " is of another shape");
  return {{static_cast<std::byte*>(tensor.data), 0}, steps};
}

Operand statistics(const Tensor& tensor, const Plan& plan, const char* name) {
  need(tensor, name);
  const Sizes& q = plan.query;
  const std::vector<int64_t> shape = plan.layout == "TND"
                                         ? std::vector<int64_t>{q.s, q.n, kStatistics}
                                         : std::vector<int64_t>{q.b, q.n, q.s, kStatistics};
  refuse_if(tensor.type != DataType::kFloat, std::string(name) + " is not FLOAT");
  refuse_if(tensor.shape != shape, std::string(name) + " is not of its shape");
  return {{static_cast<std::byte*>(tensor.data), 0}, steps_of_statistics(plan.layout, q)};
}

void set_sequences(Plan& plan, const std::vector<int64_t>& ends_q,
                   const std::vector<int64_t>& ends_kv) {
  if (plan.layout != "TND") {
    refuse_if(!ends_q.empty() || !ends_kv.empty(), "actual_seq_qlen is for TND");
    for (int64_t b = 0; b < plan.query.b; ++b)
      plan.sequences.push_back({b, 0, 0, plan.query.s, plan.key.s});
    return;
  }
  refuse_if(ends_q.empty() || ends_q.size() != ends_kv.size(),
            "TND needs actual_seq_qlen and actual_seq_kvlen, of the same length");
  int64_t q = 0, kv = 0;
  for (std::size_t b = 0; b < ends_q.size(); ++b) {
    const Sequence s{0, q, kv, ends_q[b] - q, ends_kv[b] - kv};
    refuse_if(s.s1 < 0 || s.s2 < 0, "actual_seq_qlen or actual_seq_kvlen falls");
    refuse_if(s.s1 > 0 && s.s2 == 0, "a sequence has queries and no keys");
    plan.sequences.push_back(s);
    q = ends_q[b], kv = ends_kv[b];
  }
  refuse_if(q != plan.query.s || kv != plan.key.s, "the last of the ends is not T");
}

void check_sizes(const Plan& plan) {
  const Sizes &q = plan.query, &k = plan.key;
  refuse_if(q.b != k.b, "query and key have different B");
  refuse_if(q.d != k.d, "query and key have different D");
  refuse_if(k.n < 1 || q.n % k.n != 0, "N of the query is no multiple of the key's");
  refuse_if(q.n < 1 || q.n > 256, "N is not between 1 and 256");
  refuse_if(q.d < 1 || q.d > 512, "D is not between 1 and 512");
  refuse_if(q.b < 1 || q.s < 1 || k.s < 1 || q.s > 1 << 20 || k.s > 1 << 20,
            "B or S is out of range");
}

void set_drop_mask(Plan& plan, const Tensor& mask, double keep_prob) {
  refuse_if(!(keep_prob > 0 && keep_prob <= 1), "keep_prob is not in (0, 1]");
  plan.keep_prob = static_cast<float>(keep_prob);
  int64_t bits = 0;
  for (const Sequence& s : plan.sequences) {
    plan.drop_start.push_back(bits);
    bits += plan.query.n * s.s1 * s.s2;
  }
  plan.has_drop_mask = mask.data != nullptr;
  if (!plan.has_drop_mask) return;
  refuse_if(mask.type != DataType::kUint8, "drop_mask is not UINT8");
  refuse_if(count(mask.shape) != (bits + 7) / 8, "drop_mask has not a bit for each score");
  plan.drop_mask = {static_cast<std::byte*>(mask.data), 0};
}

void set_masks(Plan& plan, const AttentionArguments& call, int64_t pre_tokens,
               int64_t next_tokens) {
  MaskArguments mask;
  mask.has_mask = call.atten_mask.data != nullptr;
  refuse_if(mask.has_mask && bytes_of(call.atten_mask.type) != 1,
            "atten_mask is not BOOL or UINT8");
  mask.mask = {static_cast<std::byte*>(call.atten_mask.data), 0};
  mask.shape = call.atten_mask.shape;
  mask.prefix = call.prefix;
  mask.pre_tokens = pre_tokens, mask.next_tokens = next_tokens;
  mask.sparse_mode = call.sparse_mode;
  plan.sparse = {Sparse(mask, plan.layout, plan.sequences, plan.query.n)};
  plan.invalid_rows = call.inner_precise == 2 || plan.masks().has_empty_rows();
}

// Blocks no larger than the problem, and no more cores than there is work for.
void fit_tiling(Plan& plan, bool backward) {
  const auto whole = [](int64_t base, int64_t s) {
    return std::min(base, (s + kFractal - 1) / kFractal * kFractal);
  };
  int64_t s1 = 1, s2 = 1;
  for (const Sequence& s : plan.sequences) s1 = std::max(s1, s.s1), s2 = std::max(s2, s.s2);
  Tiling& t = plan.tiling;
  t.base_m = whole(t.base_m, s1), t.base_n = whole(t.base_n, s2);
  t.blocks_at_once = std::min(t.blocks_at_once, (s2 + t.base_n - 1) / t.base_n);
  const std::vector<BlockRow> rows = block_rows(plan);
  const int64_t tasks = backward ? (blocks_of(rows) + t.blocks_at_once - 1) / t.blocks_at_once
                                 : static_cast<int64_t>(rows.size());
  t.cores = static_cast<int>(std::clamp<int64_t>(tasks, 1, t.cores));
}

void set_workspace(Plan& plan, bool backward) {
  const Tiling& t = plan.tiling;
  const Sizes &q = plan.query, &k = plan.key;
  plan.workspace = lay_out({.cores = t.cores,
                            .launch = t.base_m * t.base_n * (backward ? t.blocks_at_once : 1),
                            .slots = t.ahead ? 2 : 1,
                            .element = bytes_of(plan.type),
                            .query_sums = backward ? q.b * q.n * q.s * q.d : t.base_m * q.d,
                            .key_sums = backward ? k.b * k.n * k.s * k.d : 0,
                            .gradients = backward,
                            .aligned = t.aligned_workspace});
}

// What both operators check, in the order in which their documentation has it.
Plan common_plan(const AttentionArguments& call, int64_t pre_tokens, int64_t next_tokens) {
  need(call.query, "query"), need(call.key, "key"), need(call.value, "value");
  refuse_if(call.real_shift.data || call.padding_mask.data,
            "real_shift and padding_mask are not there in this mock");
  Plan plan;
  plan.type = call.query.type, plan.layout = call.input_layout;
  const device::Device device(atlas_a2());
  device.check_format(name_of(plan.type));
  device.check_layout(plan.layout);
  plan.query = sizes_of_query(plan.layout, call.query.shape, call.head_num);
  plan.key = sizes_of_key(plan.layout, call.key.shape, plan.query.d);
  check_sizes(plan);
  plan.group = plan.query.n / plan.key.n;
  set_sequences(plan, call.actual_seq_qlen, call.actual_seq_kvlen);
  plan.scale = static_cast<float>(call.scale_value);
  set_drop_mask(plan, call.drop_mask, call.keep_prob);
  set_masks(plan, call, pre_tokens, next_tokens);
  const Steps q_steps = steps_of(plan.layout, plan.query),
              k_steps = steps_of(plan.layout, plan.key);
  refuse_if(call.key.type != plan.type, "key is of another type");
  plan.q = operand(call.query, call.query, q_steps, "query");
  plan.k = operand(call.key, call.key, k_steps, "key");
  plan.v = operand(call.value, call.key, k_steps, "value");
  plan.softmax_max = statistics(call.softmax_max, plan, "softmax_max");
  plan.softmax_sum = statistics(call.softmax_sum, plan, "softmax_sum");
  return plan;
}

template <class MakePlan>
Status first_phase(bool backward, std::uint64_t& workspace_size, Executor& executor,
                   const MakePlan& make_plan) {
  try {
    Plan plan = make_plan();
    fit_tiling(plan, backward);
    set_workspace(plan, backward);
    workspace_size = static_cast<std::uint64_t>(plan.workspace.bytes);
    executor = {std::make_shared<const Plan>(std::move(plan)), backward};
    return {};
  } catch (const Refusal& refusal) {
    return {refusal.code, refusal.what()};
  } catch (const std::invalid_argument& why) {
    return {Code::kParamInvalid, why.what()};
  } catch (const DeviceError& error) {
    return {Code::kParamInvalid, error.what()};
  }
}

Status second_phase(bool backward, void* workspace, std::uint64_t workspace_size,
                    const Executor& executor, Profile* profile) {
  if (!executor.plan || executor.backward != backward)
    return {Code::kParamInvalid, "the executor is another operator's"};
  if (!workspace || workspace_size < static_cast<std::uint64_t>(executor.plan->workspace.bytes))
    return {Code::kParamInvalid, "the workspace is smaller than asked for"};
  try {
    Plan plan = *executor.plan;
    plan.workspace.base = {static_cast<std::byte*>(workspace), 0};
    const Profile run = backward ? run_backward(plan) : run_forward(plan);
    if (profile) *profile = run;
    return {};
  } catch (const DeviceError& error) {
    return {Code::kAicoreException, error.what()};
  }
}

}  // namespace

Status flash_attention_score_get_workspace_size(const FlashAttentionScoreArguments& call,
                                                std::uint64_t& workspace_size, Executor& executor) {
  return first_phase(false, workspace_size, executor, [&] {
    refuse_if(call.softmax_out.data, "softmax_out is reserved");
    Plan plan = common_plan(call, call.pre_tokens, call.next_tokens);
    plan.out = operand(call.attention_out, call.query, plan.q.steps, "attention_out");
    return plan;
  });
}

Status flash_attention_score(void* workspace, std::uint64_t workspace_size,
                             const Executor& executor, Profile* profile) {
  return second_phase(false, workspace, workspace_size, executor, profile);
}

Status flash_attention_score_grad_get_workspace_size(const FlashAttentionScoreGradArguments& call,
                                                     std::uint64_t& workspace_size,
                                                     Executor& executor) {
  return first_phase(true, workspace_size, executor, [&] {
    refuse_if(call.softmax_in.data, "softmax_in is reserved");
    Plan plan = common_plan(call, call.pre_tokens, call.next_tokens);
    plan.out = operand(call.attention_in, call.query, plan.q.steps, "attention_in");
    plan.dy = operand(call.dy, call.query, plan.q.steps, "dy");
    plan.dq = operand(call.dq, call.query, plan.q.steps, "dq");
    plan.dk = operand(call.dk, call.key, plan.k.steps, "dk");
    plan.dv = operand(call.dv, call.key, plan.k.steps, "dv");
    return plan;
  });
}

Status flash_attention_score_grad(void* workspace, std::uint64_t workspace_size,
                                  const Executor& executor, Profile* profile) {
  return second_phase(true, workspace, workspace_size, executor, profile);
}

Plan plan_of_time(const Shape& shape, const Tiling& tiling, bool backward) {
  Plan plan;
  plan.numbers = false;
  plan.type = shape.type, plan.layout = shape.layout, plan.tiling = tiling;
  plan.query = plan.key = {shape.b, shape.n, shape.s, shape.d};
  set_sequences(plan, {}, {});
  MaskArguments mask;
  mask.has_mask = shape.causal;
  mask.shape = {kCompressed, kCompressed};
  mask.sparse_mode = 2;
  plan.sparse = {Sparse(mask, plan.layout, plan.sequences, shape.n)};
  const Steps steps = steps_of(plan.layout, plan.query);
  for (Operand* x : {&plan.q, &plan.k, &plan.v, &plan.out, &plan.dy, &plan.dq, &plan.dk, &plan.dv})
    x->steps = steps;
  plan.softmax_max.steps = plan.softmax_sum.steps = steps_of_statistics(plan.layout, plan.query);
  set_workspace(plan, backward);
  return plan;
}

}  // namespace attest::vendor::ascend
