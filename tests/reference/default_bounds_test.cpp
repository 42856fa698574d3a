// Nobody is allowed more for saying nothing: the bounds of a testee that declares nothing are no
// larger than before there was anything to declare beyond the default (SPEC.md, NUM-2). The numbers
// are sums of bounds as they were then; whoever sharpens a bound may lower them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cases/entry.h"
#include "cases/generate.h"
#include "reference/working.h"

namespace attest {
namespace {

struct Known {
  const char* problem;
  const char* data;
  // Of O, LSE, dQ, dK, dV, dBias, dSink; in f32, f16, bf16.
  std::array<std::array<double, 7>, 3> sums;
};

const std::vector<Known>& known() {
  static const std::vector<Known> all = {
      {R"({"query_heads": 4, "key_heads": 2, "query_len": 17, "key_len": 40, "head_dim": 24, "value_dim": 9, "backward": true})",
       "normal",
       {{{0.033657294949, 0.00460508622549, 0.0963786855773, 0.169072256806, 0.0478785051446, 0, 0},
         {0.318906554507, 0.00459968682539, 1.19279204336, 2.18810867848, 0.316141088321, 0, 0},
         {1.93037733195, 0.00460461962099, 7.33578050897, 13.7808059571, 1.94443646926, 0, 0}}}},
      {R"({"query_len": 9, "key_len": 150, "head_dim": 16, "mask": "causal bottom_right", "backward": true})",
       "ascending",
       {{{0.0247912777791, 0.00178332559385, 1.48741785822, 0.153705354091, 0.032500504292, 0, 0},
         {0.139541268522, 0.00174335327088, 8.92672391046, 1.00245352816, 0.277089076457, 0, 0},
         {0.467986441337, 0.0018392917298, 35.6224208664, 4.31116612882, 0.476093921352, 0, 0}}}},
      {R"({"query_heads": 2, "key_heads": 1, "query_len": 12, "key_len": 33, "head_dim": 8, "softcap": 5, "bias": {"axes": "hk"}, "sink": true, "d_lse": true, "backward": true})",
       "std10",
       {{{0.257784029449, 0.0543876587921, 0.603253346944, 0.741960641365, 0.638066902603,
          0.392157126697, 0.00128562144772},
         {0.331266275099, 0.0537018711836, 1.07593503496, 1.17116422381, 0.706926914002,
          0.593489360077, 0.000361312399479},
         {0.828290515121, 0.053660846084, 2.26220390513, 2.32089584947, 1.34835321021,
          1.77957985575, 0.00443111029601}}}},
      {R"({"query_len": 20, "key_len": 20, "head_dim": 8, "mask": "window -3..0", "alibi": {"slopes": "standard"}, "dropout": {"probability": 0.25}, "backward": true})",
       "normal",
       {{{0.00248327044807, 0.000351551368374, 0.00598230854367, 0.00735308377567, 0.00368436323431,
          0, 0},
         {0.0654723876727, 0.000358232126896, 0.222052415051, 0.296195073105, 0.0622993079083, 0,
          0},
         {0.449788497578, 0.000352641100351, 2.07137083583, 3.12607888195, 0.470583106055, 0, 0}}}},
      {R"({"query_len": 5, "key_len": 1, "head_dim": 8, "backward": true})",
       "std3",
       {{{0.000336860210908, 0.000314340600605, 0.106327625757, 0.14893839241, 0.0137656510374, 0,
          0},
         {0.00985008666342, 0.000315551201645, 2.49751778342, 2.12887525395, 0.020738222582, 0, 0},
         {0.00420496995307, 0.000193614893426, 10.3029693329, 18.094255396, 0.0139087847992, 0,
          0}}}},
  };
  return all;
}

double sum_of_bounds(const Expected& expected) {
  double sum = 0;
  for (const double bound : expected.bound) sum += bound;
  return sum;
}

TEST(DefaultBoundsTest, NoneGrowsForWhoDeclaresNothing) {
  for (const Known& each : known()) {
    for (const std::size_t d : {0, 1, 2}) {
      const DType dtype = std::array{DType::f32, DType::f16, DType::bf16}[d];
      const nlohmann::json entry = {{"name", "default_bounds"},
                                    {"clauses", {"SOFTMAX-1"}},
                                    {"because", "What is allowed by default."},
                                    {"problem", nlohmann::json::parse(each.problem)},
                                    {"dtypes", {std::string(name(dtype))}},
                                    {"data", {each.data}},
                                    {"bits", "default_bounds"}};
      const Case test_case = read_entry(entry, "default_bounds");
      const Inputs inputs = generate(test_case);
      const auto forward = expect_forward(test_case.problem, inputs, loosest(dtype));
      const auto backward = expect_backward(test_case.problem, inputs, loosest(dtype));
      const std::array tensors = {&forward.o,   &forward.lse,    &backward.dq,   &backward.dk,
                                  &backward.dv, &backward.dbias, &backward.dsink};
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        EXPECT_LE(sum_of_bounds(*tensors[t]), each.sums[d][t] * (1 + 1e-9))
            << each.problem << " " << each.data << " " << name(dtype) << ", tensor " << t;
      }
    }
  }
}

}  // namespace
}  // namespace attest
