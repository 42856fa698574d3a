#include "reports/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// A new file beside the one whose place it will take; removed if it doesn't.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) : path_(path) {
    name_ = (path.parent_path() / fmt::format(".{}-XXXXXX", path.filename().string())).string();
    fd_ = mkostemp(name_.data(), O_CLOEXEC);  // O_EXCL: it follows no link
    if (fd_ < 0) complain();
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlink(name_.c_str());
  }

  void write(std::string_view bytes) {
    if (!write_all(fd_, bytes)) complain();
  }

  void put_in_place() {
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd_, 0666 & ~mask) != 0) complain();
    const int closed = close(fd_);
    fd_ = -1;
    if (closed != 0 || rename(name_.c_str(), path_.c_str()) != 0) complain();
    name_.clear();
  }

 private:
  [[noreturn]] void complain() const {
    throw InputError("", fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  }
  fs::path path_;
  std::string name_;
  int fd_ = -1;
};

}  // namespace

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void write_file(const fs::path& path, std::initializer_list<std::string_view> pieces) {
  NewFile file(path);
  for (const std::string_view piece : pieces) file.write(piece);
  file.put_in_place();
}

NewFolder::NewFolder(const fs::path& place)
    : place_(fs::absolute(place / "").lexically_normal().parent_path()),
      exists_(fs::exists(fs::symlink_status(place_))) {
  std::error_code error;
  if (exists_ && (!fs::is_directory(place_, error) || !fs::is_empty(place_, error) || error)) {
    throw InputError("", fmt::format("{} {}; nothing was written", place.string(),
                                     error ? "cannot be read: " + error.message()
                                     : fs::is_directory(place_) ? "is there already, and not empty"
                                                                : "is there already"));
  }
  const fs::path above = exists_ ? place_ : place_.parent_path();
  for (fs::path each = above; !fs::exists(each, error); each = each.parent_path()) {
    made_.push_back(each);
  }
  make_folder(above);
  std::string name = (above / fmt::format(".{}-XXXXXX", place_.filename().string())).string();
  if (!mkdtemp(name.data())) {
    throw InputError(
        "", fmt::format("cannot make the folder {}: {}", place.string(), std::strerror(errno)));
  }
  path_ = name;
}

NewFolder::~NewFolder() {
  std::error_code none;
  if (path_.empty()) return;
  fs::remove_all(path_, none);
  for (const fs::path& each : made_) fs::remove(each, none);  // unless others use it by now
}

void NewFolder::put_in_place() {
  const mode_t mask = umask(0);
  umask(mask);
  std::error_code error;
  if (exists_) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
      fs::rename(entry.path(), place_ / entry.path().filename(), error);
      if (error) break;
    }
  } else {
    fs::permissions(path_, static_cast<fs::perms>(0777 & ~mask), error);
    if (!error) fs::rename(path_, place_, error);
    if (!error) path_.clear();
  }
  if (error) {
    throw InputError(
        "", fmt::format("cannot make the folder {}: {}", place_.string(), error.message()));
  }
}

void make_folder(const fs::path& folder) {
  fs::path so_far;
  for (const fs::path& part : fs::absolute(folder)) {
    so_far /= part;
    struct stat about {};
    if (lstat(so_far.c_str(), &about) != 0 || !S_ISLNK(about.st_mode)) continue;
    if (about.st_uid == geteuid() || about.st_uid == 0) continue;
    throw InputError("",
                     fmt::format("cannot write into the folder {}: {} is a link of another user",
                                 folder.string(), so_far.string()));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    const bool taken = fs::exists(fs::symlink_status(folder));
    throw InputError("", fmt::format("cannot make the folder {}: {}", folder.string(),
                                     taken ? "there is something else" : error.message()));
  }
}

}  // namespace attest
