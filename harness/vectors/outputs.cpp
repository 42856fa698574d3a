#include "harness/vectors/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "harness/process/wire.h"
#include "harness/vectors/folder.h"
#include "harness/vectors/npy.h"
#include "harness/vectors/problem_json.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// No bits of a file: which elements were written, it does not tell.
constexpr std::uint64_t kNoPoison = std::numeric_limits<std::uint64_t>::max();

Finding malformed(const std::string& what) {
  return {.outcome = Outcome::protocol_error, .message = what};
}

Finding not_run(const char* reason, const std::string& why) {
  return {.outcome = Outcome::not_run, .reason = reason, .message = "not judged: " + why};
}

std::string file_of(TensorName tensor) { return wire_name(tensor) + ".npy"; }

// How NumPy calls a format.
std::string numpy_name(DType dtype) {
  const int bits = 8 * format_of(dtype).bytes;
  if (npy_kind(dtype) == 'f') return fmt::format("float{}", bits);
  return fmt::format("{}its bits as uint{}",
                     dtype == DType::bf16 ? "bfloat16 of ml_dtypes, or " : "", bits);
}

std::string type_of(const NpyArray& array) {
  const std::size_t bits = 8 * array.width;
  switch (array.kind) {
    case 'f':
      return fmt::format("float{}", bits);
    case 'i':
      return fmt::format("int{}", bits);
    case 'u':
      return fmt::format("uint{}", bits);
    case 'b':
      return "bool";
    default:
      return fmt::format("{} bytes without a type", array.width);
  }
}

// ml_dtypes writes bf16 as 2 bytes of no type.
bool is_of(const NpyArray& array, DType dtype) {
  if (array.width != static_cast<std::size_t>(format_of(dtype).bytes)) return false;
  const char kind = npy_kind(dtype);
  return array.kind == kind || (kind == 'u' && array.kind == 'V');
}

// LSE may lack its last axis, of one channel.
bool has_shape(const NpyArray& array, const Shape& shape, bool of_rows) {
  std::vector<Index> wanted(shape.begin(), shape.end());
  if (array.shape == wanted) return true;
  if (of_rows) wanted.pop_back();
  return of_rows && array.shape == wanted;
}

// Throws InputError if it is of another type or shape.
void check(TensorName name, const NpyArray& array, bool is_right, std::string_view type,
           const Shape& shape, bool of_rows) {
  if (!is_right) {
    throw InputError("",
                     fmt::format("{} holds {}, expected {}", file_of(name), type_of(array), type));
  }
  if (!has_shape(array, shape, of_rows)) {
    throw InputError("", fmt::format("{} has shape [{}], expected [{}]", file_of(name),
                                     fmt::join(array.shape, ","), fmt::join(shape, ",")));
  }
}

Returned returned_of(const Crossing& wanted, NpyArray array) {
  using enum TensorName;
  const bool of_rows = wanted.name == lse || wanted.name == maximum || wanted.name == sum;
  check(wanted.name, array, is_of(array, wanted.dtype), numpy_name(wanted.dtype), wanted.shape,
        of_rows);
  return {.name = wanted.name,
          .dtype = wanted.dtype,
          .shape = wanted.shape,
          .bits = std::move(array.bits),
          .poison = kNoPoison};
}

Keep keep_of(const Shape& shape, const NpyArray& array) {
  const bool is_flags = array.width == 1 && (array.kind == 'u' || array.kind == 'b');
  check(TensorName::keep, array, is_flags, "uint8 or bool", shape, false);
  Keep keep = {.shape = shape, .kept = {}};
  for (const std::uint64_t bits : array.bits) keep.kept.push_back(bits != 0);
  return keep;
}

// What is wrong with the inputs, the first of them; empty if all are as they were written.
std::string defect_of(const fs::path& folder, const std::vector<ProblemFile>& inputs) {
  for (const ProblemFile& input : inputs) {
    try {
      const std::size_t size = input.content.size();
      if (read_file(folder / input.name, size) == input.content) continue;
    } catch (const InputError& error) {
      return error.what();
    }
    return input.name + " is not as it was written";
  }
  return "";
}

// The same of what stands in problem.json, by which outputs are computed: the case, and its problem
// in the standard's terms or the testee's. Which outputs are wanted, its declaration says, and that
// may be another one by now.
std::string defect_of_problem(const fs::path& folder, const Case& test_case,
                              const Description& testee) {
  const nlohmann::json written = problem_json(test_case, testee);
  const std::size_t most = 4 * json_text(written, 2).size();  // however it is indented
  try {
    const auto found = nlohmann::json::parse(read_file(folder / kProblemFile, most));
    if (found.value("case", nlohmann::json()) != test_case.id) {
      return fmt::format("{} is of another case", kProblemFile);
    }
    const auto problem = found.value("problem", nlohmann::json());
    const bool same =
        problem == written["problem"] || problem == problem_to_json(test_case.problem);
    return same ? "" : fmt::format("{} is not as it was written", kProblemFile);
  } catch (const nlohmann::json::exception&) {
    return fmt::format("{} holds no problem", kProblemFile);
  } catch (const InputError& error) {
    return error.what();
  }
}

// Throws InputError that says what is wrong with the file of an output of so many elements. Of
// another type it may be larger than expected, and is told as that.
NpyArray read_output(const fs::path& file, const Shape& shape) {
  constexpr std::size_t kMostOfAHeader = 1 << 16, kMostOfAnElement = 16;
  const auto elements = static_cast<std::size_t>(element_count(shape));
  const std::string bytes = read_file(file, kMostOfAHeader + kMostOfAnElement * elements);
  try {
    return parse_npy(bytes);
  } catch (const InputError& error) {
    throw InputError("", fmt::format("{} {}", file.filename().string(), error.what()));
  }
}

// The names of the outputs that are wanted, one of which may be a keep-mask.
std::vector<std::string> names_of(const std::vector<Crossing>& wanted, bool draws) {
  std::vector<std::string> names;
  for (const Crossing& t : wanted) names.push_back(file_of(t.name));
  if (draws) names.push_back(file_of(TensorName::keep));
  return names;
}

// What is wrong with the folder, before any output is looked at.
std::optional<Finding> defect_of(const fs::path& folder, const PreparedCase& prepared,
                                 const Description& testee,
                                 const std::vector<std::string>& wanted) {
  const std::vector<ProblemFile> inputs = input_files(prepared.problem(), prepared.inputs());
  std::error_code none;
  if (!fs::is_directory(folder, none)) {
    return not_run("no_vectors", "the folder has no problem of this case");
  }
  for (const std::string& defect :
       {defect_of_problem(folder, prepared.test_case(), testee), defect_of(folder, inputs)}) {
    if (!defect.empty()) return malformed(defect);
  }
  std::vector<std::string> missing;
  for (const std::string& name : wanted) {
    if (!fs::exists(folder / name, none)) missing.push_back(name);
  }
  if (missing.size() == wanted.size()) {
    return not_run("no_outputs", fmt::format("there is no {}", fmt::join(missing, ", no ")));
  }
  if (!missing.empty()) {
    return malformed(fmt::format("{} is missing", fmt::join(missing, ", ")));
  }
  std::set<std::string> known(wanted.begin(), wanted.end());
  for (const ProblemFile& input : inputs) known.insert(input.name);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".npy" || known.contains(name)) continue;
    return malformed(fmt::format("{} is no output of this problem, which has {}", name,
                                 fmt::join(wanted, ", ")));
  }
  return std::nullopt;
}

}  // namespace

Trial read_outputs(const fs::path& folder, const PreparedCase& prepared,
                   const Description& testee) {
  const Problem& problem = prepared.problem();
  const std::vector<Crossing> wanted = outputs_wanted(problem, testee);
  const bool draws = problem.dropout.mode == Dropout::Mode::generated;
  Trial trial;
  trial.stopped = defect_of(folder, prepared, testee, names_of(wanted, draws));
  if (trial.stopped) return trial;
  try {
    for (const Crossing& t : wanted) {
      Returned tensor = returned_of(t, read_output(folder / file_of(t.name), t.shape));
      const bool stands_for_lse =
          !is_gradient(t.name) && t.name != TensorName::o && testee.dialect.lse != LseForm{};
      (stands_for_lse ? trial.statistics : trial.returned).push_back(std::move(tensor));
    }
    if (draws) {
      const Shape shape = problem.keep_shape();
      trial.keep = keep_of(shape, read_output(folder / file_of(TensorName::keep), shape));
    }
  } catch (const InputError& error) {
    trial.stopped = malformed(error.what());
    return trial;
  }
  if (!trial.statistics.empty()) {
    // Behind O: gradients are judged after both.
    trial.returned.insert(trial.returned.begin() + 1,
                          in_base_e(testee.dialect.lse, trial.statistics, kNoPoison));
  }
  return trial;
}

}  // namespace attest
