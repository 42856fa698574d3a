// What a probe tells of the legitimate kernels, held to their code: to what tests/bounds/kernel.cpp
// does under a style, not to what its plug-in declares. No answer may be wrong; and at least four
// fifths of the keys are told. A sample of them; with ATTEST_PROBE_ALL all, in all formats, which
// takes minutes; with ATTEST_PROBE those whose names have that in them.
#include "harness/probe/probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>
#include <set>

#include "harness/probe/declaration.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "spec/contains.h"
#include "tests/legitimate/plugin.h"
#include "tests/legitimate/styles.h"

namespace attest {
namespace {

using bounds::Error;
using bounds::Order;
using bounds::Style;
using legitimate::in_format;
using nlohmann::json;

// What a probe may answer of a key. A number may be less by so much: of what is seen in steps, or
// from below.
struct Expected {
  std::vector<json> values;
  double below = 0;
};
using Expectations = std::map<std::string, Expected>;

bool is_right(const json& told, const Expected& expected) {
  for (const json& value : expected.values) {
    if (told == value) return true;
    const bool numbers = told.is_number() && value.is_number();
    if (numbers && told <= value && told.get<double>() >= value.get<double>() - expected.below) {
      return true;
    }
  }
  return false;
}

const char* either(bool first, const char* a, const char* b) { return first ? a : b; }

Expectations of_format(const Style& given, DType dtype) {
  const Style style = in_format(given, dtype);
  const Arithmetic arithmetic = bounds::declared(style, dtype);
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const double ulp = 2 * unit_roundoff(wide);
  const bool narrow = dtype != wide, narrows = narrow && style.narrows;
  const std::string narrowed(name(narrows ? dtype : wide)), f64 = "f64";
  const std::string prefix = "arithmetic." + std::string(name(dtype)) + ".";
  Expectations all;
  const auto add = [&](const std::string& key, std::vector<json> values, double below = 0) {
    all[prefix + key] = {std::move(values), below};
  };
  const char* const products[] = {"qk", "pv", "dp", "dv", "dq", "dk"};
  for (int n = 0; n < 6; ++n) {
    const std::string key = std::string("products.") + products[n];
    const bool rounds = style.operand_digits > 0 && (style.rounded_products >> n & 1);
    // With one key a step there is one product to a sum, and steps are added by the processor.
    const bool adds_steps = n == 1 && style.block == 1;
    const bool wider = style.order == Order::wide && !adds_steps;
    add(key + ".accumulator", {wider ? f64 : std::string(name(wide))});
    add(key + ".truncates", {bounds::truncates(style.order) && !adds_steps});
    add(key + ".operands",
        {!rounds ? "exact" : either(style.operand_digits == 11, "tf32", "bf16")});
  }
  add("softmax", {std::string(name(wide))});
  add("scores", {std::string(name(narrow && style.stores_scores ? dtype : wide))});
  add("exp_ulp", {arithmetic.exp_error / ulp + 0.25}, arithmetic.exp_error / ulp + 0.25);
  add("tanh_ulp", {arithmetic.tanh_error / ulp + 0.25}, arithmetic.tanh_error / ulp + 0.25);
  // An error that is put in by a hash of the argument may be none at 0.
  add("exp_zero",
      style.exp_zero_inexact ? std::vector<json>{"inexact", "exact"} : std::vector<json>{"exact"});
  add("p", {narrowed});
  add("p_normalised", {either(style.normalises_p, "first", "last")});
  add("p_rounding", {either(narrows && style.truncates_p, "truncated", "nearest")});
  add("row_sum", {either(narrows && style.sums_narrow_p && !style.normalises_p, "rounded_p", "p")});
  const bool steps = style.block > 0;
  // Within one part, of 4096 keys, there may be one step alone.
  add("rescales_output", {style.renormalises && steps && style.block < 4096 / style.splits});
  add("kv_splits", {style.splits});
  add("key_block", {steps ? style.block : 4096 / style.splits});
  add("block_order", {either(style.any_order && steps, "any", "monotone")});
  add("max_lag", {steps ? style.lag * std::numbers::log2e : 0.0}, 0.6);
  const bool whole = style.base_2 && style.whole_maximum != Style::Whole::no &&
                     style.scale != Style::Scale::exponent;
  add("max_rounding", {either(whole, "integer", "exact")});
  add("ds", {narrowed});
  if (narrows) {
    add("ds_scaled",
        {either(style.scale_ds == Style::ScaleDs::before, "before_rounding", "after_rounding")});
    add("ds_from", {either(style.ds_from_narrow_p, "rounded_p", "p")});
  }
  if (narrow) {
    add("gradient_block", {style.gradient_block});
    // Heads begin a block of rows each.
    add("grouped_gradients",
        {either(style.rounds_head_gradients || style.gradient_block > 0, "rounded", "wide")});
    add("dbias_terms",
        {either(style.rounds_dbias_terms || (style.narrows_dbias && narrows), "rounded", "wide")});
    add("output_rounding", {either(style.truncates_output, "faithful", "nearest")});
  }
  add("subnormal_inputs", {either(style.flushes_inputs, "flushed", "kept")});
  add("subnormal_outputs", {either(style.flushes_outputs, "flushed", "kept")});
  for (const char* key : {"deterministic", "thread_invariant", "batch_invariant"}) add(key, {true});
  return all;
}

json number_of(double value) {
  return std::isinf(value) ? json(value > 0 ? "inf" : "-inf") : json(value);
}

Expectations of_style(const Style& style) {
  Expectations all = {
      {"lse.base", {{style.lse.base_2 ? json(2) : json("e")}}},
      {"lse.as", {{either(style.lse.apart, "maximum_and_sum", "lse")}}},
      {"empty_rows.o", {{number_of(style.empty_o.value_or(0))}}},
      {"window.said_by", {{either(style.window.centred, "width", "ends")}}},
      {"window.left", {{either(style.window.left_exclusive, "exclusive", "inclusive")}}},
      {"window.right", {{either(style.window.right_exclusive, "exclusive", "inclusive")}}},
      {"window.unbounded",
       {{style.window.unbounded == kUnbounded ? json("none") : json(style.window.unbounded)}}},
      {"leaves_padding_unwritten", {{false}}},
      {"threads", {{false}}},
      {"schedule", {{"none"}}},
      {"memory.growth", {{"quadratic"}}},
      {"alignment", {{2, 4, 8}}},
      {"causal top_left", {{"top_left"}}},
      {"causal bottom_right", {{"bottom_right"}}},
      {"place of the softcap", {{"scale, cap, bias"}}},
      {"a scale of 0", {{"right"}}},
      {"a negative scale", {{"right"}}},
      {"limits.square", {{false}}},
      {"limits.keys_at_least_queries", {{false}}}};
  if (!style.lse.apart) {
    all["empty_rows.lse"] = {{number_of(
        static_cast<float>(style.empty_lse.value_or(-std::numeric_limits<double>::infinity())))}};
  }
  // A step or part that sees nothing is left out; else 0 times a NaN in V is one.
  const Index hidden = 8, keys = 12;
  bool alone = style.block > 0 && hidden % style.block == 0;
  const Index parts = std::min(style.splits, keys);
  for (Index part = 1; part < parts; ++part) alone |= part * keys / parts == hidden;
  for (const char* behind : {"mask", "table", "bias of -inf"}) {
    all[std::string("NaN behind a ") + behind] = {{either(alone, "stays hidden", "leaks")}};
  }
  all["NaN beyond a length"] = {{"stays hidden"}};
  for (const std::string& feature : known_features()) {
    all["features." + feature] = {{feature != "long"}};
  }
  return all;
}

// A few of every kind of choice; each of those in a dialect.
bool is_sampled(const std::string& kernel) {
  static const std::set<std::string> kSampled = {
      "naive",
      "naive_p_normalised_exp_s_m_l_d_by_key",
      "fa2_16_exp2",
      "fa2_128_exp_2_ulp_high",
      "fa2_16_lagging_maximum",
      "fa1_16",
      "4_splits_exp2",
      "matrix_unit_of_8",
      "accumulated_wider",
      "scores_stored_masks_added_p_normalised",
      "p_and_ds_not_narrowed",
      "operands_of_11_digits_in_qk_and_dp",
      "subnormals_flushed",
      "output_truncated",
      "sums_over_rounded_p",
      "exp_of_736_units_in_16_bits",
      "p_truncated",
      "maximum_rounded_up",
      "blocks_in_any_order",
      "gradients_of_each_head_rounded",
      "terms_of_dbias_rounded",
      "gradients_stored_every_32_queries",
      "lse_0_in_empty_rows",
      "fa2_16_exp2_lse_in_base_2_of_empty_rows_1e30_o_1_windows_exclusive_on_the_left",
      "lagging_by_3_exp2_maximum_in_base_2_and_sum_0_and_1_in_empty_rows",
      "lse_in_base_2_inf_in_empty_rows_windows_exclusive",
      "3_splits_maximum_and_sum_windows_by_their_width"};
  return kSampled.contains(kernel.substr(kernel.find('/') + 1));
}

TEST(ProbeTest, TellsNothingWrongOfLegitimateKernels) {
  const bool all = std::getenv("ATTEST_PROBE_ALL") != nullptr;
  const char* const named = std::getenv("ATTEST_PROBE");
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  const auto testees = find_testees({LEGITIMATE}, installation, {}, {});
  Index probed_kernels = 0, told = 0, of = 0;
  for (const Style& style : legitimate::legitimate_styles()) {
    const std::string kernel = "legitimate/" + legitimate::name_of(style);
    if (named ? kernel.find(named) == std::string::npos : !all && !is_sampled(kernel)) continue;
    const auto testee = std::find_if(testees.begin(), testees.end(),
                                     [&](const Testee& t) { return t.kernel == kernel; });
    ASSERT_NE(testee, testees.end()) << kernel;
    WorkerExecutor executor(worker_options(*testee, {}, {}));
    ProbeOptions options;
    if (!all) options.formats = {DType::f32, DType::bf16};
    const Probed probed = probe(*testee, executor, options);
    Expectations expected = of_style(style);
    for (const DType dtype : probed.formats) expected.merge(of_format(style, dtype));
    Index wrong = 0;
    for (const Answer& answer : probed.answers) {
      const auto right = expected.find(answer.key);
      if (!answer.told() || right == expected.end()) continue;
      const bool as_expected = is_right(answer.value, right->second);
      wrong += !as_expected;
      EXPECT_TRUE(as_expected) << kernel << ": " << answer.key << " is told as " << answer.value
                               << "\n  " << answer.words << "\n  " << answer.inputs;
    }
    const KeysTold keys = keys_told(probed.answers);
    // Where exp(0) is not 1 no sum of weights is exact; and a coarse exp hides how P is rounded.
    const bool coarse = style.exp_zero_inexact || style.narrow_exp_ulps > 0;
    EXPECT_GE(keys.told, (coarse ? 0.55 : 0.8) * keys.of) << kernel;
    told += keys.told;
    of += keys.of;
    std::printf("%-62s told %d of %d, wrong %d\n", kernel.c_str(), keys.told, keys.of,
                static_cast<int>(wrong));
    std::fflush(stdout);
    ++probed_kernels;
  }
  EXPECT_GE(probed_kernels, named ? 1 : 20);
  EXPECT_GE(static_cast<double>(told), 0.8 * static_cast<double>(of));
}

}  // namespace
}  // namespace attest
