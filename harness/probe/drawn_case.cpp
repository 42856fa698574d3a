#include "harness/probe/drawn_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "cases/entry.h"
#include "cases/generate.h"
#include "harness/judge/exemptions.h"
#include "harness/judge/judge.h"
#include "harness/judge/prepared.h"
#include "spec/description_text.h"

namespace attest {

Case drawn_case(const Bench& bench, DType dtype, const nlohmann::json& fields) {
  constexpr Index kLength = 24;
  const Plain& plain = bench.plain(dtype);
  const Lengths lengths = plain.fitted(kLength, kLength);
  const bool causal = plain.mask.kind != Mask::Kind::full;
  nlohmann::json problem = {{"query_heads", plain.query_heads},
                            {"key_heads", plain.key_heads},
                            {"query_len", lengths.query},
                            {"key_len", lengths.key},
                            {"head_dim", plain.head_dim},
                            {"value_dim", plain.value_dim},
                            {"mask", causal ? to_string(plain.mask) : "full"},
                            {"layouts", plain.order}};
  if (!plain.stored.empty() && !fields.value("backward", false)) problem["stored"] = plain.stored;
  problem.update(fields);
  for (const char* length_of : {"query_len", "key_len"}) {
    const bool follows = problem.contains("packed") ||
                         (problem.contains("paging") && std::string_view(length_of) == "key_len");
    if (follows) problem.erase(length_of);
  }
  return read_entry({{"name", "probe"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A probe."},
                     {"problem", problem},
                     {"dtypes", {std::string(name(dtype))}},
                     {"data", {"normal"}}},
                    "probe");
}

namespace {

// A gradient may be of what that problem, which was not the one asked, has not.
bool belongs_to(TensorName tensor, const Problem& problem) {
  return (tensor != TensorName::dbias || has_bias(problem)) &&
         (tensor != TensorName::dsink || problem.sink);
}

std::optional<std::string> wrong_where(const Bench& bench, const Case& test_case,
                                       const Inputs& inputs, const Reaction& reaction,
                                       const std::function<bool(TensorName)>& judged) {
  const Arithmetic loose =
      description_by("anything", test_case.problem.dtype).arithmetic.at(test_case.problem.dtype);
  PreparedCase drawn(test_case, inputs, 1);
  std::optional<PreparedCase> own;
  if (reaction.trial.keep) own = drawn.with_keep(*reaction.trial.keep);
  PreparedCase& prepared = own ? *own : drawn;
  const Exemptions exemptions(prepared.problem(), prepared.inputs(), bench.terms());
  for (const Returned& tensor : reaction.trial.returned) {
    if (!judged(tensor.name) || !belongs_to(tensor.name, test_case.problem)) continue;
    Expected expected = expected_of(tensor.name, prepared, loose);
    for (std::size_t i = 0; i < expected.value.size(); ++i) {
      const auto own_number = exemptions.declared(tensor.name, tensor.shape, i);
      if (own_number) expected.value[i] = *own_number;  // of a row without keys
    }
    const TensorVerdict verdict =
        judge(tensor.bits, tensor.dtype, tensor.shape, expected, Rounding::faithful);
    if (verdict.passed) continue;
    const TensorEvidence& e = verdict.evidence;
    return fmt::format("{}[{}] = {:g}, exact {:g}", name(tensor.name), fmt::join(e.worst, ","),
                       e.actual, e.exact);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> wrong_of(const Bench& bench, const Case& test_case, const Inputs& inputs,
                                    const Reaction& reaction) {
  return wrong_where(bench, test_case, inputs, reaction, [&](TensorName tensor) {
    return tensor != TensorName::lse || bench.returns_lse();
  });
}

std::optional<std::string> wrong_in(const Bench& bench, TensorName tensor, const Case& test_case,
                                    const Inputs& inputs, const Reaction& reaction) {
  return wrong_where(bench, test_case, inputs, reaction,
                     [&](TensorName each) { return each == tensor; });
}

}  // namespace attest
