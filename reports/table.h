// A table on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace attest {

// Columns as wide as their widest cell; the first `left` columns flush left, the others right.
class Table {
 public:
  Table(std::vector<std::string> titles, std::size_t left) : left_(left) { add(std::move(titles)); }

  // As many cells as there are titles.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string str() const;

 private:
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace attest
