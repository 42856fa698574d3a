// Shapes as lines: what a spreadsheet or a log has of them.
//
//   B,Hq,Hkv,Sq,Sk,D,Dv,mask            a header may say which columns there are, in any order
//   1,32,8,8192,8192,128,128,causal     # what follows a hash is a comment
//
// Without a header there are these eight; the mask may be left out (full). With one Dv may be left
// out too (D), and there may be more: backward, softcap, sink, scale, page_size, name. A mask is
// written as in a case file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/shape_entry.h"

namespace attest {

// Throws InputError, whose text begins with the line: "3: Hkv takes a number of at least 1, not x".
std::vector<ShapeEntry> read_shape_lines(std::string_view text);

}  // namespace attest
