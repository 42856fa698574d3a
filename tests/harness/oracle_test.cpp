// The oracle for outputs that are there already, by its C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "cases/entry.h"
#include "cases/generate.h"
#include "harness/judge/prepared.h"
#include "harness/oracle/given.h"
#include "tests/harness/oracle_given.h"
#include "tests/reference/random_problem.h"

namespace attest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Case a_case(const nlohmann::json& problem = nlohmann::json::object(),
            const std::string& dtype = "f32") {
  nlohmann::json whole = {{"query_heads", 4}, {"key_heads", 2}, {"query_len", 9},
                          {"key_len", 13},    {"head_dim", 8},  {"mask", "causal bottom_right"}};
  whole.update(problem);
  return read_entry({{"name", "a"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A test."},
                     {"problem", whole},
                     {"data", {"normal"}},
                     {"dtypes", {dtype}},
                     {"bits", "oracle"}},
                    "oracle");
}

OracleCall call_of(const Case& c) { return OracleCall(c.problem, generate(c, 1)); }

Problem without_mask(Problem p) {
  p.mask = Mask::full();
  return p;
}

// The contract has no combination of nothing.
bool has_nodes(const Mask& mask) {
  const bool combines = mask.kind == Mask::Kind::all_of || mask.kind == Mask::Kind::any_of;
  return !(combines && mask.parts.empty()) &&
         std::all_of(mask.parts.begin(), mask.parts.end(), has_nodes);
}

RC_GTEST_PROP(OracleTest, ReadsAndPassesWhatIsExact, (const RandomProblem<4>& random)) {
  const Problem& p = random.problem;
  RC_PRE(has_nodes(p.mask));
  const OracleCall call(p, random.inputs);
  const Given given = read_given(call.host.get(), &call.inputs, &call.outputs);
  RC_ASSERT(to_string(without_mask(given.problem)) == to_string(without_mask(p)));
  for (Index at = 0; at < element_count(p.keep_shape()); ++at) {
    const auto [b, h, i, j] = coordinates(p.keep_shape(), at);
    const Position position = {b, h, i, j};
    RC_ASSERT(visible(given.problem, position) == visible(p, position));
  }
  for (const TensorName tensor : kInputValues) {
    if (p.backward || !is_among(tensor, std::array{TensorName::d_o, TensorName::d_lse})) {
      RC_ASSERT(given.inputs[tensor].data == random.inputs[tensor].data);
    }
  }
  const nlohmann::json verdict = call.judge();
  RC_ASSERT(!verdict.contains("error"));
  RC_ASSERT(verdict["outcome"] != "FAIL");
  for (const auto& [name, tensor] : verdict["tensors"].items()) {
    RC_ASSERT(tensor["compared"].get<Index>() + tensor["unspecified"].get<Index>() ==
              tensor["elements"].get<Index>());
  }
}

TEST(OracleTest, TellsTheWorstElementItsClauseAndWhatWasMeant) {
  const Case right = a_case(), wrong = a_case({{"mask", "causal"}});
  OracleCall call = call_of(right);
  const Inputs in = generate(right, 1);
  call.o.set(
      {wrong.problem.o_shape(), expect_forward(wrong.problem, in, loosest(DType::f32)).o.value});
  call.lse.set({wrong.problem.lse_shape(),
                expect_forward(wrong.problem, in, loosest(DType::f32)).lse.value});
  const nlohmann::json verdict = call.judge();
  EXPECT_EQ(verdict["passed"], false);
  EXPECT_EQ(verdict["outcome"], "FAIL");
  EXPECT_EQ(verdict["blamed"], "MASK-3");
  EXPECT_EQ(verdict["title"], "causal, bottom right, and with any offset");
  EXPECT_THAT(verdict["did_you_mean"].get<std::string>(),
              HasSubstr("a diagonal at the top left (MASK-3)"));
  EXPECT_EQ(verdict["sampled"], "");
  EXPECT_EQ(verdict["tensors"]["O"]["worst"].size(), 4u);
  EXPECT_GT(verdict["tensors"]["O"]["max_ratio"], 1.0);
}

// Where each weight may be off by more than its share, nothing is told, whatever O is.
TEST(OracleTest, DoesNotPassWhereZerosWouldPass) {
  for (const Index keys : {512, 16384}) {
    const Case c = a_case({{"query_len", 4}, {"key_len", keys}, {"mask", "full"}}, "f16");
    for (const bool zeros : {false, true}) {
      OracleCall call = call_of(c);
      call.options.arithmetic = "gpu-16bit";
      if (zeros) call.o.set(attest::zeros(c.problem.o_shape()));
      const nlohmann::json verdict = call.judge();
      EXPECT_EQ(verdict["outcome"], keys > 512 ? "INCONCLUSIVE" : zeros ? "FAIL" : "PASS") << keys;
      if (keys > 512) {
        EXPECT_THAT(verdict["message"].get<std::string>(), HasSubstr("zeros would pass"));
      }
    }
  }
}

// Nor of one batch element beside others that tell, nor of gradients.
TEST(OracleTest, DoesNotPassABatchElementOrAGradientOfWhichZerosWouldPass) {
  const Case lengths = a_case({{"batch", 2},
                               {"query_len", 1},
                               {"key_len", 16384},
                               {"mask", "full"},
                               {"key_lens", {40, 16384}}},
                              "f16");
  OracleCall forward = call_of(lengths);
  forward.options.arithmetic = "gpu-16bit";
  EXPECT_THAT(forward.judge()["message"].get<std::string>(),
              HasSubstr("zeros would pass for O of batch element 1 too"));
  const Case backward =
      a_case({{"query_len", 16}, {"key_len", 8192}, {"mask", "full"}, {"backward", true}}, "f16");
  OracleCall call = call_of(backward);
  call.options.arithmetic = "gpu-16bit";
  call.outputs.o = call.outputs.lse = {};
  EXPECT_THAT(call.judge()["message"].get<std::string>(), HasSubstr("zeros would pass for dQ"));
  // What is zero by itself tells no less.
  const Case one_key = a_case({{"key_len", 1}, {"mask", "full"}, {"backward", true}}, "f16");
  EXPECT_EQ(call_of(one_key).judge()["outcome"], "PASS");
}

TEST(OracleTest, NamesADeclarationThatWouldAdmitIt) {
  const Case c = a_case({{"key_heads", 1}, {"backward", true}, {"mask", "full"}}, "bf16");
  const Inputs in = generate(c, 1);
  PreparedCase prepared(c, 1);
  const Arithmetic rounded = parse_arithmetic({{"grouped_gradients", "rounded"}}, DType::bf16, "");
  std::vector<double> dk = prepared.backward(rounded).dk.value;
  for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += 0.9 * prepared.backward(rounded).dk.bound[i];
  OracleCall call(c.problem, in);
  call.dk.set({c.problem.k_shape(), dk});
  call.options.arithmetic = "exact-f32";
  const auto told = call.judge();
  EXPECT_THAT(told["did_you_mean"].get<std::string>(), HasSubstr("within its bounds with "));
  EXPECT_EQ(told["blamed"], "NUM-1");
}

// Each tensor, in each format, off by ten bounds in one element.
TEST(OracleTest, FindsOneElementThatIsOff) {
  for (const DType each : kDTypes) {
    const std::string dtype(name(each));
    const Case c = a_case({{"backward", true}, {"bias", {{"axes", "hqk"}}}, {"sink", true}}, dtype);
    for (HostTensor OracleCall::*tensor :
         {&OracleCall::o, &OracleCall::lse, &OracleCall::dq, &OracleCall::dk, &OracleCall::dv,
          &OracleCall::dbias, &OracleCall::dsink}) {
      OracleCall call = call_of(c);
      call.options.arithmetic = "exact-f32";
      EXPECT_EQ(call.judge()["passed"], true) << dtype;
      std::vector<double> values = (call.*tensor).get();
      const std::size_t at = values.size() / 2;
      values[at] = values[at] * 1.5 + 0.5;
      const attest_tensor& native = (call.*tensor).tensor();
      const Shape shape = {native.shape[0], native.shape[1], native.shape[2], native.shape[3]};
      (call.*tensor).set({shape, values});
      EXPECT_EQ(call.judge()["passed"], false) << dtype;
    }
  }
}

TEST(OracleTest, CountsWhatIsUnspecified) {
  const Case c = a_case();
  Inputs in = generate(c, 1);
  in.q.at(0, 1, 3, 0) = kNaN;
  const nlohmann::json verdict = OracleCall(c.problem, in).judge();
  EXPECT_EQ(verdict["passed"], true);
  EXPECT_EQ(verdict["unspecified"], 8 + 1);
}

// The idiom of a mask that is added: the least number where a key is to be hidden. A row of nothing
// else may be anything.
void judge_least_bias(DType dtype, const char* arithmetic) {
  const std::string what = std::string(name(dtype)) + " under " + arithmetic;
  const Case c = a_case({{"mask", "full"}, {"bias", {{"axes", "hqk"}}}}, std::string(name(dtype)));
  Inputs hiding = generate(c, 1);
  const Shape& shape = *c.problem.bias_shape;
  for (std::size_t at = 0; at < hiding.bias.data.size(); ++at) {
    const auto [b, h, i, j] = coordinates(shape, static_cast<Index>(at));
    if (j > i || (h == 1 && i == 8)) hiding.bias.data[at] = -kInfinity;
  }
  const OracleCall exact(c.problem, hiding);
  Inputs least = hiding;
  for (double& bias : least.bias.data) {
    if (std::isinf(bias)) bias = -largest_finite(dtype);
  }
  OracleCall call(c.problem, least);
  call.options.arithmetic = arithmetic;
  std::vector<double> o = exact.o.get();
  call.o.set({c.problem.o_shape(), o});
  call.lse.set({c.problem.lse_shape(), exact.lse.get()});
  EXPECT_EQ(call.judge()["passed"], true) << what;
  EXPECT_EQ(call.judge()["unspecified"], 8 + 1) << what;
  o[3 * 8] = kNaN;
  call.o.set({c.problem.o_shape(), o});
  EXPECT_EQ(call.judge()["passed"], false) << what;
}

TEST(OracleTest, ABiasOfTheLeastNumberHidesItsKeyWhereTheRowSeesAnother) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const char* arithmetic : {"exact-f32", "anything"}) judge_least_bias(dtype, arithmetic);
  }
}

// A key that is not finite is no less seen for that: 0 times NaN is NaN.
TEST(OracleTest, ABiasOfTheLeastNumberHidesNoNaN) {
  const Case c = a_case({{"mask", "full"}, {"bias", {{"axes", "hqk"}}}});
  Inputs in = generate(c, 1);
  in.v.at(0, 0, 12, 3) = kNaN;
  for (std::size_t at = 12; at < in.bias.data.size(); at += 13) {
    in.bias.data[at] = std::numeric_limits<float>::lowest();
  }
  OracleCall call(c.problem, in);
  call.o.set({c.problem.o_shape(), std::vector<double>(4 * 9 * 8, kNaN)});
  EXPECT_NE(call.judge()["outcome"], "FAIL");
}

// In a row that is not drawn; of what has a sink no law is tried. Not where its scores may
// overflow, as those that are stored in f16.
TEST(OracleTest, LooksForNaNInAllOfWhatIsLarge) {
  const auto outcome = [](bool is_nan, const char* arithmetic) {
    std::vector<std::uint16_t> q(std::size_t(2) * 4 * 4096 * 64), o(q);
    std::uint16_t zero = 0, thirty = 0x4F80;
    const std::size_t row = ((1 * 4 + 2) * 4096 + 1777) * 64;
    std::fill_n(q.begin() + row, 64, thirty);
    if (is_nan) o[row + 5] = 0x7E00;
    OracleCall call = call_of(a_case(
        {{"batch", 2}, {"query_len", 0}, {"key_len", 0}, {"head_dim", 64}, {"sink", true}}, "f16"));
    call.options.arithmetic = arithmetic;
    call.host->query_len = call.host->key_len = 4096;
    const auto point = [](attest_tensor& to, std::uint16_t* data, std::size_t size) {
      const std::array<Index, 4> dense = {4 * 4096 * 64, 4096 * 64, 64, 1};
      for (std::size_t axis = 0; axis < 4; ++axis) to.stride[axis] = size > 1 ? dense[axis] : 0;
      to.data = data;
      to.capacity_bytes = size * sizeof *data;
      to.shape[2] = 4096;
    };
    point(call.inputs.q, q.data(), q.size());
    point(call.inputs.k, &thirty, 1);
    point(call.inputs.v, &zero, 1);
    point(call.outputs.o, o.data(), o.size());
    call.outputs.lse = {};
    return call.judge()["outcome"].get<std::string>();
  };
  EXPECT_EQ(outcome(false, "gpu-16bit"), "PASS");
  EXPECT_EQ(outcome(true, "gpu-16bit"), "FAIL");
  EXPECT_EQ(outcome(true, R"({"scores": "f16"})"), "PASS");
}

TEST(OracleTest, JudgesAPartOfWhatIsLargeAndSaysSo) {
  const Case c = a_case({{"batch", 2}, {"query_len", 4096}, {"key_len", 4096}, {"head_dim", 64}});
  Problem short_one = c.problem;
  short_one.query_len = short_one.key_len = 0;
  OracleCall call(short_one, {.q = zeros(short_one.q_shape()),
                              .k = zeros(short_one.k_shape()),
                              .v = zeros(short_one.v_shape())});
  // All zeros, and so is O; one number stands for every element, by strides of 0.
  call.host->query_len = call.host->key_len = 4096;
  float zero = 0;
  for (attest_tensor* tensor : {&call.inputs.q, &call.inputs.k, &call.inputs.v, &call.outputs.o}) {
    tensor->data = &zero;
    tensor->capacity_bytes = sizeof zero;
    tensor->shape[2] = 4096;
    for (std::int64_t& stride : tensor->stride) stride = 0;
  }
  call.outputs.lse = {};
  nlohmann::json verdict = call.judge();
  EXPECT_EQ(verdict["passed"], true) << verdict;
  EXPECT_THAT(verdict["sampled"].get<std::string>(),
              AllOf(StartsWith("O "), HasSubstr(" of 2097152 elements")));
}

TEST(OracleTest, LeavesPaddingOutIfAsked) {
  const Case c = a_case({{"query_lens", {5}}, {"mask", "full"}});
  OracleCall call = call_of(c);
  std::vector<double> o = call.o.get();
  o.back() = 7;
  call.o.set({c.problem.o_shape(), o});
  EXPECT_EQ(call.judge()["blamed"], "MASK-6");
  call.options.ignores_padding = 1;
  EXPECT_EQ(call.judge()["passed"], true);
}

TEST(OracleTest, TakesAWholeDescription) {
  OracleCall call = call_of(a_case());
  call.options.arithmetic = R"({"name": "k", "version": "1", "vendor": "v", "profiles": [],
      "dtypes": ["f32"], "features": ["causal", "gqa"],
      "arithmetic": {"f32": {"products": {"default": {"operands": "tf32"}}}}})";
  const nlohmann::json verdict = call.judge();
  EXPECT_EQ(verdict["passed"], true) << verdict;
  EXPECT_EQ(verdict["arithmetic"][0], "operands in tf32 of QK, PV, dO V, P dO, dS K, dS Q");
  call.options.arithmetic = R"({"products": {"default": {"operands": "tf33"}}})";
  EXPECT_THAT(call.error(), StartsWith("options.arithmetic/products/default/operands: "));
  call.options.arithmetic = "exact-f32";
  call.options.threads = -1;
  EXPECT_EQ(call.error(), "options.threads: is -1, less than 0");
}

// ---- What is not as it must be -----------------------------------------------------------------

// What is said of a call that `change` has spoilt.
std::string said_of(const std::function<void(OracleCall&)>& change) {
  OracleCall call = call_of(a_case({{"backward", true}, {"sink", true}}));
  EXPECT_THAT(call.error(), IsEmpty());
  change(call);
  return call.error();
}

TEST(OracleErrorTest, NamesTheTensorAndWhatIsWrong) {
  EXPECT_EQ(said_of([](auto& call) { call.inputs.k.shape[2] = 12; }),
            "inputs.k: has shape [1,2,12,8], expected [1,2,13,8]");
  EXPECT_EQ(said_of([](auto& call) { call.inputs.v.dtype = ATTEST_F64; }),
            "inputs.v: has dtype f64, expected f32");
  EXPECT_EQ(said_of([](auto& call) { call.outputs.lse.dtype = ATTEST_F16; }),
            "outputs.lse: has dtype f16, expected f32");
  EXPECT_EQ(said_of([](auto& call) { call.inputs.q = {}; }), "inputs.q: is missing");
  EXPECT_EQ(said_of([](auto& call) { call.outputs.dq.data = nullptr; }), "outputs.dq: has no data");
  EXPECT_EQ(said_of([](auto& call) { call.inputs.q.stride[2] = -8; }),
            "inputs.q: the stride of axis 2 is negative: -8");
  EXPECT_THAT(said_of([](auto& call) { call.inputs.q.stride[2] = 1 << 20; }),
              HasSubstr("reaches beyond its capacity of 1152 bytes"));
  EXPECT_THAT(said_of([](auto& call) { call.inputs.q.stride[1] = INT64_MAX; }),
              HasSubstr("reaches beyond its capacity"));
}

TEST(OracleErrorTest, NamesWhatOfTheProblemIsWrong) {
  EXPECT_EQ(said_of([](auto& call) { call.host->key_heads = 3; }),
            "problem: HEAD-1: 3 key heads do not divide 4 query heads");
  EXPECT_THAT(said_of([](auto& call) { call.host->batch = -1; }), StartsWith("problem.batch: "));
  EXPECT_THAT(said_of([](auto& call) { call.host->batch = INT64_MAX; }),
              StartsWith("problem.batch: "));
  EXPECT_THAT(said_of([](auto& call) { call.host->query_len = std::int64_t(1) << 39; }),
              AllOf(StartsWith("problem: SHAPE-1"), HasSubstr("too large")));
  EXPECT_THAT(said_of([](auto& call) { call.host->dtype = ATTEST_FP8_E4M3; }),
              StartsWith("problem.dtype: is 5"));
  EXPECT_THAT(said_of([](auto& call) { call.host->scale = kNaN; }), StartsWith("problem: SCORE-1"));
  EXPECT_THAT(said_of([](auto& call) { call.host->dropout = 9; }), StartsWith("problem.dropout: "));
  EXPECT_THAT(said_of([](auto& call) { call.host->has_bias = 1; }),
              StartsWith("inputs.bias: is missing"));
  EXPECT_THAT(said_of([](auto& call) { call.host->page_size = 4; }),
              StartsWith("problem.page_table: is missing"));
  EXPECT_THAT(said_of([](auto& call) { call.host->backward = 0; }),
              StartsWith("outputs.dq: is given, but problem.backward is 0"));
  EXPECT_THAT(said_of([](auto& call) { call.host->struct_size = 8; }),
              StartsWith("problem: has a struct_size of 8"));
  EXPECT_THAT(said_of([](auto& call) {
                call.outputs = {};
                call.outputs.struct_size = sizeof call.outputs;
              }),
              StartsWith("outputs: hold nothing"));
  EXPECT_THAT(said_of([](auto& call) { call.options.arithmetic = "gpu-tf16"; }),
              AllOf(StartsWith("options.arithmetic: "), HasSubstr("exact-f32, gpu-tf32")));
  EXPECT_THAT(said_of([](auto& call) { call.options.arithmetic = "gpu-16bit"; }),
              StartsWith("options.arithmetic: gpu-16bit says nothing of f32"));
}

TEST(OracleErrorTest, NamesALengthAndATableThatNoPagesCanHave) {
  OracleCall call = call_of(a_case({{"key_lens", {13}}, {"paging", {{"page_size", 4}}}}));
  EXPECT_EQ(call.error(), "");
  *static_cast<std::int64_t*>(const_cast<void*>(call.host->key_lens.data)) = INT64_MAX;
  EXPECT_THAT(call.error(), StartsWith("problem"));
  call.host->page_table.shape[1] = INT64_MIN;
  EXPECT_THAT(call.error(), AllOf(StartsWith("problem.page_table"), HasSubstr("negative size")));
}

TEST(OracleErrorTest, NamesTheNodeOfAMaskThatIsWrong) {
  const auto node = [](auto change) {
    return said_of([change](OracleCall& call) { change(call.host.nodes()[0]); });
  };
  EXPECT_THAT(node([](attest_mask& m) { m.kind = 77; }), StartsWith("problem.mask[0]: is of kind"));
  EXPECT_THAT(node([](attest_mask& m) { m.kind = ATTEST_MASK_ALL_OF; }),
              StartsWith("problem.mask[0]: has the child 0"));
  EXPECT_THAT(node([](attest_mask& m) { m.kind = ATTEST_MASK_DENSE; }),
              StartsWith("problem.mask[0].table: is missing"));
  EXPECT_THAT(node([](attest_mask& m) { m.left = -2; }), StartsWith("problem: MASK-4"));
  EXPECT_THAT(said_of([](auto& call) { call.host->mask = nullptr; }),
              StartsWith("problem.mask[0]: is NULL"));
}

// Few nodes that mean more parts than there is memory for.
TEST(OracleErrorTest, RefusesAMaskThatGrowsWithoutEnd) {
  EXPECT_THAT(said_of([](OracleCall& call) {
                auto& nodes = call.host.nodes();
                for (std::int64_t n = 0; n < 60; ++n) {
                  attest_mask both = {};
                  both.struct_size = sizeof both;
                  both.kind = n % 2 ? ATTEST_MASK_ALL_OF : ATTEST_MASK_ANY_OF;
                  both.first = both.second = n;
                  nodes.push_back(both);
                }
                call.host->mask = nodes.data();
                call.host->mask_count = static_cast<std::int64_t>(nodes.size());
              }),
              HasSubstr("has more than 1024 parts"));
}

TEST(OracleErrorTest, RefusesNumbersThatNoKernelCanTake) {
  const Case c = a_case({{"sink", true}});
  Inputs in = generate(c, 1);
  in.sink.data[2] = kNaN;
  const std::string said = [&] {
    OracleCall call = call_of(c);
    HostTensor sink(DType::f32, c.problem.sink_shape());
    sink.set(in.sink);
    call.inputs.sink = sink.tensor();
    return call.error();
  }();
  EXPECT_EQ(said, "inputs.sink: [0,2,0,0] is nan, expected a finite number");
}

// The numbers of a tensor, but where it lies and how much may be read there.
void add_numbers(attest_tensor& tensor, std::vector<std::int64_t*>& numbers,
                 std::vector<std::int32_t*>& words) {
  words.push_back(&tensor.dtype);
  for (std::int64_t& size : tensor.shape) numbers.push_back(&size);
  for (std::int64_t& stride : tensor.stride) numbers.push_back(&stride);
}

// Every field of a call that is no pointer, no size of memory, and not how many nodes there are.
std::pair<std::vector<std::int64_t*>, std::vector<std::int32_t*>> fields_of(OracleCall& call) {
  std::vector<std::int64_t*> numbers;
  std::vector<std::int32_t*> words;
  attest_problem& p = *call.host.operator->();
  for (auto* each : {&p.batch, &p.query_heads, &p.key_heads, &p.query_len, &p.key_len, &p.head_dim,
                     &p.value_dim, &p.page_size}) {
    numbers.push_back(each);
  }
  for (auto* each :
       {&p.dtype, &p.backward, &p.has_bias, &p.has_alibi, &p.has_sink, &p.has_dlse, &p.dropout}) {
    words.push_back(each);
  }
  for (auto* each : {&p.query_lens, &p.key_lens, &p.cu_query_lens, &p.cu_key_lens, &p.page_table,
                     &call.inputs.q, &call.inputs.k, &call.inputs.bias, &call.inputs.keep,
                     &call.inputs.sink, &call.inputs.d_o, &call.inputs.d_lse, &call.outputs.o,
                     &call.outputs.lse, &call.outputs.dq, &call.outputs.dbias}) {
    add_numbers(*each, numbers, words);
  }
  for (attest_mask& node : call.host.nodes()) {
    for (auto* each : {&node.offset, &node.left, &node.right, &node.dilation, &node.block_query,
                       &node.block_key, &node.first, &node.second}) {
      numbers.push_back(each);
    }
    words.push_back(&node.kind);
    add_numbers(node.table, numbers, words);
    add_numbers(node.table2, numbers, words);
  }
  return {numbers, words};
}

RC_GTEST_PROP(OracleErrorTest, AnyNumberIsAVerdictOrAnError, (const RandomProblem<3>& random)) {
  RC_PRE(has_nodes(random.problem.mask));
  OracleCall call(random.problem, random.inputs);
  const auto [numbers, words] = fields_of(call);
  for (Index change = any_index(1, 3); change > 0; --change) {
    if (any_index(0, 3) > 0) {
      *any_of(numbers) = any_of<std::int64_t>({-1, 0, 1, 2, 3, 4, 7, 1 << 20, std::int64_t(1) << 39,
                                               std::int64_t(1) << 62, INT64_MIN, INT64_MAX});
    } else {
      *any_of(words) = any_of<std::int32_t>({-1, 0, 1, 2, 3, 4, 5, 16, 17, 18, 19, INT32_MAX});
    }
  }
  if (any_index(0, 3) == 0)
    call.host->scale = any_of<double>({0.0, -1.0, 1e-310, 1e300, kNaN, kInfinity});
  if (any_index(0, 3) == 0)
    call.host->softcap = any_of<double>({0.0, -1.0, 1e-310, 1e300, kNaN, kInfinity});
  RC_ASSERT(!call.judge().empty());
}

TEST(OracleErrorTest, NothingAtAllIsAnErrorToo) {
  char* text = nullptr;
  EXPECT_EQ(attest_judge(nullptr, nullptr, nullptr, nullptr, &text), ATTEST_ERROR);
  EXPECT_STREQ(text, R"({"error":{"what":"is NULL","where":"options"}})");
  attest_judge_free(text);
  attest_judge_free(nullptr);
  EXPECT_EQ(attest_judge(nullptr, nullptr, nullptr, nullptr, nullptr), ATTEST_ERROR);
}

}  // namespace
}  // namespace attest
