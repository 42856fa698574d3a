// The tables of impl/vendor/README.md: what the mock vendors have of the descriptions that they are
// made from. No row may be empty.
#include <functional>
#include <stdexcept>
#include <vector>

#include "impl/vendor/ascend/figures.h"
#include "impl/vendor/nvidia_grid/figures.h"
#include "impl/vendor/splash/figures.h"
#include "impl/vendor/triton/figures.h"
#include "impl/vendor/wormhole/figures.h"
#include "tests/documents/document.h"
#include "tests/documents/pages.h"

namespace attest::documents {
namespace {

std::string table_of(const std::vector<vendor::Figure>& figures) {
  std::string table = "| the text | its figure | here | where, or why not |\n|---|---|---|---|\n";
  for (const auto& [seed, said, here, where] : figures) {
    if (seed.empty() || where.empty()) throw std::runtime_error("a row is empty: " + seed + where);
    table += "| " + seed + " | " + said + " | " + here + " | " + where + " |\n";
  }
  return table;
}

}  // namespace

std::map<std::string, std::string> written_pages() {
  const char* const path = "impl/vendor/README.md";
  const std::map<std::string, std::function<std::vector<vendor::Figure>()>> rooms = {
      {"ascend", vendor::ascend::ascend_figures},
      {"nvidia_grid", vendor::nvidia_grid::nvidia_grid_figures},
      {"splash", vendor::splash::splash_figures},
      {"triton", vendor::triton::triton_figures},
      {"wormhole", vendor::wormhole::wormhole_figures}};
  std::string page = contents(path);
  for (const auto& [room, figures] : rooms) page = with_part(page, room, table_of(figures()));
  return {{path, page}};
}

}  // namespace attest::documents
