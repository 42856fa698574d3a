// Dispatch tables of real systems, as their sources have them: which of its compiled kernels a
// system chooses (spec/dispatch.h), with
//
//   {"system": "...", "sources": ["https://..."], "about": "...", "held_out": true, ...}
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec/description.h"
#include "spec/dispatch.h"

namespace attest::instances {

struct DispatchTable : Dispatch {  // named as its file
  std::string system, about;
  std::vector<std::string> sources;
  bool held_out = false;  // no case was made with it in view
};

// All tables of a folder, by name. Throws InputError for whatever is not understood.
std::vector<DispatchTable> load_dispatches(const std::filesystem::path& folder);

struct Instance {
  const DispatchTable* dispatch;
  DispatchClasses classes;

  bool has(const Problem& problem) const { return dispatch->instance_of(problem) == classes; }
  std::string text() const;
};

}  // namespace attest::instances
