#include "harness/vectors/problem_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "harness/process/problem_tables.h"
#include "harness/process/wire.h"

namespace attest {
namespace {

using nlohmann::json;

json tensor_json(const std::string& name, std::string_view dtype, const Shape& shape) {
  return {{"file", name + ".npy"}, {"dtype", dtype}, {"shape", shape}};
}

void add(json& tensors, const std::vector<Crossing>& crossing) {
  for (const Crossing& t : crossing) {
    const std::string wire = wire_name(t.name);
    tensors[wire] = tensor_json(wire, name(t.dtype), t.shape);
  }
}

}  // namespace

std::vector<Crossing> outputs_wanted(const Problem& problem, const Description& testee) {
  std::vector<Crossing> all = outputs_of(problem, false, testee.statistics_in(problem.dtype));
  if (!problem.backward) return all;
  const std::vector<Crossing> gradients = outputs_of(problem, true, {});
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

json problem_json(const Case& test_case, const Description& testee) {
  const Problem& p = test_case.problem;
  const std::string keep = wire_name(TensorName::keep);
  json inputs = json::object(), outputs = json::object();
  for_each_table(p, [&](const std::string& name, const Shape& shape, const auto& numbers) {
    using Number = std::decay_t<decltype(numbers.front())>;
    inputs[name] = tensor_json(name,
                               sizeof(Number) == 8   ? "i64"
                               : sizeof(Number) == 4 ? "i32"
                                                     : "u8",
                               shape);
  });
  add(inputs, inputs_of(p, p.backward));
  add(outputs, outputs_wanted(p, testee));
  if (p.dropout.mode != Dropout::Mode::none) {
    const bool given = p.dropout.mode == Dropout::Mode::given;
    (given ? inputs : outputs)[keep] = tensor_json(keep, "u8", p.keep_shape());
  }
  return {{"case", test_case.id},
          {"because", test_case.because},
          {"clauses", test_case.clauses},
          {"problem", problem_to_json(p, testee.dialect.window)},
          {"inputs", inputs},
          {"outputs", outputs}};
}

}  // namespace attest
