// What belongs to the command, wherever it was built or installed to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attest {

// Where the command finds what belongs to it.
struct Installation {
  std::filesystem::path worker;   // attest-worker
  std::filesystem::path plugins;  // the folder of the bundled kernels
  std::filesystem::path cases;
  std::filesystem::path skeletons = {};     // what `attest new` writes
  std::filesystem::path test_plugins = {};  // of the kernels that are built for tests, if they are
};

// Of the running program: as `cmake --install` lays it out or, for cases, where it was built.
// ATTEST_CASES overrides.
Installation find_installation();

// The bundled kernels' libraries, in the order of the alphabet.
std::vector<std::string> bundled_names(const Installation& installation);

}  // namespace attest
