#include "harness/process/installation.h"

#include <algorithm>
#include <cstdlib>

namespace attest {

namespace fs = std::filesystem;

Installation find_installation() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path prefix = program.parent_path();
  const char* cases = std::getenv("ATTEST_CASES");
  const fs::path share = prefix / "share" / "attest", installed = share / "cases";
  return {.worker = program / "attest-worker",
          .plugins = prefix / "lib" / "attest",
          .cases = cases                   ? fs::path(cases)
                   : fs::exists(installed) ? installed
                                           : fs::path(ATTEST_CASES_DIR),
          .skeletons = fs::exists(share / "new") ? share / "new" : fs::path(ATTEST_SKELETONS_DIR),
          .test_plugins = prefix / "tests" / "plugins"};
}

std::vector<std::string> bundled_names(const Installation& installation) {
  std::vector<std::string> names;
  if (!fs::is_directory(installation.plugins)) return names;
  for (const auto& entry : fs::directory_iterator(installation.plugins)) {
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace attest
