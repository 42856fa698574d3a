#include "harness/run/beyond.h"

#include <algorithm>
#include <string_view>

#include "spec/arithmetic.h"
#include "spec/contains.h"
#include "spec/dialect.h"

namespace attest {

std::vector<std::string> declared_beyond_default(const TesteeRecord& testee,
                                                 const std::string& dtype, const Profile& profile) {
  const auto format = dtype_named(dtype);
  if (!format) return {};
  const auto declared = testee.arithmetic.find(dtype);
  Arithmetic arithmetic = declared == testee.arithmetic.end()
                              ? loosest(*format)
                              : parse_arithmetic(*declared, *format, "/arithmetic/" + dtype);
  const Dialect dialect = parse_dialect(testee.dialect);
  arithmetic.lse = dialect.lse;
  const bool of_gradients =
      std::any_of(profile.clauses.begin(), profile.clauses.end(),
                  [](std::string_view clause) { return clause.starts_with("GRAD-"); });
  if (!of_gradients) {
    arithmetic.gradient_block = 0;
    arithmetic.rounds_head_gradients = arithmetic.rounds_dbias_terms = false;
  }
  std::vector<std::string> words = beyond_default(arithmetic);
  const std::string windows = to_string(dialect.window);
  if (!windows.empty() && contains(profile.clauses, "MASK-4"))
    words.push_back("windows " + windows);
  return words;
}

}  // namespace attest
