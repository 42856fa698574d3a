// A --testee taken apart, before anything of it is started: which program, made of which files, and
// which of its kernels.
#pragma once

#include <string>
#include <vector>

#include "harness/process/installation.h"

namespace attest {

struct Target {
  std::string spec;  // as given
  std::string base;  // the spec without a kernel's name
  std::vector<std::string> command;
  std::vector<std::string> files;  // that its worker must be able to read
  std::string plugin;
  std::string kernel;             // empty: all
  std::string first_choice = {};  // the only one, if there is one of that name
  std::string prefix = {};        // of its kernels' names in records: the file that they are of
};

// The path of a program by its plain name; empty if there is none.
std::string found_on_path(const std::string& program);

// The interpreter of kernels in Python: that of ATTEST_PYTHON, else python3; empty if there is
// none.
std::string python_program();

// Throws InputError for a spec that names nothing.
Target parse_target(const std::string& spec, const Installation& installation);

}  // namespace attest
