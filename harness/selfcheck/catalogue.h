// The list of mutants: kernels that are wrong on purpose, each with one fault that real kernels
// shipped with. They come in a plug-in that is built for tests alone; beside its kernels it exports
//
//   extern "C" const char* attest_mutants(void);
//
//   {"mutants": [{"name": "top_left", "id": "A041", "class": "A", "reference": "...",
//                 "about": "...", "clauses": ["MASK-3"], "dtypes": ["f32", "bf16"],
//                 "control": "none", "shown_by": "mask/window/**"}, ...],
//    "inexpressible": [{"id": "A007", "why": "..."}],
//    "equivalent": [{"name": "...", "why": "..."}],
//    "controls": ["none"]}
//
// Controls are the same kernels without a fault.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spec/dtype.h"

namespace attest {

struct Mutant {
  std::string name;          // of its kernel, with or without the FAMILY/ before it
  std::string id;            // of the defect
  std::string defect_class;  // the kind of defect
  std::string reference;     // where it is told
  std::string about;
  std::vector<std::string> clauses;  // that it violates
  std::vector<DType> dtypes = {};    // that the fault concerns; empty: all that the kernel has
  std::string control = {};          // the same kernel without the fault, if that is told
  std::string shown_by = {};  // a pattern of the few cases that show it: they are tried first
};

struct Uncounted {
  std::string name;  // of an equivalent mutant, or the id of a defect that no kernel here can have
  std::string why;
};

struct Catalogue {
  std::vector<Mutant> mutants;
  std::vector<Uncounted> inexpressible = {}, equivalent = {};
  std::vector<std::string> controls = {};
};

// Throws InputError for unknown keys, clauses and dtypes, a name that occurs twice, and a mutant
// that violates nothing.
Catalogue parse_catalogue(const nlohmann::json& json);

// That of a plug-in, which is loaded into this process for it: a thing to do with our own alone.
// Its kernels run in workers, as everybody's.
Catalogue load_catalogue(const std::filesystem::path& plugin);

// The --testee of a mutant that is named mutant:NAME, or of all those that restate the defect of
// mutant:ID, in that plug-in; any other as it is. Throws InputError if there is none.
std::vector<std::string> with_mutants(const std::vector<std::string>& testees,
                                      const std::filesystem::path& plugin);

}  // namespace attest
