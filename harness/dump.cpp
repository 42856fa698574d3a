#include "harness/dump.h"

#include <fmt/format.h>

#include <fstream>

#include "harness/npy.h"
#include "harness/wire.h"
#include "spec/json_reader.h"
#include "spec/record.h"

namespace attest {
namespace {

void dump_tables(const std::filesystem::path& folder, const Mask& mask, int& tables) {
  if (mask.table) {
    const std::vector<std::uint64_t> bits(mask.table->allowed.begin(), mask.table->allowed.end());
    write_npy_bits(folder / fmt::format("mask{}.npy", tables++), mask.table->shape, 1, bits);
  }
  for (const Mask& part : mask.parts) dump_tables(folder, part, tables);
}

}  // namespace

void dump(const std::filesystem::path& folder, PreparedCase& prepared, const Arithmetic& arithmetic,
          const Examination& examination) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw InputError(
        "", fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  const Case& test_case = prepared.test_case();
  nlohmann::json problem = problem_to_json(test_case.problem);
  problem["key_lens"] = test_case.problem.key_lens;
  problem["query_lens"] = test_case.problem.query_lens;
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [tensor, e] : examination.verdict.tensors) {
    tensors[tensor] = {{"max_ratio", number_to_json(e.max_ratio)},
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
                                {"outcome", name(examination.verdict.outcome)},
                                {"reason", examination.verdict.reason},
                                {"message", examination.verdict.message},
                                {"tensors", tensors}};
  std::ofstream out(folder / "problem.json");
  out << about.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!out.flush())
    throw InputError("", fmt::format("cannot write {}", (folder / "problem.json").string()));

  const Inputs& in = prepared.inputs();
  write_npy(folder / "q.npy", in.q.shape, in.q.data);
  write_npy(folder / "k.npy", in.k.shape, in.k.data);
  write_npy(folder / "v.npy", in.v.shape, in.v.data);
  if (test_case.problem.backward) write_npy(folder / "d_o.npy", in.d_o.shape, in.d_o.data);
  int tables = 0;
  dump_tables(folder, test_case.problem.mask, tables);

  for (const Returned& tensor : examination.returned) {
    std::vector<double> values(tensor.bits.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = decode(tensor.dtype, tensor.bits[i]);
    write_npy(folder / (tensor.name + ".npy"), tensor.shape, values);
    const Expected& expected = expected_of(tensor.name, prepared, arithmetic);
    write_npy(folder / (tensor.name + ".exact.npy"), tensor.shape, expected.value);
    write_npy(folder / (tensor.name + ".bound.npy"), tensor.shape, expected.bound);
  }
}

}  // namespace attest
