// SHA-256 (FIPS 180-4), in 64 hexadecimal digits.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

std::string sha256(std::string_view bytes);

// Of a file's bytes. Throws InputError if it cannot be read.
std::string sha256_of_file(const std::filesystem::path& file);

// Of case files, those below a folder or one file: the SHA-256 of the list that
// `sha256sum` makes of them, named from the folder, in the order of their names' bytes. Throws
// InputError if one cannot be read.
std::string sha256_of_cases(const std::filesystem::path& root);

// The same of such files, one after the other, by their paths.
std::string sha256_of_files(const std::vector<std::filesystem::path>& files);

}  // namespace attest
