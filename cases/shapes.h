// Shapes: problems that somebody uses, to be judged as they are (attest run --shapes).
//
// They come from a preset, a file shapes/NAME.json below the case files, or from a file in one of
// these forms, told apart by what it holds:
//
//   {"about": "...", "source": "...", "defaults": {...}, "shapes": [...]}   as a case file, but
//   that
//                   an entry needs no more than a "problem"
//   [{"query_heads": 32, ...}, ...]    such entries, or problems alone
//   {"about": "...", "cases": [...]}   a case file
//   1,32,8,8192,8192,128,128,causal    lines of B,Hq,Hkv,Sq,Sk,D,Dv,mask; see shape_lines.h
//   {"op_type": "gqa_paged", ...}      FlashInfer's definitions and traces; see shape_traces.h
//
// A shape becomes cases shapes/FILE/NAME/..., for each format and a few classes of inputs that tell
// much. One that is too long for all of it to be compared has an excerpt (shape_excerpt.h). It is
// never fitted to a kernel's limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cases/entry.h"

namespace attest {

struct ShapePreset {
  std::string name;
  std::string about;
  std::string source;  // where its numbers are from
  std::filesystem::path file;
};

// By name, in order. `cases` is the folder of the case files.
std::vector<ShapePreset> shape_presets(const std::filesystem::path& cases);

// The file of a preset, or the file itself; the name of a preset comes first. Throws InputError if
// there is neither.
std::filesystem::path file_of_shapes(const std::string& named, const std::filesystem::path& cases);

// The same of several.
std::vector<std::filesystem::path> files_of_shapes(const std::vector<std::string>& named,
                                                   const std::filesystem::path& cases);

struct Shapes {
  std::vector<CaseWithEntry> cases = {};
  std::vector<std::string> notes = {};  // what of a trace was left out or filled in, in words
};

// The cases of all of them, with s = `seed`. Throws InputError, whose text names file and line, for
// whatever is not understood.
Shapes load_shapes(const std::vector<std::string>& named, const std::filesystem::path& cases,
                   std::uint64_t seed = 1);

// Without the entries.
std::vector<Case> cases_of(const Shapes& shapes);

}  // namespace attest
