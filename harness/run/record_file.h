// The folder of a record while a run writes into it, and the file results.jsonl.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/process/descriptor.h"

namespace attest {

inline constexpr const char* kResults = "results.jsonl";

// The record and its reports in that folder.
std::vector<std::filesystem::path> files_of_record(const std::filesystem::path& folder);

// Makes the folder where it isn't yet, and keeps other runs out of it as long as it lives. Throws
// InputError if there can be none, if nothing can be written there, and if another run writes
// there.
class RecordFolder {
 public:
  explicit RecordFolder(const std::filesystem::path& folder);
  const std::filesystem::path& path() const { return path_; }
  // Throws InputError if another folder was put in its place.
  void check_identity() const;

 private:
  std::filesystem::path path_;
  Descriptor locked_;
};

// A new results.jsonl, which nobody else may read yet. What an earlier run left in the folder is
// removed once there is room for it. Throws InputError if it cannot be begun.
class RecordFile {
 public:
  // `failed` is told why, at once, when a line cannot be written; what comes later is left out.
  RecordFile(const std::filesystem::path& folder,
             const std::function<void(const std::string& why)>& failed);
  ~RecordFile();

  std::ostream& stream();
  // Lets others read it. Throws InputError if a line could not be written, or if another file was
  // put in its place.
  void publish();

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<std::ostream> stream_;
};

}  // namespace attest
