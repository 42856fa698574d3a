// A folder of vectors (SPEC.md, chapter "Vectors"): problems with their inputs, for whoever
// computes outputs beside them, by whatever means.
//
//   DIR/vectors.json         which cases of which suite they are of
//   DIR/description.json     the declaration by which outputs are judged
//   DIR/README.md
//   DIR/CASE/problem.json    a folder for each case, named by its id
//   DIR/CASE/q.npy, ...      its inputs; beside them the outputs, o.npy, lse.npy, ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cases/case.h"
#include "spec/index.h"
#include "spec/inputs.h"

namespace attest {

inline constexpr const char* kDescriptionFile = "description.json";
inline constexpr const char* kProblemFile = "problem.json";

// What selected the cases of a folder.
struct Manifest {
  std::string suite_version, suite_commit;
  std::string cases_digest;  // SHA-256 of the case files, or of the shapes
  std::string tier;
  std::vector<std::string> filters = {};
  std::uint64_t seed = 1;
  std::string from = {};
  std::vector<std::string> shapes = {};
  Index problems = 0;  // that were written: those that the description admits
};

// Throws InputError if it cannot be written.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
// Throws InputError if the folder is none of vectors.
Manifest read_manifest(const std::filesystem::path& folder);

std::filesystem::path folder_of(const std::filesystem::path& root, const Case& test_case);

// What stands in the folder of a problem, but for its outputs.
struct ProblemFile {
  std::string name, content;
};
std::vector<ProblemFile> input_files(const Problem& problem, const Inputs& inputs);

// About as many bytes as these take; nothing is generated.
double bytes_of_inputs(const Problem& problem);

}  // namespace attest
