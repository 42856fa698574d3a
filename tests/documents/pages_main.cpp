// documents_pages [--write], or vendor_figures [--write]: says which tables in the documents are
// not what the tree has, or writes them. Exits with 1 if one is stale, 2 if one cannot be made or
// written.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/documents/document.h"
#include "tests/documents/pages.h"

namespace attest::documents {
namespace {

std::string text_of(const std::string& path) {
  try {
    return contents(path);
  } catch (const std::runtime_error&) {
    return "";  // a page that is not there yet
  }
}

int run(const std::string& program, bool write) {
  int stale = 0;
  for (const auto& [path, text] : written_pages()) {
    const std::string before = text_of(path);
    if (before == text) continue;
    if (write) {
      std::ofstream file(std::string(ATTEST_SOURCE_DIR) + "/" + path);
      file << text;
      if (!file.flush()) throw std::runtime_error(path + " cannot be written");
      fmt::print("{} is written\n", path);
      continue;
    }
    const std::vector<std::string> was = lines_of(before), is = lines_of(text);
    const auto at = std::mismatch(was.begin(), was.end(), is.begin(), is.end());
    fmt::print("{}:{} is stale\n  is:        {}\n  should be: {}\n", path,
               at.first - was.begin() + 1, at.first == was.end() ? "" : *at.first,
               at.second == is.end() ? "" : *at.second);
    ++stale;
  }
  if (stale > 0) fmt::print("{} --write writes them\n", program);
  return stale > 0 ? 1 : 0;
}

}  // namespace
}  // namespace attest::documents

int main(int count, char** arguments) {
  const std::string program = std::filesystem::path(arguments[0]).filename();
  const bool write = count == 2 && std::string_view(arguments[1]) == "--write";
  if (count > 1 && !write) {
    fmt::print(stderr, "usage: {} [--write]\n", program);
    return 2;
  }
  try {
    return attest::documents::run(program, write);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  }
}
