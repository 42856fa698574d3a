#include "harness/command/dump.h"

#include <fmt/format.h>

#include <optional>
#include <variant>

#include "harness/process/tensors.h"
#include "harness/process/wire.h"
#include "harness/vectors/npy.h"
#include "reports/files.h"
#include "spec/json_text.h"
#include "spec/record.h"

namespace attest {
namespace {

// As they are named in problem.json.
void dump_tables(const std::filesystem::path& folder, const Mask& mask) {
  std::size_t n = 0;
  for (const MaskTable& table : tables_of(mask)) {
    const std::filesystem::path file = folder / (mask_table_name(n++) + ".npy");
    std::visit(
        [&](const auto* elements) {
          if constexpr (sizeof(elements->front()) == 1) {
            write_file(file, npy_of(table.shape, *elements));
          } else {
            write_file(file, npy_of(table.shape,
                                    std::vector<std::int64_t>(elements->begin(), elements->end())));
          }
        },
        table.elements);
  }
}

}  // namespace

void dump(const std::filesystem::path& folder, PreparedCase& shared, const nlohmann::json& entry,
          const Arithmetic& arithmetic, const Examination& examination) {
  std::optional<PreparedCase> own;
  if (examination.trial.keep) own = shared.with_keep(*examination.trial.keep);
  PreparedCase& prepared = own ? *own : shared;
  make_folder(folder);
  const Case& test_case = prepared.test_case();
  nlohmann::json problem = problem_to_json(test_case.problem);
  problem["key_lens"] = test_case.problem.key_lens;
  problem["query_lens"] = test_case.problem.query_lens;
  problem["page_table"] = test_case.problem.paging.table;
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [tensor, e] : examination.verdict.tensors) {
    tensors[std::string(name(tensor))] = {{"max_ratio", number_to_json(e.max_ratio)},
                                          {"worst", e.worst},
                                          {"actual", number_to_json(e.actual)},
                                          {"exact", number_to_json(e.exact)},
                                          {"bound", number_to_json(e.bound)}};
  }
  const nlohmann::json about = {{"case", test_case.id},
                                {"because", test_case.because},
                                {"clauses", test_case.clauses},
                                {"data", test_case.data},
                                {"problem", problem},
                                {"entry", entry},
                                {"outcome", name(examination.verdict.outcome)},
                                {"reason", examination.verdict.reason},
                                {"message", examination.verdict.message},
                                {"tensors", tensors}};
  write_file(folder / "problem.json", json_text(about, 2) + "\n");

  const Inputs& in = prepared.inputs();
  for (const TensorName input : kInputValues) {
    const Values& values = in[input];
    if (values.data.empty() && values.shape == Shape{}) continue;
    write_file(folder / (wire_name(input) + ".npy"), npy_of(values.shape, values.data));
  }
  if (test_case.problem.dropout.mode != Dropout::Mode::none) {
    write_file(folder / (wire_name(TensorName::keep) + ".npy"),
               npy_of(in.keep.shape, in.keep.kept));
  }
  dump_tables(folder, test_case.problem.mask);

  const auto dump_returned = [&](const Returned& tensor, std::string_view file) {
    std::vector<double> values(tensor.bits.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = decode(tensor.dtype, tensor.bits[i]);
    write_file(folder / fmt::format("{}.npy", file), npy_of(tensor.shape, values));
  };
  for (const Returned& tensor : examination.trial.returned) {
    dump_returned(tensor, name(tensor.name));
  }
  for (const Returned& tensor : examination.trial.statistics) {
    const bool lse = tensor.name == TensorName::lse;
    dump_returned(tensor, lse ? "LSE.base2" : name(tensor.name));
  }
  // Whatever came back. What a testee was to draw itself is not known if it did not.
  const Dropout::Mode dropout = test_case.problem.dropout.mode;
  if (dropout == Dropout::Mode::generated && !examination.trial.keep) return;
  for (const bool backward : {false, true}) {
    if (backward && !test_case.problem.backward) continue;
    for (const Crossing& tensor : outputs_of(test_case.problem, backward, {TensorName::lse})) {
      const Expected& expected = expected_of(tensor.name, prepared, arithmetic);
      const std::string_view file = name(tensor.name);
      write_file(folder / fmt::format("{}.exact.npy", file), npy_of(tensor.shape, expected.value));
      write_file(folder / fmt::format("{}.bound.npy", file), npy_of(tensor.shape, expected.bound));
    }
  }
}

}  // namespace attest
