// What the catalogue of wrong kernels is made of: faults that the suite must catch, reports that
// cannot be restated as a fault here, and faults that no test can tell from a right kernel.
//
// A fault is one switch in one of four kernels. Each of them without a fault is a control, which
// must pass: so a catch is the fault's doing.
#pragma once

#include <string_view>

namespace attest::mutants {

enum class Base {
  textbook,  // scores, softmax, P V, row by row, in f32
  fa2,       // FlashAttention-2: tiles, an online softmax, P and dS in the format, exp2
  fa1,       // the same with O normalised in every step, and exp
  split,     // keys in up to 16 parts, which are merged by LSE
};

struct Fault {
  const char* name;
  Base base;
  const char* kind;                     // its class, in the words of the trackers
  const char* about;                    // what is wrong
  const char* clauses;                  // those that it breaks: "MASK-3 EMPTY-1"
  const char* id = "";                  // of the reports that it restates: "A041 B048"
  const char* reference = "";           // where they stand: "facebookresearch/xformers#722"
  const char* dtypes = "f32 f16 bf16";  // in which it shows
};

// Whether the suite must catch it: controls have no fault, and some differ without breaking
// anything.
constexpr bool is_mutant(const Fault& fault) {
  const std::string_view kind = fault.kind;
  return kind != "control" && kind != "harmless";
}

// A report that no kernel here can restate.
struct Inexpressible {
  const char* id;
  const char* reference;
  const char* why;
};

// A kernel that differs, and breaks nothing.
struct Equivalent {
  const char* name;
  const char* why;
};

}  // namespace attest::mutants
