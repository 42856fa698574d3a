#include "harness/run/sha256.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "harness/process/descriptor.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

class Sha256 {
 public:
  Sha256() { must(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1); }
  void add(std::string_view bytes) {
    must(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string digits() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    must(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1);
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
    return text;
  }

 private:
  static void must(bool done) {
    if (!done) throw std::runtime_error("the library of SHA-256 failed");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free};
};

}  // namespace

std::string sha256(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes);
  return sum.digits();
}

// A testee's file may be whatever its author likes, at any time: a pipe that nobody writes, or
// terabytes.
std::string sha256_of_file(const fs::path& file) {
  constexpr std::size_t kMostBytes = std::size_t(16) << 30;
  const auto cannot = [&](const std::string& why) {
    return InputError("", fmt::format("cannot read {}: {}", file.string(), why));
  };
  const int opened = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) throw cannot(std::strerror(errno));
  const Descriptor fd(opened, "open");
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) throw cannot(std::strerror(errno));
  if (!S_ISREG(about.st_mode)) throw cannot("it is no regular file");
  const auto too_large = [&] {
    return cannot(fmt::format("it has more than {} bytes", kMostBytes));
  };
  if (static_cast<std::size_t>(about.st_size) > kMostBytes) throw too_large();
  Sha256 sum;
  std::array<char, 1 << 16> buffer{};
  for (std::size_t total = 0;;) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count < 0) throw cannot(std::strerror(errno));
    if (count == 0) return sum.digits();
    sum.add({buffer.data(), static_cast<std::size_t>(count)});
    total += static_cast<std::size_t>(count);
    if (total > kMostBytes) throw too_large();
  }
}

std::string sha256_of_cases(const fs::path& root) {
  std::map<std::string, fs::path> files;
  if (!fs::is_directory(root)) {
    files[root.filename().generic_string()] = root;
  } else {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file() || entry.path().extension() != ".json") continue;
      files[entry.path().lexically_relative(root).generic_string()] = entry.path();
    }
  }
  std::string list;
  for (const auto& [name, path] : files) {
    list += fmt::format("{}  {}\n", sha256_of_file(path), name);
  }
  return sha256(list);
}

std::string sha256_of_files(const std::vector<fs::path>& files) {
  std::string list;
  for (const fs::path& file : files) {
    list += fmt::format("{}  {}\n", sha256_of_file(file), file.filename().generic_string());
  }
  return sha256(list);
}

}  // namespace attest
