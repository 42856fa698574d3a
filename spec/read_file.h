// Files that somebody names, or that lie where somebody could put them: they may be anything. A
// pipe that nobody writes would be read for ever, a device without end.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace attest {

// More than any file that is read as a whole has to hold.
inline constexpr std::size_t kMostOfAFile = std::size_t(4) << 30;

// What a file holds. Throws InputError, which begins with its name, if there is none, if it is a
// folder, a pipe, a device or a socket, if it cannot be read, or holds more than `most` bytes.
std::string read_file(const std::filesystem::path& file, std::size_t most = kMostOfAFile);

// The same error, for whoever reads it otherwise.
void check_is_file(const std::filesystem::path& file);

}  // namespace attest
