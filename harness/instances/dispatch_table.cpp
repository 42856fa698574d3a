#include "harness/instances/dispatch_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest::instances {
namespace {

namespace fs = std::filesystem;

DispatchTable read_table(const fs::path& file) {
  const nlohmann::json json = parse_json(read_file(file));
  ObjectReader reader(json, "");
  DispatchTable table;
  table.name = file.stem().string();
  table.system = reader.get<std::string>("system");
  table.about = reader.get<std::string>("about");
  table.sources = reader.get<std::vector<std::string>>("sources");
  table.held_out = reader.get_or("held_out", false);
  read_dispatch(reader, table);
  reader.finish();
  return table;
}

}  // namespace

std::vector<DispatchTable> load_dispatches(const fs::path& folder) {
  std::vector<DispatchTable> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".json") continue;
    try {
      all.push_back(read_table(entry.path()));
    } catch (const InputError& error) {
      throw InputError("", fmt::format("{}: {}{}{}", entry.path().string(), error.pointer(),
                                       error.pointer().empty() ? "" : " ", error.what()));
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (all.empty()) {
    throw InputError("", fmt::format("there is no dispatch table in {}", folder.string()));
  }
  return all;
}

std::string Instance::text() const {
  return fmt::format("{}: {}", dispatch->name, fmt::join(dispatch->words(classes), ", "));
}

}  // namespace attest::instances
