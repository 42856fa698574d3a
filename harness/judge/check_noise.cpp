#include "harness/judge/checks.h"

#include <fmt/format.h>

#include "harness/judge/judge.h"
#include "harness/judge/noise.h"

namespace attest {
namespace {

// What is wrong with the roundings of one trial, in words.
std::string noise_complaint(Subject& subject, const Trial& trial, PreparedCase& of_case,
                            bool record) {
  std::optional<PreparedCase> own;
  if (trial.keep) own = of_case.with_keep(*trial.keep);
  PreparedCase& prepared = own ? *own : of_case;
  if (!small_enough_for_noise(prepared.forward(subject.arithmetic).lse)) {
    std::erase(subject.verdict.clauses, "NUM-3");
    return {};
  }
  std::string complaint;
  for (const Returned& tensor : trial.returned) {
    const Shape& shape = tensor.shape;
    const double rows =
        is_of_queries(tensor.name) ? double(shape[kBatch] * shape[kHead] * shape[kPosition]) : 1;
    std::vector<double> values;
    for (const std::uint64_t bits : tensor.bits) values.push_back(decode(tensor.dtype, bits));
    const Expected& whole = expected_of(tensor.name, prepared, subject.arithmetic);
    const std::optional<Expected> part = without_exempt(subject, whole, tensor);
    const NoiseEvidence noise = noise_of(values, tensor.dtype, part ? *part : whole,
                                         spread_of(tensor.name, prepared, subject.arithmetic),
                                         rounding_of(tensor.name, subject.arithmetic), rows);
    const auto known = subject.verdict.tensors.find(tensor.name);
    if (record && known != subject.verdict.tensors.end()) known->second.noise = noise;
    if (complaint.empty()) {
      complaint = complaint_of(noise);
      if (!complaint.empty()) complaint = fmt::format("{}: {}", name(tensor.name), complaint);
    }
  }
  return complaint;
}

}  // namespace

std::optional<Finding> check_noise(Subject& subject, const Trial& first) {
  std::string complaint = noise_complaint(subject, first, subject.prepared, true);
  for (const char* again : {"/again=1", "/again=2"}) {
    if (complaint.empty()) return std::nullopt;
    Case other = subject.prepared.test_case();
    other.bits = (other.bits.empty() ? other.id : other.bits) + again;
    PreparedCase prepared(other, 1);
    const Trial trial =
        try_out(subject.calling, subject.problem(), prepared.inputs(), Placement::end_flush);
    if (trial.stopped) return trial.stopped;
    complaint = noise_complaint(subject, trial, prepared, false);
  }
  if (complaint.empty()) return std::nullopt;
  return failure("statistical", complaint + ", on three seeds", "NUM-3");
}

}  // namespace attest
