// What a probe tells of the bundled kernels, held to their code in impl/; of mutants, which say one
// thing and do another; and what becomes of it: a declaration that nobody has adopted.
#include "harness/probe/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/probe/declaration.h"
#include "harness/probe/questions.h"
#include "harness/process/testee.h"
#include "harness/process/worker.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::Field;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

Testee testee_of(const std::string& plugin, const std::string& kernel) {
  const Installation installation = {.worker = WORKER, .plugins = {}, .cases = {}};
  return find_testees({plugin + ":" + kernel}, installation, {}, {}).at(0);
}

Probed probed_by(const Testee& testee, const std::vector<DType>& formats) {
  WorkerExecutor executor(worker_options(testee, {}, {}));
  return probe(testee, executor, {.formats = formats});
}

const Answer& answer_of(const Probed& probed, const std::string& key) {
  for (const Answer& answer : probed.answers) {
    if (answer.key == key) return answer;
  }
  static const Answer kNone = untold("", "no such key");
  return kNone;
}

// What the code of a bundled kernel does otherwise than its siblings'.
struct Bundled {
  const char *plugin, *kernel;
  std::vector<DType> formats = {kDTypes.begin(), kDTypes.end()};
  const char* p_normalised = "last";
  int splits_with_4_threads = 1;
  bool rescales = false;
  bool thread_invariant = true, batch_invariant = true;
  const char* growth = "linear";
  bool rounds = false;  // P and dS to bf16
  const char* subnormals = "kept";
};

std::map<std::string, json> expected_of(const Bundled& kernel) {
  std::map<std::string, json> all = {{"lse.base", "e"},
                                     {"lse.as", "lse"},
                                     {"window.said_by", "ends"},
                                     {"window.left", "inclusive"},
                                     {"window.right", "inclusive"},
                                     {"window.unbounded", "none"},
                                     {"empty_rows.o", 0.0},
                                     {"empty_rows.lse", "-inf"},
                                     {"threads", true},
                                     {"leaves_padding_unwritten", false},
                                     {"schedule", "reported"},
                                     {"keep_quantum", 0.0},
                                     {"memory.growth", kernel.growth},
                                     {"causal top_left", "top_left"},
                                     {"causal bottom_right", "bottom_right"},
                                     {"place of the softcap", "scale, cap, bias"},
                                     {"NaN behind a mask", "stays hidden"},
                                     {"NaN behind a table", "stays hidden"},
                                     {"NaN beyond a length", "stays hidden"},
                                     {"NaN behind a bias of -inf", "stays hidden"},
                                     {"a scale of 0", "right"},
                                     {"a negative scale", "right"}};
  for (const std::string& feature : known_features()) all["features." + feature] = true;
  for (const char* term : {"batch", "query_heads", "group", "head_dim", "query_len", "key_len",
                           "page_size", "mask_offset", "layouts", "masks", "bias_axes", "lengths",
                           "backward.head_dim", "backward.query_len", "backward.key_len"}) {
    all[std::string("limits.") + term] = "none";
  }
  for (const DType dtype : kernel.formats) {
    const std::string wide(name(dtype == DType::f64 ? DType::f64 : DType::f32));
    const auto add = [&](const std::string& key, const json& value) {
      all["arithmetic." + std::string(name(dtype)) + "." + key] = value;
    };
    for (const char* product : {"qk", "pv", "dp", "dv", "dq", "dk"}) {
      const std::string key = std::string("products.") + product;
      add(key + ".accumulator", wide);
      add(key + ".truncates", false);
      add(key + ".operands", "exact");
    }
    add("softmax", wide);
    add("exp_ulp", 0.0);
    add("tanh_ulp", 0.0);
    add("exp_zero", "exact");
    add("p", kernel.rounds ? "bf16" : wide);
    add("ds", kernel.rounds ? "bf16" : wide);
    add("p_normalised", kernel.p_normalised);
    add("p_rounding", "nearest");
    add("row_sum", "p");
    add("rescales_output", kernel.rescales);
    add("kv_splits", kernel.splits_with_4_threads);
    add("max_rounding", "exact");
    add("ds_scaled", "after_rounding");
    add("ds_from", "p");
    add("gradient_block", 0);
    add("grouped_gradients", "wide");
    add("dbias_terms", "wide");
    add("subnormal_inputs", kernel.subnormals);
    add("output_rounding", "nearest");
    add("deterministic", true);
    add("thread_invariant", kernel.thread_invariant);
    add("batch_invariant", kernel.batch_invariant);
  }
  return all;
}

const std::vector<Bundled>& bundled() {
  static const std::vector<Bundled> kBundled = {
      {.plugin = "naive.so", .kernel = "naive", .p_normalised = "first", .growth = "quadratic"},
      {.plugin = "naive.so",
       .kernel = "naive/textbook",
       .p_normalised = "first",
       .growth = "quadratic"},
      {.plugin = "fa2.so", .kernel = "fa2"},
      {.plugin = "fa2.so", .kernel = "fa2/sse4"},
      {.plugin = "lazy_mask.so", .kernel = "lazy_mask"},
      {.plugin = "lazy_mask.so", .kernel = "lazy_mask/dense", .growth = "quadratic"},
      {.plugin = "causal_balanced.so",
       .kernel = "causal_balanced",
       .thread_invariant = false,
       .batch_invariant = false},
      // With one thread a head is not split, and with four into four parts.
      {.plugin = "fa1_split_kv.so",
       .kernel = "fa1_split_kv",
       .splits_with_4_threads = 4,
       .rescales = true,
       .thread_invariant = false,
       .batch_invariant = false}};
  return kBundled;
}

TEST(ProbeTest, TellsNothingWrongOfBundledKernels) {
  for (const Bundled& kernel : bundled()) {
    const Testee testee = testee_of(std::string(BUNDLED) + "/" + kernel.plugin, kernel.kernel);
    const Probed probed = probed_by(testee, {});
    EXPECT_EQ(probed.formats, kernel.formats) << kernel.kernel;
    int wrong = 0;
    for (const auto& [key, value] : expected_of(kernel)) {
      const Answer& answer = answer_of(probed, key);
      wrong += answer.told() && answer.value != value;
      EXPECT_TRUE(!answer.told() || answer.value == value)
          << kernel.kernel << ": " << key << " is told as " << answer.value << ", and is " << value
          << "\n  " << answer.words << "\n  " << answer.inputs;
    }
    const KeysTold keys = keys_told(probed.answers);
    EXPECT_GE(keys.told, 0.8 * keys.of) << kernel.kernel;
    EXPECT_THAT(contradictions(testee.description, probed.answers), IsEmpty()) << kernel.kernel;
    std::printf("%-20s told %d of %d, wrong %d\n", kernel.kernel, keys.told, keys.of, wrong);
    std::fflush(stdout);
  }
}

// A mutant does in one place something else than it declares.
TEST(ProbeTest, TellsWhatMutantsDoInstead) {
  const struct {
    const char *mutant, *key, *seen;
  } kMutants[] = {{"top_left", "causal bottom_right", "top_left"},
                  {"window_exclusive", "window.left", "exclusive"},
                  {"lse_plus_inf", "empty_rows.lse", "inf"}};
  for (const auto& each : kMutants) {
    const Testee testee = testee_of(MUTANTS, std::string("mutant/") + each.mutant);
    const Probed probed = probed_by(testee, {DType::f32});
    EXPECT_EQ(answer_of(probed, each.key).value, each.seen) << each.mutant;
    EXPECT_THAT(contradictions(testee.description, probed.answers),
                Contains(Field(&Contradiction::key, each.key)))
        << each.mutant;
  }
}

// A byte for each row and key behind what grows slower, as two machines measured it: at the first
// lengths alone it looked linear on one of them. Beside it, bytes measured of fa2.
TEST(ProbeTest, TellsHowMemoryGrowsWhereItCanBeTold) {
  const std::vector<double> pairs = {3.756e5, 8.397e5, 1.876e6};
  EXPECT_EQ(growth_of(pairs), std::nullopt);
  const std::vector<double> longer = {3.756e5, 8.397e5, 1.876e6, 5.546e6};
  EXPECT_EQ(growth_of(longer), Growth::quadratic);
  const std::vector<double> rows = {3.1e5, 5.652e5, 8.274e5, 1.352e6, 2.4e6};
  EXPECT_EQ(growth_of(rows), Growth::linear);
  const std::vector<double> tiles = {3.1e5, 3.1e5, 3.2e5, 3.1e5};
  EXPECT_EQ(growth_of(tiles), Growth::constant);
}

// What it writes is a declaration: of kernels that say something of themselves, with as much in it.
TEST(ProbeTest, WritesADeclarationThatNobodyHasAdopted) {
  const Testee testee = testee_of(std::string(BUNDLED) + "/fa2.so", "fa2");
  std::vector<std::string> left_out;
  const Description told =
      parse_description(declaration_of(testee, probed_by(testee, {DType::f32}), left_out));
  EXPECT_TRUE(told.probed);
  EXPECT_THAT(told.profiles, IsEmpty());
  EXPECT_THAT(left_out, IsEmpty());
  EXPECT_TRUE(told.limits.empty());
  EXPECT_EQ(told.dtypes, std::vector<DType>{DType::f32});
  std::vector<std::string> declared = testee.description.features;
  std::erase(declared, "new-shapes");  // which is no question of what is computed
  EXPECT_THAT(told.features, UnorderedElementsAreArray(declared));
  const Arithmetic& seen = told.arithmetic.at(DType::f32);
  EXPECT_EQ(seen.pv, testee.description.arithmetic.at(DType::f32).pv);
  EXPECT_EQ(seen.p_normalised, Choice::last);
  EXPECT_TRUE(seen.deterministic);
}

}  // namespace
}  // namespace attest
