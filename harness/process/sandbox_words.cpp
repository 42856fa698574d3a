// A sandbox as a sequence of words, each ended by a zero byte; a list is preceded by its length.
#include <cstdlib>

#include "harness/process/sandbox.h"

namespace attest {
namespace {

void put(std::string& words, const std::string& word) { words.append(word).push_back('\0'); }

void put(std::string& words, const std::vector<std::string>& list) {
  put(words, std::to_string(list.size()));
  for (const std::string& word : list) put(words, word);
}

std::string take(std::string_view& words) {
  const std::size_t end = words.find('\0');
  std::string word(words.substr(0, end));
  words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
  return word;
}

std::vector<std::string> take_list(std::string_view& words) {
  std::vector<std::string> list(std::strtoul(take(words).c_str(), nullptr, 10));
  for (std::string& word : list) word = take(words);
  return list;
}

}  // namespace

std::string to_words(const Sandbox& sandbox) {
  std::string words;
  put(words, std::to_string(static_cast<int>(sandbox.isolation)));
  put(words, std::to_string(sandbox.user));
  put(words, sandbox.command);
  put(words, sandbox.read_only);
  put(words, sandbox.hidden_files);
  put(words, sandbox.shared_memory);
  put(words, sandbox.shared_pages);
  put(words, sandbox.home);
  put(words, sandbox.network ? "network" : "");
  put(words, sandbox.keeps_nothing ? "keeps nothing" : "");
  put(words, sandbox.open_files);
  return words;
}

Sandbox sandbox_from_words(std::string_view words) {
  Sandbox sandbox;
  sandbox.isolation = static_cast<Isolation>(std::atoi(take(words).c_str()));
  sandbox.user = static_cast<uid_t>(std::strtoul(take(words).c_str(), nullptr, 10));
  sandbox.command = take_list(words);
  sandbox.read_only = take_list(words);
  sandbox.hidden_files = take_list(words);
  sandbox.shared_memory = take(words);
  sandbox.shared_pages = take(words);
  sandbox.home = take(words);
  sandbox.network = !take(words).empty();
  sandbox.keeps_nothing = !take(words).empty();
  sandbox.open_files = take(words);
  return sandbox;
}

}  // namespace attest
