#include "harness/process/surroundings.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <sstream>
#include <system_error>

#include "harness/process/remove_tree.h"
#include "harness/process/target.h"
#include "spec/json_reader.h"

namespace attest {

namespace fs = std::filesystem;

Homes::~Homes() {
  if (!keep_ && !folder_.empty()) remove_tree(folder_);  // what cannot be removed stays
}

fs::path Homes::of(const std::vector<std::string>& command, Isolation isolation, uid_t user) {
  const std::lock_guard lock(mutex_);
  if (folder_.empty()) {
    std::string name = (fs::temp_directory_path() / "attest-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
    folder_ = name;
    fs::permissions(folder_, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  }
  fs::path& home = homes_[command];
  if (!home.empty()) return home;
  home = folder_ / std::to_string(homes_.size());
  for (const fs::path& each : {home, home / "tmp"}) {
    fs::create_directory(each);
    fs::permissions(each, fs::perms::owner_all);
    // That user's who it is for.
    if (has_other_user(isolation) && chown(each.c_str(), user, user) != 0) {
      throw std::system_error(errno, std::generic_category(), each.string());
    }
  }
  return home;
}

std::vector<std::string> sanitizer_called(const std::string& command) {
  std::istringstream in(command);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  if (words.empty()) return words;
  const bool plain = words[0].find('/') == std::string::npos;
  const std::string program =
      plain ? found_on_path(words[0]) : fs::absolute(words[0]).lexically_normal().string();
  std::error_code none;
  if (program.empty() || !fs::is_regular_file(program, none) ||
      access(program.c_str(), X_OK) != 0) {
    throw InputError("", fmt::format("--sanitizer: {} {}", words[0],
                                     plain ? "is no program on the PATH" : "is no program"));
  }
  words[0] = program;
  return words;
}

void hide(Surroundings& surroundings, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    surroundings.hidden_files.push_back(file);
    const std::string folder = fs::path(file).parent_path().string();
    struct stat about {};
    if (stat(folder.c_str(), &about) != 0 || (about.st_mode & S_ISVTX) != 0) continue;
    std::vector<std::string>& kept = surroundings.read_only;
    if (std::find(kept.begin(), kept.end(), folder) == kept.end()) kept.push_back(folder);
  }
}

}  // namespace attest
