// tests right|wrong|known: the tests of one kernel of the library.
#include <attest/attest_gmock.h>
#include <attest/attest_gtest.h>

#include <fstream>
#include <vector>

TEST(Matcher, OneKeyIsItsValue) {
  const std::vector<float> q = {1, 2}, k = {3, 4}, v = {5, 6}, o = v;
  const attest_tensor tq = attest::tensor_of(q.data(), {1, 1, 1, 2});
  const attest_tensor tk = attest::tensor_of(k.data(), {1, 1, 1, 2});
  const attest_tensor tv = attest::tensor_of(v.data(), {1, 1, 1, 2});
  const attest_tensor to = attest::tensor_of(o.data(), {1, 1, 1, 2});
  const attest_problem problem = attest::problem_of(tq, tk, tv);
  EXPECT_THAT(to, attest::MatchesAttention(problem, tq, tk, tv, "exact-f32"));
  EXPECT_THAT(tk, testing::Not(attest::MatchesAttention(problem, tq, tk, tv, "exact-f32")));
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string which = argv[1];
  attest::ConformanceOptions options;
  if (which == "known") {
    options.known = testing::TempDir() + "attest_known.json";
    options.cases = {"mask/causal/square", "lse/lse/base"};
    std::ofstream(options.known)
        << R"([{"case": "mask/causal/square", "outcome": "FAIL", "reason": "bound"}])";
  }
  attest::RegisterConformance(MINE ":" + (which == "known" ? "wrong" : which), options);
  return RUN_ALL_TESTS();
}
