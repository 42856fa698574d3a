#include "harness/script/cpp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "harness/process/tensors.h"

namespace attest::scripts {
namespace {

std::string cpp_number(double x) {
  return std::isinf(x) ? (x < 0 ? "-INFINITY" : "INFINITY") : fmt::format("{}", x);
}

Shape shape_of(TensorName tensor, const Failure& failure) {
  for (const Crossing& each :
       outputs_of(failure.problem(), failure.is_gradient(), {TensorName::lse})) {
    if (each.name == tensor) return each.shape;
  }
  return {};
}

// The function that tells which keys are seen; empty where all are.
std::string visible_of(const Problem& p) {
  if (sees_all(p)) return "";
  if (const auto band = diagonals_of(p)) {
    std::vector<std::string> parts;
    if (band->least) parts.push_back(fmt::format("j - i >= {}", *band->least));
    if (band->most) parts.push_back(fmt::format("j - i <= {}", *band->most));
    if (parts.empty()) return "";
    return fmt::format("bool visible(int i, int j) {{ return {}; }}", fmt::join(parts, " && "));
  }
  const auto [shape, bits] = table_of(p);
  const bool alike = shape[0] * shape[1] == 1;
  return fmt::format(
      "bool visible({}int i, int j) {{ return \"{}\"[{}i * {} + j] == '1'; }}",
      alike ? "" : "int b, int h, ", bits,
      alike ? "" : fmt::format("(b * {} + h) * {} + ", shape[1], shape[2] * shape[3]), shape[3]);
}

}  // namespace

std::string cpp(const Failure& failure) {
  const Problem& p = failure.problem();
  std::vector<std::string> lines;
  const auto add = [&](std::string line) { lines.push_back(std::move(line)); };
  for (const std::string& each : failure.comment()) add("// " + each);
  for (const char* header : {"cmath", "cstdio", "vector"})
    add(fmt::format("#include <{}>", header));
  add(
      fmt::format("using Tensor = std::vector<double>;  // [batch, head, position, channel]; each "
                  "number is one of {} too",
                  name(p.dtype)));
  add("Tensor numbers(long t, long count) {");
  add("  Tensor x;");
  add("  for (long i = 0, n = 0; i < count; n = ++i % 61)");
  add("    x.push_back(((n * n + 11 * n + 29 * t) % 61 - 30) / 16.0);");
  add("  return x;");
  add("}");
  if (std::string visible = visible_of(p); !visible.empty()) add(std::move(visible));
  std::vector<std::string> numbers;
  if (p.bias_shape) {
    for (const double x : bias_of(failure.test_case)) numbers.push_back(cpp_number(x));
    add(fmt::format("const Tensor bias = {{{}}};  // [{}]", fmt::join(numbers, ", "),
                    fmt::join(*p.bias_shape, ", ")));
  }
  const std::string d_o = failure.is_gradient() ? ", const Tensor& d_o" : "";
  add(fmt::format("// Your kernel: {} with a scale of {}{}", name(failure.tensor), p.scale,
                  p.softcap != 0 ? fmt::format(" and a softcap of {}", p.softcap) : ""));
  add(fmt::format("Tensor kernel(const Tensor& q, const Tensor& k, const Tensor& v{});", d_o));
  add("int main() {");
  std::vector<std::string> given;
  const auto tensor = [&](const char* name, Index t, const Shape& shape) {
    add(fmt::format("  const Tensor {} = numbers({}, {});  // [{}]", name, t, element_count(shape),
                    fmt::join(shape, ", ")));
    given.emplace_back(name);
  };
  tensor("q", 0, p.q_shape());
  tensor("k", 1, p.k_shape());
  tensor("v", 2, p.v_shape());
  if (failure.is_gradient()) tensor("d_o", 3, p.o_shape());
  const Shape shape = shape_of(failure.tensor, failure);
  const auto& at = failure.worst.worst;
  add(fmt::format("  const double actual = kernel({})[{}];", fmt::join(given, ", "),
                  dense_index(shape, at[0], at[1], at[2], at[3])));
  add(fmt::format("  const double exact = {}, bound = {:.3g};  // of the arithmetic declared",
                  cpp_number(failure.worst.exact), failure.worst.bound));
  add(
      fmt::format("  std::printf(\"{}[{}] = %g, exact %g, at most %g away\\n\", actual, exact, "
                  "bound);",
                  name(failure.tensor), failure.element()));
  add("  return actual == exact || std::abs(actual - exact) <= bound ? 0 : 1;");
  add("}");
  return text_of(lines);
}

}  // namespace attest::scripts
