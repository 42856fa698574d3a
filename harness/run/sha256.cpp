#include "harness/run/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>

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

std::string sha256_of_file(const fs::path& file) {
  // A testee's file may be whatever its author likes: a pipe that nobody writes, or terabytes.
  constexpr std::uintmax_t kMostBytes = std::uintmax_t(16) << 30;
  std::error_code gone;
  if (fs::exists(file, gone) && !fs::is_regular_file(file, gone)) {
    throw InputError("", fmt::format("cannot read {}: it is no regular file", file.string()));
  }
  if (const auto bytes = fs::file_size(file, gone); !gone && bytes > kMostBytes) {
    throw InputError("", fmt::format("cannot read {}: it has {} bytes, more than the {} that a "
                                     "digest is made of",
                                     file.string(), bytes, kMostBytes));
  }
  std::ifstream in(file, std::ios::binary);
  Sha256 sum;
  std::array<char, 1 << 16> buffer{};
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
    sum.add({buffer.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (!in.eof()) {
    throw InputError("", fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  }
  return sum.digits();
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

}  // namespace attest
