#include "harness/run/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <streambuf>
#include <string_view>

#include "reports/files.h"
#include "spec/diagnosis.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write_into(const fs::path& folder, const std::string& why) {
  throw InputError("", fmt::format("cannot write into the folder {}: {}", folder.string(), why));
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::vector<fs::path> files_of_record(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name :
       {kResults, "report.json", "junit.xml", "summary.md", "index.html", kDiagnosis}) {
    files.push_back(fs::absolute(folder) / name);
  }
  return files;
}

RecordFolder::RecordFolder(const fs::path& folder) : path_(folder) {
  if (folder.empty()) throw InputError("", "--out takes a folder, not an empty name");
  std::error_code none;
  if (!fs::is_directory(folder, none)) {
    const bool taken = fs::exists(fs::symlink_status(folder, none));
    std::error_code error;
    if (!taken) fs::create_directories(folder, error);
    if (!fs::is_directory(folder, none)) {
      throw InputError("", fmt::format("--out takes a folder; {} {}", folder.string(),
                                       taken ? "is none" : "cannot be made: " + error.message()));
    }
  }
  make_folder(folder);  // not over a link of others
  if (access(folder.c_str(), W_OK | X_OK) != 0) cannot_write_into(folder, std::strerror(errno));
  for (const fs::path& file : files_of_record(folder)) {
    if (fs::is_directory(fs::symlink_status(file, none))) {
      cannot_write_into(folder, fmt::format("{} is a folder", file.filename().string()));
    }
  }
  locked_ = Descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder.c_str());
  if (flock(locked_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) {
    throw InputError("", fmt::format("another run writes into the folder {}; --out names another",
                                     folder.string()));
  }
  // A file system without locks keeps nobody out.
}

void RecordFolder::check_identity() const {
  struct stat now {
  }, then{};
  if (stat(path_.c_str(), &now) == 0 && fstat(locked_.get(), &then) == 0 && same_file(now, then)) {
    return;
  }
  throw InputError(
      "", fmt::format("another folder was put in the place of {} during the run", path_.string()));
}

class RecordFile::Buffer : public std::streambuf {
 public:
  Buffer(const fs::path& file, const std::function<void(const std::string&)>& failed)
      : file_(file), failed_(failed) {
    // The file of an earlier run stays until this one can begin.
    std::string name = (file.parent_path() / fmt::format(".{}-XXXXXX", kResults)).string();
    fd_ = mkostemp(name.data(), O_CLOEXEC);  // O_EXCL: it follows no link
    if (fd_ < 0) cannot_write_into(file.parent_path(), std::strerror(errno));
    const bool room = write_all(fd_, std::string(kRoom, '\n')) && ftruncate(fd_, 0) == 0 &&
                      lseek(fd_, 0, SEEK_SET) == 0;
    int error = errno;
    if (room) {
      for (const fs::path& old : files_of_record(file.parent_path())) unlink(old.c_str());
      if (rename(name.c_str(), file.c_str()) == 0) return;
      error = errno;
    }
    unlink(name.c_str());
    close(fd_);
    cannot_write_into(file.parent_path(), std::strerror(error));
  }
  ~Buffer() override { close(fd_); }

  void publish() {
    if (why_.empty() && fchmod(fd_, 0644) != 0) fail();
    if (!why_.empty()) throw InputError("", why_);
    struct stat written {
    }, named{};
    if (fstat(fd_, &written) == 0 && lstat(file_.c_str(), &named) == 0 &&
        same_file(written, named)) {
      return;
    }
    throw InputError(
        "", fmt::format("another file was put in the place of {} during the run", file_.string()));
  }

 protected:
  int_type overflow(int_type c) override {
    if (c != traits_type::eof()) {
      const char one = traits_type::to_char_type(c);
      write({&one, 1});
    }
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    write({bytes, static_cast<std::size_t>(count)});
    return count;
  }

 private:
  static constexpr std::size_t kRoom = 64 << 10;

  void write(std::string_view bytes) {
    if (why_.empty() && !write_all(fd_, bytes)) fail();
  }
  void fail() {
    why_ = fmt::format("cannot write {}: {}", file_.string(), std::strerror(errno));
    failed_(why_);
  }

  fs::path file_;
  std::function<void(const std::string&)> failed_;
  int fd_ = -1;
  std::string why_ = {};  // why it failed, if it did
};

RecordFile::RecordFile(const fs::path& folder,
                       const std::function<void(const std::string& why)>& failed)
    : buffer_(std::make_unique<Buffer>(fs::absolute(folder) / kResults, failed)),
      stream_(std::make_unique<std::ostream>(buffer_.get())) {}
RecordFile::~RecordFile() = default;

std::ostream& RecordFile::stream() { return *stream_; }

void RecordFile::publish() { buffer_->publish(); }

}  // namespace attest
