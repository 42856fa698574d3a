#include "harness/judge/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attest {
namespace {

std::string at(const Shape& shape, std::size_t element) {
  return fmt::format("[{}]", fmt::join(coordinates(shape, static_cast<Index>(element)), ","));
}

bool is_unwritten(const Returned& a, const Returned& b, std::size_t element) {
  return a.bits[element] == a.poison && b.bits[element] == b.poison;
}

// What a testee itself calls it: LSE is missing where one of those is that stand for it.
TensorName missing_of(TensorName tensor, const Trial& first, const Trial& second,
                      std::size_t element) {
  if (tensor != TensorName::lse) return tensor;
  for (std::size_t t = 0; t < first.statistics.size(); ++t) {
    if (is_unwritten(first.statistics[t], second.statistics[t], element)) {
      return first.statistics[t].name;
    }
  }
  return tensor;
}

}  // namespace

std::optional<Finding> check_written(const Trial& first, const Trial& second,
                                     const Exemptions& exemptions) {
  for (std::size_t t = 0; t < first.returned.size(); ++t) {
    const Returned& a = first.returned[t];
    const Returned& b = second.returned[t];
    for (std::size_t i = 0; i < a.bits.size(); ++i) {
      if (!is_unwritten(a, b, i) || exemptions.may_be_unwritten(a.name, a.shape, i)) continue;
      const TensorName missing = missing_of(a.name, first, second, i);
      return failure("unwritten",
                     fmt::format("{}{} was never written", name(missing), at(a.shape, i)));
    }
  }
  return std::nullopt;
}

std::optional<Finding> check_whole(const Subject& subject, const Trial& first,
                                   const Trial& second) {
  if (auto finding = check_written(first, second, subject.exemptions)) return finding;
  if (!first.keep) return std::nullopt;
  return check_keep(subject.problem(), subject.prepared.inputs(), subject.testee.keep_quantum,
                    *first.keep, *second.keep);
}

std::optional<std::string> difference(const Returned& a, const Returned& b,
                                      const Exemptions& exemptions) {
  for (std::size_t i = 0; i < a.bits.size(); ++i) {
    if (a.bits[i] == b.bits[i] || exemptions.may_be_unwritten(a.name, a.shape, i)) continue;
    return fmt::format("{}{} was {} and then {}", name(a.name), at(a.shape, i),
                       decode(a.dtype, a.bits[i]), decode(b.dtype, b.bits[i]));
  }
  return std::nullopt;
}

std::optional<std::string> difference(const Trial& first, const Trial& second,
                                      const Exemptions& exemptions) {
  for (std::size_t t = 0; t < first.returned.size(); ++t) {
    if (auto where = difference(first.returned[t], second.returned[t], exemptions)) return where;
  }
  for (std::size_t t = 0; t < first.statistics.size(); ++t) {
    const Returned &a = first.statistics[t], &b = second.statistics[t];
    if (auto where = difference(a, b, exemptions)) return where;
  }
  return std::nullopt;
}

}  // namespace attest
