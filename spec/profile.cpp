#include "spec/profile.h"

#include <algorithm>
#include <array>

namespace attest {
namespace {

constexpr std::array<std::string_view, 39> kForwardCore = {
    "SHAPE-1", "SHAPE-2", "LAYOUT-1", "LAYOUT-2", "HEAD-1",   "SCORE-1", "SOFTMAX-1", "SOFTMAX-2",
    "MASK-1",  "MASK-2",  "MASK-3",   "EMPTY-1",  "EMPTY-2",  "LSE-1",   "LSE-2",     "FINITE-1",
    "NUM-1",   "NUM-2",   "NUM-3",    "DET-1",    "DET-3",    "SAFE-1",  "SAFE-2",    "SAFE-3",
    "SAFE-4",  "CALL-1",  "FORMAT-2", "FORMAT-3", "FORMAT-4", "LAW-1",   "LAW-2",     "LAW-3",
    "LAW-4",   "LAW-5",   "LAW-6",    "LAW-7",    "LAW-9",    "LAW-10",  "CALL-2"};
constexpr std::array<std::string_view, 8> kTrainingCore = {"HEAD-2",  "GRAD-1", "GRAD-2", "GRAD-3",
                                                           "EMPTY-3", "LAW-14", "LAW-15", "LAW-16"};
constexpr std::array<std::string_view, 5> kTrainingFull = {"GRAD-4", "GRAD-5", "GRAD-6", "SINK-2",
                                                           "DROP-2"};
constexpr std::array<std::string_view, 5> kMasks = {"MASK-4", "MASK-7", "MASK-8", "HIDE-1",
                                                    "LAW-8"};
constexpr std::array<std::string_view, 5> kSparseMasks = {"MASK-9", "MASK-10", "MASK-11", "MASK-12",
                                                          "MASK-13"};
constexpr std::array<std::string_view, 9> kScores = {
    "SCORE-2", "SCORE-3", "SCORE-4", "MASK-14", "SINK-1", "EMPTY-4", "LAW-11", "LAW-12", "LAW-13"};
constexpr std::array<std::string_view, 1> kDropout = {"DROP-1"};
constexpr std::array<std::string_view, 1> kDropoutGenerated = {"DROP-3"};
constexpr std::array<std::string_view, 3> kVarlen = {"MASK-5", "MASK-6", "HIDE-2"};
constexpr std::array<std::string_view, 1> kPacked = {"LAYOUT-5"};
constexpr std::array<std::string_view, 2> kPaged = {"PAGE-1", "PAGE-2"};
constexpr std::array<std::string_view, 2> kLayouts = {"LAYOUT-3", "LAYOUT-4"};
constexpr std::array<std::string_view, 1> kDouble = {"FORMAT-1"};
constexpr std::array<std::string_view, 3> kSchedule = {"SCHED-1", "SCHED-2", "SCHED-3"};
constexpr std::array<std::string_view, 2> kMemory = {"MEM-1", "MEM-2"};

constexpr std::array kProfiles = {
    Profile{"forward-core", "the forward pass: full and causal, any heads and sizes", kForwardCore},
    Profile{"training-core", "the gradients dQ, dK and dV", kTrainingCore},
    Profile{"training-full", "all gradients, of bias, sink, LSE and under dropout", kTrainingFull},
    Profile{"masks", "windows, dense masks, their intersections", kMasks},
    Profile{"sparse-masks", "prefixes, segments, blocks, dilation, unions", kSparseMasks},
    Profile{"scores", "softcap, bias, ALiBi, sinks", kScores},
    Profile{"dropout", "dropout with a keep-mask that is given", kDropout},
    Profile{"dropout-generated", "dropout that returns the keep-mask it drew", kDropoutGenerated},
    Profile{"varlen", "per-batch lengths, and what lies beyond them", kVarlen},
    Profile{"packed", "batch elements one after the other, without padding", kPacked},
    Profile{"paged", "keys behind a page table", kPaged},
    Profile{"layouts", "expanded and transposed tensors, the order SBH", kLayouts},
    Profile{"double", "f64", kDouble},
    Profile{"schedule", "the blocks that are computed, and who computes them", kSchedule},
    Profile{"memory", "what a call takes beyond its tensors", kMemory},
};

bool lists(std::span<const std::string_view> list, std::string_view id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

}  // namespace

std::span<const Profile> profiles() { return kProfiles; }

bool takes_declared(std::string_view name) { return name.ends_with(kTakesDeclared); }

const Profile* find_profile(std::string_view name) {
  if (takes_declared(name)) name.remove_suffix(kTakesDeclared.size());
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
      return other && lists(other->clauses, id);
    });
  };
  const auto ours = [&](const std::string& id) { return lists(profile.clauses, id); };
  return std::any_of(cited.begin(), cited.end(), ours) &&
         std::all_of(cited.begin(), cited.end(), claimed);
}

}  // namespace attest
