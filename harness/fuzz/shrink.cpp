#include "harness/fuzz/shrink.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/repair.h"
#include "spec/clause.h"
#include "spec/index.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;

// Smaller numbers: the least, then with each power of two taken off, so that what shows at a
// residue alone stays there.
std::vector<Index> smaller(Index number, Index least) {
  std::vector<Index> numbers;
  if (number <= least) return numbers;
  numbers.push_back(least);
  Index step = 1;
  while (2 * step <= number - least) step *= 2;
  for (; step > 0; step /= 2) {
    if (number - step > least) numbers.push_back(number - step);
  }
  return numbers;
}

// All that is one step simpler than a value, whatever it means.
std::vector<json> variants(const json& value) {
  std::vector<json> found;
  const auto simplify_at = [&](const auto& key) {
    for (json& simple : variants(value[key])) {
      json other = value;
      other[key] = std::move(simple);
      found.push_back(std::move(other));
    }
  };
  if (value.is_object()) {
    for (const char* several : {"all_of", "any_of"}) {  // a part of a mask instead of the whole
      for (const json& part : value.value(several, json::array())) found.push_back(part);
    }
    for (const auto& [key, item] : value.items()) {
      found.push_back(value);
      found.back().erase(key);
    }
    for (const auto& [key, item] : value.items()) simplify_at(key);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size() && value.size() > 1; ++i) {
      found.push_back(value);
      found.back().erase(i);
    }
    for (std::size_t i = 0; i < value.size(); ++i) simplify_at(i);
  } else if (value.is_number_integer()) {
    for (const Index number : smaller(value.get<Index>(), 0)) found.push_back(number);
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    for (auto space = text.find(' '); space != text.npos; space = text.find(' ', space + 1)) {
      found.push_back(text.substr(0, space) +
                      text.substr(std::min(text.find(' ', space + 1), text.size())));
    }
  }
  return found;
}

class Steps {
 public:
  explicit Steps(const json& entry) : entry_(entry), problem_(entry.at("problem")) {}

  std::vector<json> all() {
    for (const char* setting : {"laws", "hidden", "check"}) {
      if (!entry_.contains(setting)) continue;
      json other = entry_;
      other.erase(setting);
      // Where nothing lies hidden, no clause about it is tried, and none is only recommended.
      if (setting == std::string_view("hidden")) other["clauses"] = json::array({"SOFTMAX-1"});
      found_.push_back(std::move(other));
    }
    without_packing();
    sizes();
    for (json& simple : variants(problem_)) add(std::move(simple));
    for (const auto& [key, plain] : {std::pair{"data", "normal"}, {"dtypes", "f32"}}) {
      if (entry_.at(key) == json::array({plain})) continue;
      found_.push_back(entry_);
      found_.back()[key] = json::array({plain});
    }
    return std::move(found_);
  }

 private:
  void add(json problem) {
    repair(problem);
    if (problem == problem_) return;
    found_.push_back(entry_);
    json& other = found_.back();
    other["problem"] = std::move(problem);
    if (other["problem"].value("backward", false)) return;
    std::vector<std::string> clauses = other.at("clauses");
    std::erase_if(clauses, is_of_gradients);
    if (clauses.empty()) clauses = {"SOFTMAX-1"};
    other["clauses"] = clauses;
  }

  // Padding, or whole sequences, in place of packed sequences and pages: the lengths are given
  // then.
  void without_packing() {
    for (const char* feature : {"packed", "paging"}) {
      if (!problem_.contains(feature)) continue;
      for (const bool padded : {false, true}) {
        json other = problem_;
        other.erase(feature);
        other["key_len"] = longest_of(problem_, "key_lens");
        if (problem_.contains("query_lens") && problem_.value("packed", false)) {
          other["query_len"] = longest_of(problem_, "query_lens");
        }
        if (!padded) {
          other.erase("key_lens");
          other.erase("query_lens");
        }
        add(std::move(other));
      }
    }
  }

  // Sizes that are the same, all at once.
  void reduce(const std::vector<const char*>& sizes) {
    const json size = problem_.value(sizes.front(), json());
    const bool same = std::all_of(sizes.begin(), sizes.end(), [&](const char* each) {
      return !size.is_null() && problem_.value(each, json()) == size;
    });
    if (!same) return;
    for (const Index less : smaller(size.get<Index>(), 1)) {
      json other = problem_;
      for (const char* each : sizes) other[each] = less;
      add(std::move(other));
    }
  }

  void sizes() {
    const Index heads = problem_.value("query_heads", Index(1)),
                groups = problem_.value("key_heads", Index(1));
    const Index group = groups > 0 ? heads / groups : 1;
    const auto add_heads = [&](Index query_heads, Index key_heads) {
      if (query_heads == heads && key_heads == groups) return;
      json other = problem_;
      other["query_heads"] = query_heads;
      other["key_heads"] = key_heads;
      add(std::move(other));
    };
    if (groups > 0 && heads > 0) {
      add_heads(1, 1);
      add_heads(groups, groups);
      for (const Index fewer : smaller(groups, 1)) add_heads(fewer * group, fewer);
      for (const Index fewer : smaller(group, 1)) add_heads(groups * fewer, groups);
    }
    for (const char* size : {"batch", "query_len", "key_len", "head_dim", "value_dim"}) {
      reduce({size});
    }
    // Alike, for kernels that take no others.
    reduce({"query_len", "key_len"});
    reduce({"head_dim", "value_dim"});
  }

  const json& entry_;
  const json& problem_;
  std::vector<json> found_;
};

}  // namespace

std::vector<json> simpler(const json& entry) { return Steps(entry).all(); }

json shrink(json entry, int most_tries, const std::function<bool(const json&)>& fails) {
  std::set<std::string> known = {json_text(entry)};
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (json& candidate : simpler(entry)) {
      if (!known.insert(json_text(candidate)).second) continue;
      if (most_tries-- == 0) return entry;
      if (!fails(candidate)) continue;
      entry = std::move(candidate);
      shrunk = true;
      break;
    }
  }
  return entry;
}

}  // namespace attest
