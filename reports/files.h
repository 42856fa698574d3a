// Files that are made anew and put in the place of what was there, whole or not at all; never
// through a link.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

// Writes the pieces, one after the other, into a new file in the same folder and gives it the name
// `path`. Throws InputError, which says why (such as "No space left on device"), and leaves what
// was there.
void write_file(const std::filesystem::path& path, std::initializer_list<std::string_view> pieces);
inline void write_file(const std::filesystem::path& path, std::string_view content) {
  write_file(path, {content});
}

// Writes all bytes to a descriptor; false, and errno, if that fails.
bool write_all(int fd, std::string_view bytes);

// Makes a folder, and those above it, where there is none. Throws InputError if it can't, and if
// the way there leads over a link of another user: who plants it says what is written over.
void make_folder(const std::filesystem::path& folder);

// A folder that is filled beside its place and put there as a whole; removed again if it isn't.
class NewFolder {
 public:
  // Throws InputError if there is something at `place`, but for an empty folder, or if none can be
  // made there.
  explicit NewFolder(const std::filesystem::path& place);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  const std::filesystem::path& path() const { return path_; }  // meanwhile
  void put_in_place();

 private:
  std::filesystem::path place_, path_;
  bool exists_;  // an empty one, which somebody may be in, and stays
  std::vector<std::filesystem::path> made_ = {};  // above it, the lowest first
};

}  // namespace attest
