// The documents of the tree, as their tests and what writes their tables read them.
#pragma once

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace attest::documents {

// A whole file, named from the root of the tree. Throws std::runtime_error if it cannot be read.
inline std::string contents(const std::string& path) {
  std::ifstream file(std::string(ATTEST_SOURCE_DIR) + "/" + path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What stands under the heading "## NAME", up to the next heading of that rank. Throws
// std::runtime_error if there is none.
inline std::string chapter(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("\n## " + name + "\n");
  if (begin == std::string::npos) throw std::runtime_error("there is no chapter " + name);
  return text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What is set apart by two blanks or more: "full     causal bottom_right" is two.
inline std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string::npos;) {
    const std::size_t end = line.find("  ", at);
    columns.push_back(line.substr(at, end - at));
    at = end == std::string::npos ? end : line.find_first_not_of(' ', end);
  }
  return columns;
}

inline bool is_indented(const std::string& line) { return line.starts_with("    "); }

// The runs of indented lines.
inline std::vector<std::vector<std::string>> blocks_of(const std::string& text) {
  std::vector<std::vector<std::string>> blocks;
  bool within = false;
  for (const std::string& line : lines_of(text)) {
    if (is_indented(line) && !within) blocks.emplace_back();
    within = is_indented(line);
    if (within) blocks.back().push_back(line);
  }
  return blocks;
}

// How many places a text of UTF-8 takes, where none of its characters combine.
inline std::size_t width_of(const std::string& line) {
  std::size_t width = 0;
  for (const char c : line) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return width;
}

// `text` with what stands between <!-- name --> and <!-- /name --> put anew.
inline std::string with_part(const std::string& text, const std::string& name,
                             const std::string& part) {
  const std::string begin = "<!-- " + name + " -->\n", end = "<!-- /" + name + " -->";
  const std::size_t at = text.find(begin), until = text.find(end);
  if (at == std::string::npos || until == std::string::npos || until < at) {
    throw std::runtime_error("no " + begin + "..." + end + " in a page");
  }
  return text.substr(0, at + begin.size()) + part + text.substr(until);
}

}  // namespace attest::documents
