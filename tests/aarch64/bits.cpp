// Prints the numbers of all cases of the smoke tier, bit by bit: the inputs, and what the reference
// makes of them. compare.py lays what two machines print side by side.
//
//   bits CASES
//
// Of each tensor a line, "ID NAME COUNT", and then COUNT doubles as they lie in memory.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cases/generate.h"
#include "reference/working.h"

namespace attest {
namespace {

class Printer {
 public:
  explicit Printer(const Case& c) : case_(c) {}

  void print(const std::string& name, const std::vector<double>& numbers) const {
    if (numbers.empty()) return;
    fmt::print("{} {} {}\n", case_.id, name, numbers.size());
    std::fwrite(numbers.data(), sizeof(double), numbers.size(), stdout);
  }

  void print(const std::string& name, const Expected& expected) const {
    print("value:" + name, expected.value);
    print("rest:" + name, expected.rest);
    print("bound:" + name, expected.bound);
    print("recommended:" + name, expected.recommended);
  }

 private:
  const Case& case_;
};

void print_bits(const Case& c) {
  const Printer printer(c);
  Inputs in = generate(c);
  if (c.problem.dropout.mode == Dropout::Mode::generated) {  // the testee draws
    const Shape shape = c.problem.keep_shape();
    in.keep = {shape, std::vector<std::uint8_t>(static_cast<std::size_t>(element_count(shape)), 1)};
  }
  for (const TensorName tensor : kInputValues) {
    printer.print("input:" + wire_name(tensor), in[tensor].data);
  }
  printer.print("input:keep", std::vector<double>(in.keep.kept.begin(), in.keep.kept.end()));
  const Arithmetic arithmetic = loosest(c.problem.dtype);
  const ForwardExpected forward = expect_forward(c.problem, in, arithmetic);
  for (const TensorName tensor : {TensorName::o, TensorName::lse}) {
    printer.print(wire_name(tensor), forward[tensor]);
  }
  if (!c.problem.backward) return;
  const BackwardExpected backward = expect_backward(c.problem, in, arithmetic);
  for (const TensorName tensor : kGradients) printer.print(wire_name(tensor), backward[tensor]);
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bits CASES\n");
    return 2;
  }
  for (const attest::Case& c : attest::load_cases(argv[1])) {
    if (c.tier == attest::Tier::smoke && c.excerpt == 0) attest::print_bits(c);
  }
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1;
}
