// Narrow kernels as they exist, for the faults of the catalogue to live in: each declares its
// limits, and takes what lies within them and nothing else. HOST/NAME is the mutant of that name
// in a host; HOST/none has no fault.
#pragma once

#include <span>
#include <string>

#include "spec/attest_plugin.h"

namespace attest::mutants {

struct Host {
  const char* name;
  const char* about;
  const char* dtypes;  // lists as they stand in JSON
  const char* profiles;
  const char* features;
  const char* limits;  // an object
  // The same once more, by hand, as its author would test what he is given.
  bool (*takes)(const attest_problem& problem);
};

std::span<const Host> hosts();

}  // namespace attest::mutants
