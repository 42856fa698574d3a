// Arithmetics that have a name, for descriptions, and for whoever judges outputs and has none at
// hand: each stands for all that a declaration says, with what is in use on a kind of hardware.
// Source: NUMERICS.md, section 9.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

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

}  // namespace attest
