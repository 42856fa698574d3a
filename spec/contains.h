// Whether a list has a value.
#pragma once

#include <algorithm>

namespace attest {

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace attest
