// Removing a folder that others have filled.
#pragma once

#include <filesystem>

namespace attest {

// Removes the folder with all that is in it, however deep that nests and whatever it is called;
// links are removed, never followed. Nobody else may write into the folder itself. What cannot be
// removed stays: returns whether nothing does.
bool remove_tree(const std::filesystem::path& folder);

}  // namespace attest
