#include "spec/profile.h"

#include <algorithm>
#include <array>

namespace attest {
namespace {

constexpr std::array<std::string_view, 26> kForwardCore = {
    "SHAPE-1",   "SHAPE-2", "LAYOUT-1", "LAYOUT-2", "HEAD-1",  "SCORE-1", "SOFTMAX-1",
    "SOFTMAX-2", "MASK-1",  "MASK-2",   "MASK-3",   "EMPTY-1", "EMPTY-2", "LSE-1",
    "LSE-2",     "NUM-1",   "NUM-2",    "DET-1",    "SAFE-1",  "SAFE-2",  "SAFE-3",
    "SAFE-4",    "CALL-1",  "FORMAT-2", "FORMAT-3", "FORMAT-4"};
constexpr std::array<std::string_view, 5> kTrainingCore = {"HEAD-2", "GRAD-1", "GRAD-2", "GRAD-3",
                                                           "EMPTY-3"};
constexpr std::array<std::string_view, 4> kMasks = {"MASK-4", "MASK-7", "MASK-8", "HIDE-1"};
constexpr std::array<std::string_view, 3> kVarlen = {"MASK-5", "MASK-6", "HIDE-2"};
constexpr std::array<std::string_view, 1> kLayouts = {"LAYOUT-3"};
constexpr std::array<std::string_view, 1> kDouble = {"FORMAT-1"};

constexpr std::array kProfiles = {
    Profile{"forward-core", "the forward pass: full and causal, any heads and sizes", kForwardCore},
    Profile{"training-core", "the gradients dQ, dK and dV", kTrainingCore},
    Profile{"masks", "windows, dense masks, their intersections", kMasks},
    Profile{"varlen", "per-batch lengths, and what lies beyond them", kVarlen},
    Profile{"layouts", "expanded and transposed tensors", kLayouts},
    Profile{"double", "f64", kDouble},
};

bool contains(std::span<const std::string_view> list, std::string_view id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

}  // namespace

std::span<const Profile> profiles() { return kProfiles; }

const Profile* find_profile(std::string_view name) {
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

bool demands(const Profile& profile, std::span<const std::string> declared,
             std::span<const std::string> cited) {
  const auto claimed = [&](const std::string& id) {
    return std::any_of(declared.begin(), declared.end(), [&](const std::string& name) {
      const Profile* other = find_profile(name);
      return other && contains(other->clauses, id);
    });
  };
  const auto ours = [&](const std::string& id) { return contains(profile.clauses, id); };
  return std::any_of(cited.begin(), cited.end(), ours) &&
         std::all_of(cited.begin(), cited.end(), claimed);
}

}  // namespace attest
