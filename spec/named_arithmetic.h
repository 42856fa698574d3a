// Arithmetics that have a name, for whoever judges outputs and has no declaration at hand
// (attest_judge.h): each stands for all that a declaration says, with what is in use on a kind of
// hardware. Source: NUMERICS.md, section 9.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "spec/description.h"
#include "spec/dtype.h"

namespace attest {

struct NamedArithmetic {
  std::string_view name;  // "gpu-16bit"
  std::string_view what;  // whose it is, in a line
  // As a description has it, of each format in that order: f64, f32, f16, bf16; empty: it says
  // nothing of that format.
  std::string_view f64, f32, f16, bf16;
  std::string_view why;  // where its values are from

  std::string_view of(DType dtype) const;
};

std::span<const NamedArithmetic> named_arithmetics();

// The declaration for `dtype` that a name stands for. Throws InputError where it says nothing of
// that format, and for what is no name.
nlohmann::json declaration_named(std::string_view name, DType dtype);

// What `text` says of a kernel for `dtype`: a name of these, or JSON: a whole description, the
// value of its key "arithmetic", or that of one format. Throws InputError for anything else, for a
// name that says nothing of that format, and for a format without bounds ("beyond_caps").
Description description_by(std::string_view text, DType dtype);

}  // namespace attest
