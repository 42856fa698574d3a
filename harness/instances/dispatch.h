// Which of its compiled kernels a system chooses for a problem, as its sources have it: a table of
// points, each of which sorts problems into classes. A fault in one of the kernels, an instance, is
// there for the problems of one class of each point.
//
//   {"system": "...", "sources": ["https://..."], "about": "...", "passes": "forward", "held_out":
//   true,
//    "points": [{"of": "dtype", "values": ["f16", "bf16"]},
//               {"of": "head_dim", "up_to": [64, 128, 256]},          (0,64], (64,128], (128,256]
//               {"of": "key_len", "up_to": [512], "open": true},      one more, beyond 512
//               {"of": "query_len", "multiple_of": 128},              those that are, and others
//               {"of": "mask", "values": ["full", "causal"]}]}
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec/description.h"
#include "spec/index.h"
#include "spec/problem.h"

namespace attest::instances {

struct Point {
  std::string of;                        // "head_dim"
  std::vector<std::string> values = {};  // as text: "f16", "true", "1"
  std::vector<Index> up_to = {};         // ascending
  bool open = false;
  Index multiple_of = 0;

  std::size_t classes() const;
  // None of a problem that no kernel of the system takes.
  std::optional<std::size_t> class_of(const Problem& problem) const;
  std::string text(std::size_t of_class) const;  // "head_dim in (64,128]"
};

struct Dispatch {
  std::string name;  // of its file
  std::string system, about;
  std::vector<std::string> sources;
  bool backward = false;
  bool held_out = false;  // no case was made with it in view
  std::vector<Point> points;
};

// All tables of a folder, by name. Throws InputError for whatever is not understood.
std::vector<Dispatch> load_dispatches(const std::filesystem::path& folder);

struct Instance {
  const Dispatch* dispatch;
  std::vector<std::size_t> classes;  // one of each point

  bool has(const Problem& problem) const;
  std::string text() const;
  // What a kernel would declare that has it alone, as far as limits and features say that; nothing
  // if nothing is left that it could be asked. Draws for it need not all be of the instance.
  std::optional<Description> declared(const Description& whole) const;
};

}  // namespace attest::instances
